#!/bin/sh
# Makes sure that the programs which the foreign-client tests run are there. Names what it installs before it does;
# none of these packages starts a service. Without root and sudo it says what to install and ends with status 1.
set -eu

missing=""
need() { # need COMMAND-OR-HEADER PACKAGE
    case "$1" in
        /*) [ -e "$1" ] || missing="$missing $2" ;;
        *) command -v "$1" >/dev/null 2>&1 || missing="$missing $2" ;;
    esac
}

need gcc gcc
need kcat kcat
need /usr/include/librdkafka/rdkafka.h librdkafka-dev
need strace strace
need "/usr/lib/$(uname -m)-linux-gnu/faketime/libfaketimeMT.so.1" libfaketime
need /usr/share/java/zookeeper.jar zookeeper
need ip iproute2
need java default-jdk-headless
need javac default-jdk-headless
need mvn maven
need node nodejs
need npm npm
for program; do  # what only some of the tests need
    need "$program" "$program"
done

missing=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')
[ -n "${missing% }" ] || exit 0

echo "the tests need these Debian packages: $missing"
if [ "$(id -u)" = 0 ]; then
    as_root=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root="sudo"
else
    echo "install them and run this again: apt install $missing" >&2
    exit 1
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "this is no Debian: install the like of them by your system's own means" >&2
    exit 1
fi
echo "installing them"
$as_root apt-get -qq update
# shellcheck disable=SC2086  # the list is words
$as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends $missing >/dev/null
