"""Invalid arguments of every command: one sentence on stderr, exit status 2, and no effect.

The tests of each family of flags cover their meaning; this file checks one promise for every input that a user may
mistype.
"""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.cli import COMMANDS, main
from kafkalite.cli.common import count, natural
from kafkalite.cli.registry import port
from kafkalite.cli.run import parse_topic

pytestmark = pytest.mark.integration

NOBODY = "127.0.0.1:1"
"""An address at which nothing listens."""

FILES = {
    "empty": b"",
    "lines": b"1\n",
    "junk": b"\xff\xfe\x00junk",
    "bad.toml": b"[[[",
    "policy.toml": b'group = "g"\ntopics = ["t"]\n[strategy]\nkind = "RetryTopics"\ndelays = ["10 s"]\n',
    "telnet.properties": b"security.protocol=TELNET\n",
    "authority.properties": b"security.protocol=SSL\nssl.truststore.location=/no/such.pem\n",
    "kerberos.properties": b"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\n",
    "guess.properties": b"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
    b"sasl.username=alice\nsasl.password=guess\n",
    "half.csv": b"t,0\n",
}

FLAGS = """
topics
topics lst
topics create
topics create t --partitions 0
topics create t --partitions three
topics create t --set retention
topics add-partitions t many
topics delete-records t -p 0
topics alter t
configs describe group
configs alter topic
configs alter topic t
acls add --topic t
acls add --allow-principal alice --topic t
acls add --allow-principal User:alice
acls add --allow-principal User:alice --topic t --operation fly
acls list --resource-pattern-type sideways
users add alice --mechanism PLAIN
users add alice --iterations 1 --password-file lines
users add '' --password-file lines
users copy --from-dir folder
quotas set
quotas set --user alice
quotas set --user alice --producer-byte-rate fast
quotas set --user alice --user-default --producer-byte-rate 1
quotas set --ip 10.0.0.1 --producer-byte-rate 1
cluster move
cluster move --drain x
cluster move --drain 1 --cancel
cluster retire x
cluster migrate
groups list --state Sleepy
groups reset-offsets g --to-earliest --to-latest
groups reset-offsets g --to-datetime yesterday
transactions open -t t
transactions open -t t:x
transactions list --older-than soon
transactions abort -t t:0
produce
produce -t t -a 2
produce -t t --timestamp never
produce -t t -z brotli
produce -t t --level 99
produce -t t -D ''
consume
consume -t t -o middle
consume -t t -c 0
consume -t t --since tomorrow
consume -t t --avro-keys
consume -t t --timeout 0
query
query 'delete from t'
query 'select 1; select 2'
query --csv --json 'select 1'
track x --begins --regex
track x --in nowhere
track '(' --regex
track x --size-max much
track x --follow --until -1h
track x --in avro:a
mirror --from 127.0.0.1:1 --to 127.0.0.1:1
mirror --from 127.0.0.1:1 --to 127.0.0.1:1 --name n --topics '('
audit
audit --live 127.0.0.1:1 --topics '('
audit --live 127.0.0.1:1 --stage-grace a=1
audit --live 127.0.0.1:1 --follow --stage-grace a
audit --live 127.0.0.1:1 --mirror m
audit --live 127.0.0.1:1 --state s
failures run shop:handle
letters list g --day yesterday
letters redrive g --edit --patch half.csv
load
registry --port 99999
registry --listen ftp://x
registry --threads 0
console --listen ftp://x
console --allow-changes --read-only
console --listen 0.0.0.0:0
console --metrics-token-file lines
console --threads 0
web add-user
web add-user users alice --role king
web add-user users alice --token --certificate
classic
classic no-tool
classic console-producer
classic offset-checker --group g --zkconnect host:port
classic get-offsets --server nowhere --topic t --time -1
top --metrics ftp://x
top --interval 0
metrics nothing
check --data-dir a --config b
backup
restore folder/missing
log
log dump
bench --quick --full
settings --broker --topic
completion tcsh
version --short
groups delete-offsets g
groups delete-offsets g --topic t:x
run
run --topic :3 -- true
run --topic t:x -- true
run --set nonsense -- true
run --set num.partitions=none -- true
start --set nonsense
start --set num.partitions=none --data-dir unused
start --set no.such.setting=1 --data-dir unused
start --listeners nonsense --data-dir unused
start --listeners kafka://127.0.0.1:99999 --data-dir unused
start --log-level loud
start --mirror-topics t --data-dir unused
start --console nonsense --data-dir unused
ping --set nonsense
ping --listeners nonsense
ping --listeners kafka://127.0.0.1:0
ping --timeout soon
start --load-topics t --data-dir unused
start --load-options -q --data-dir unused
start --load s3://bucket/x --data-dir unused
start --load x --load-topics ( --data-dir unused
start --load x --load-options=--nonsense --data-dir unused
start --load x --load-options=--compact --data-dir unused
nosuchcommand
"""

