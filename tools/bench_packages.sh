#!/bin/sh
# Makes sure that the systems which `make bench` compares are there, and the libraries of their clients. Names what it
# installs before it does, and starts no service: Debian's own switch for that (policy-rc.d) is put in place for the
# installation and taken away after it. What cannot be had is left out: the run then skips that system by name.
set -eu

missing=""
need() { # need COMMAND-OR-FILE PACKAGE
    case "$1" in
        /*) [ -e "$1" ] || missing="$missing $2" ;;
        *) PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1 || missing="$missing $2" ;;
    esac
}

need gcc gcc
need java default-jdk-headless
need javac default-jdk-headless
need mvn maven
need /usr/include/librdkafka/rdkafka.h librdkafka-dev
need /usr/lib/rabbitmq/bin/rabbitmq-server rabbitmq-server
need /usr/include/amqp.h librabbitmq-dev
need /usr/share/activemq/bin/activemq.jar activemq
need nats-server nats-server
need redis-server redis-server
need /usr/include/hiredis/hiredis.h libhiredis-dev

[ -e /usr/include/rabbitmq-c/amqp.h ] && missing=$(printf '%s\n' $missing | grep -vx librabbitmq-dev || true)
missing=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')
[ -n "${missing% }" ] || exit 0

echo "the comparison needs these Debian packages: $missing"
if [ "$(id -u)" = 0 ]; then
    as_root=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root="sudo"
else
    echo "install them for the systems that you want to see (apt install $missing); the others are skipped by name" >&2
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "this is no Debian: install the like of them by your system's own means; what is missing is skipped by name" >&2
    exit 0
fi

policy=/usr/sbin/policy-rc.d
ours=""
restore() { [ -z "$ours" ] || $as_root rm -f "$policy"; }
trap restore EXIT
trap 'exit 1' INT TERM
if [ ! -e "$policy" ]; then
    ours=yes
    printf '#!/bin/sh\nexit 101\n' | $as_root sh -c "cat >$policy && chmod 755 $policy"
fi

echo "installing them; no service is started"
$as_root apt-get -qq update
for package in $missing; do # one by one: a package that this release does not have leaves the others alone
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install --yes --no-install-recommends "$package" >/dev/null ||
        echo "$package could not be installed" >&2
done
if [ -n "$ours" ] && [ -d /run/systemd/system ]; then # not at the next boot either
    for service in rabbitmq-server activemq nats-server redis-server; do
        case " $missing " in *" $service "*) $as_root systemctl disable --quiet "$service" || true ;; esac
    done
fi
