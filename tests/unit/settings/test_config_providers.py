"""Values from config providers: the environment, properties files, files of a directory; and refusals."""

from pathlib import Path

import pytest

from kafkalite.errors import ConfigError
from kafkalite.settings.broker import BrokerConfig
from kafkalite.settings.providers import resolve

PACKAGE = "org.apache.kafka.common.config.provider."
CLASSES = {"env": "EnvVarConfigProvider", "file": "FileConfigProvider", "dir": "DirectoryConfigProvider"}
PROVIDERS = {
    "config.providers": ",".join(CLASSES),
    **{f"config.providers.{name}.class": f"{PACKAGE}{kind}" for name, kind in CLASSES.items()},
}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a properties file and files of one value each, and two variables in the environment."""
    monkeypatch.setenv("NODE", "7")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("NOWHERE", raising=False)
    (tmp_path / "node.properties").write_text("id=8\nwith:colon=x\nrack : r 1\n")
    (tmp_path / "rack").write_text("r2\n")
    (tmp_path / "binary").write_bytes(b"\xff")
    return tmp_path


def value(text: str, **more: str) -> str:
    return resolve({**PROVIDERS, "k": text, **{key.replace("__", "."): each for key, each in more.items()}})["k"]


def test_each_provider_and_text_around_it(elsewhere: Path) -> None:
    assert value("${env:NODE}") == "7"
    assert value("a-${env:NODE}-${env:NODE}:${env:EMPTY}.") == "a-7-7:."
    assert value(f"${{file:{elsewhere}/node.properties:id}}") == "8"
    assert value(f"${{file:{elsewhere}/node.properties:rack}}") == "r 1"
    assert value(f"${{dir:{elsewhere}:rack}}") == "r2\n"
    assert value("$NODE ${NODE} {env:NODE} ${} plain") == "$NODE ${NODE} {env:NODE} ${} plain"


def test_key_may_hold_colons_and_values_are_not_looked_into_again(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / "odd.properties").write_text("a\\:b=1\n")
    assert value(f"${{file:{elsewhere}/odd.properties:a:b}}") == "1"
    monkeypatch.setenv("NODE", "${env:EMPTY}")
    assert value("${env:NODE}") == "${env:EMPTY}"


def test_broker_gets_the_values_and_not_the_providers(elsewhere: Path) -> None:
    path = elsewhere / "server.properties"
    lines = [f"{key}={text}" for key, text in PROVIDERS.items()]
    lines += ["node.id=${env:NODE}", f"broker.rack=${{dir:{elsewhere}:rack}}", f"log.dirs={elsewhere}/${{env:NODE}}"]
    path.write_text("\n".join(lines))
    config = BrokerConfig.load(path, {"num.partitions": f"${{file:{elsewhere}/node.properties:id}}"})
    assert (config.node_id, config.broker_rack, config.num_partitions) == (7, "r2", 8)
    assert config.data_directory == elsewhere / "7"
    assert config.notes == ()
    assert not [key for key in config.static_texts if key.startswith("config.providers")]


def test_without_providers_nothing_is_looked_for(elsewhere: Path) -> None:
    assert resolve({"k": "${env:NODE}"}) == {"k": "${env:NODE}"}
    assert resolve({"k": "${env:NODE}", "config.providers": " "})["k"] == "${env:NODE}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${env:NOWHERE}", "environment variable NOWHERE is not set"),
        ("${env:a:NODE}", "environment variables have no path"),
        ("${evn:NODE}", "config.providers names no 'evn'"),
        ("${file:/no/such/file:k}", "cannot read the configuration file /no/such/file"),
        ("${file:@@/node.properties:nothing}", "has no nothing"),
        ("${file:id}", "the path is missing"),
        ("${file:relative:id}", "relative is not an absolute path"),
        ("${dir:@@:nothing}", "No such file"),
        ("${dir:@@:../rack}", "is not a file name"),
        ("${dir:@@:..}", "is not a file name"),
        ("${dir:@@:}", "is not a file name"),
        ("${dir:@@:binary}", "is not UTF-8"),
    ],
)
def test_variable_that_leads_nowhere(elsewhere: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        value(text.replace("@@", str(elsewhere)))
    assert caught.value.key == "k"


def test_names_and_paths_that_are_not_allowed(elsewhere: Path) -> None:
    allowed = {"config__providers__env__param__allowlist__pattern": "NO.E"}
    assert value("${env:NODE}", **allowed) == "7"
    with pytest.raises(ConfigError, match="does not allow EMPTY"):
        value("${env:EMPTY}", **allowed)
    limits = {f"config__providers__{name}__param__allowed__paths": f"/a, {elsewhere}/" for name in ("file", "dir")}
    assert value(f"${{dir:{elsewhere}:rack}}", **limits) == "r2\n"
    assert value(f"${{file:{elsewhere}/../{elsewhere.name}/node.properties:id}}", **limits) == "8"
    for outside in (f"${{file:{elsewhere}/../x:id}}", f"${{dir:{elsewhere.parent}:x}}", f"${{dir:{elsewhere}x:x}}"):
        with pytest.raises(ConfigError, match="does not allow"):
            value(outside, **limits)


@pytest.mark.parametrize(
    ("texts", "key", "said"),
    [
        ({"config.providers": "env"}, "config.providers.env.class", "is missing"),
        (
            {"config.providers": "v", "config.providers.v.class": "com.x.Vault"},
            "config.providers.v.class",
            "EnvVarConfig",
        ),
        ({**PROVIDERS, "config.providers.other.class": "x"}, "config.providers.other.class", "uses a provider"),
        ({**PROVIDERS, "config.providers.env.param.x": "x"}, "config.providers.env.param.x", "must be allowlist"),
        (
            {**PROVIDERS, "config.providers.env.param.allowlist.pattern": "("},
            "config.providers.env.param.allowlist.pattern",
            "not a valid regular expression",
        ),
        (
            {**PROVIDERS, "config.providers.dir.param.allowed.paths": "here"},
            "config.providers.dir.param.allowed.paths",
            "not an absolute path",
        ),
    ],
)
def test_providers_that_are_described_wrongly(texts: dict[str, str], key: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        resolve(texts)
    assert caught.value.key == key