NUMBERS = """
topics create t --partitions DIGITS
topics delete-records t -p 0 --before DIGITS
topics delete-records t -p DIGITS --before 0
configs describe broker DIGITS
cluster move --drain DIGITS
transactions open -t t:DIGITS
registry --port DIGITS
run --topic t:DIGITS -- true
"""
PATHS = """
start --config missing
start --config folder
start --config junk
start --data-dir empty
run --data-dir empty -- true
ping --config missing
ping --config junk
topics list --command-config missing
topics list --command-config folder
topics list --command-config junk
topics list --command-config telnet.properties
topics list --command-config authority.properties
topics list --command-config kerberos.properties
acls list --data-dir missing
acls remove --allow-principal User:alice --topic t --force --data-dir missing
users list --data-dir missing
users delete alice --data-dir missing
users add alice --password-file missing
users add alice --password-file folder
users add alice --password-file junk
users add alice --password-file empty
users copy --from-dir missing --data-dir unused
quotas list --data-dir missing
quotas delete --user alice --data-dir missing
cluster migrate --config missing
produce -t t missing
query --command-config missing 'select 1'
query --out missing/file 'select 1'
track x --tracking missing
track x --tracking bad.toml
mirror --from 127.0.0.1:1 --to 127.0.0.1:1 --name n --from-config missing
mirror --from 127.0.0.1:1 --to 127.0.0.1:1 --name n --to-config folder
audit --live 127.0.0.1:1 --live-config missing
audit --live 127.0.0.1:1 --follow --state folder
failures run --policy missing shop:handle
failures run --policy bad.toml shop:handle
failures run --policy policy.toml nocolon
failures run --policy policy.toml no_such_module:handle
letters check --policy missing
letters redrive g --patch missing
letters redrive g --patch junk
letters redrive g --edit-with no_such_module:edit
load --to empty --compact
registry --users missing --port 0
registry --tls-config missing --listen https://127.0.0.1:0
console --users missing --listen 127.0.0.1:0
console --masks missing
console --masks bad.toml
console --clusters missing
console --clusters bad.toml
console --tls-config missing --listen https://127.0.0.1:0
console --metrics-url http://127.0.0.1:1 --metrics-token-file missing
console --state-dir empty --listen 127.0.0.1:0
web list-users missing
web remove-user missing alice
web add-user missing/users alice --token
classic producer-shell --props missing --topic t
classic mirror --consumer.config missing --producer.config missing --whitelist t
classic import-offsets --zkconnect 127.0.0.1:1 --input-file missing
top --metrics http://127.0.0.1:1 --token-file missing --once
check --config missing
check --data-dir /proc/missing
backup copy --data-dir missing
backup copy --data-dir empty
backup copy --config missing
restore missing --data-dir unused
restore empty --data-dir unused
restore folder --data-dir unused
log dump missing
log dump junk
log check missing
log repair missing
"""

ADDRESSES = """
topics list -b host:99999
ping --listeners kafka://127.0.0.1:1
topics list -b ''
topics list
configs describe broker
acls list
users list
quotas list
cluster describe
cluster move --drain 1
cluster elect
cluster retire 1
groups list
transactions list
produce -t t lines
consume -t t
consume -t t -g g
query 'select count(*) from t'
track x
mirror --from 127.0.0.1:1 --to 127.0.0.1:1 --name n -e
audit --live 127.0.0.1:1
failures status g
failures ledger g
letters list g
letters redrive g
registry --port 0
registry --metrics nowhere
top --once
top --metrics http://127.0.0.1:1 --once
consume -t t --avro nonsense
query --avro nonsense 'select 1'
console --registry nonsense --listen 127.0.0.1:0
console --metrics-url nonsense --listen 127.0.0.1:0
console --zookeeper host:port
classic get-offsets --server kafka://127.0.0.1:1 --topic t --time -1
"""

SIGNED_IN = """
topics list
configs describe broker
acls list
users list
quotas list
cluster describe
groups list
transactions list
produce -t t lines
consume -t t -o beginning -e
consume -t t -g g -c 1
query 'select count(*) from t'
track x
failures status g
letters list g
letters redrive g
top --once
"""


def lines_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


Refused = Callable[[str], str]


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Runs a command line that cannot begin; the sentence, behind the program's name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKALITE_BOOTSTRAP", NOBODY)
    (tmp_path / "folder").mkdir()
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    before = sorted(tmp_path.rglob("*"))

    def call(line: str) -> str:
        status = main(shlex.split(line))
        out, err = capsys.readouterr()
        assert (status, out, err.count("\n")) == (2, "", 1), err
        assert err.startswith("kafkalite: ")
        for word in ("Errno", "Traceback", "Error(", "codec can't"):
            assert word not in err
        assert sorted(tmp_path.rglob("*")) == before, "nothing was begun"
        return err.removeprefix("kafkalite: ")

    return call


@pytest.mark.parametrize("line", lines_of(FLAGS))
def test_flags_that_cannot_be_meant(refused: Refused, line: str) -> None:
    refused(line)


@pytest.mark.parametrize("line", lines_of(NUMBERS))
@pytest.mark.parametrize("digits", ["0" * 20 + "9" * 20, "9" * 5000], ids=["after zeros", "thousands"])
def test_numbers_of_too_many_digits(refused: Refused, line: str, digits: str) -> None:
    assert "cannot connect" not in refused(line.replace("DIGITS", digits))


@pytest.mark.parametrize("parse", [count, natural, port, lambda text: parse_topic(f"t:{text}")[1]])
def test_leading_zeros_do_not_count(parse: Callable[[str], int]) -> None:
    assert parse("0" * 5000 + "17") == 17


@pytest.mark.parametrize("editor", ["", " ", "no-such-editor -w", "sed 's/a/b/"])
def test_editors_that_cannot_be_run(refused: Refused, monkeypatch: pytest.MonkeyPatch, editor: str) -> None:
    monkeypatch.setenv("EDITOR", editor)
    assert "$EDITOR" in refused("letters redrive g --edit")


@pytest.mark.parametrize("line", lines_of(PATHS))
def test_files_that_are_not_there_or_something_else(refused: Refused, line: str) -> None:
    refused(line)


@pytest.mark.parametrize("line", lines_of(ADDRESSES))
def test_addresses_without_a_server(refused: Refused, line: str) -> None:
    refused(line)


def test_passwords_that_are_wrong(refused: Refused, tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    with Broker({**settings, "log.dirs": str(tmp_path_factory.mktemp("data"))}) as broker:
        broker.add_user("alice", "secret")
        there = broker.bootstrap_servers
        for line in lines_of(SIGNED_IN):
            sentence = refused(f"{line} -b {there} --command-config guess.properties")
            assert "invalid credentials" in sentence, line
        for side, other in (("from", "to"), ("to", "from")):
            line = f"mirror --{side} {there} --{side}-config guess.properties --{other} {NOBODY} --name n -e"
            refused(line)
        assert "invalid credentials" in refused(f"audit --live {there} --live-config guess.properties")


def test_files_that_are_wrong_where_a_broker_answers(refused: Refused, kafka_broker: Broker) -> None:
    address = f"-b {kafka_broker.bootstrap_servers}"
    kafka_broker.create_topic("refusals")
    refused(f"groups reset-offsets g --from-file missing {address}")
    refused(f"groups reset-offsets g --from-file half.csv {address}")
    refused(f"produce -t refusals missing {address}")
    refused(f"produce -t refusals -H nothing {address} lines")
    refused(f"query 'from nosuch' {address}")
    refused(f"query 'selekt' {address}")
    refused(f"registry --port {kafka_broker.port} --topic other {address}")
    assert "does not exist" in refused(f"audit --live {kafka_broker.bootstrap_servers} --loaded folder")


def test_every_command_is_tried() -> None:
    tried = {line.split()[0] for text in (FLAGS, PATHS, ADDRESSES) for line in lines_of(text)}
    assert set(COMMANDS) - tried == set()
