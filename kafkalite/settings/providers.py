"""Replace variables in settings by values from Kafka's configuration providers, which store values outside the file.

    config.providers=env,secrets,mounted
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
    config.providers.secrets.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.mounted.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider

    config.providers.env.param.allowlist.pattern=…        limits the environment variables
    config.providers.secrets.param.allowed.paths=…        limits the files; also for a DirectoryConfigProvider

    log.dirs=${env:DATA}                            the environment variable DATA
    node.id=${secrets:/etc/kafka/node:id}           the key `id` of a properties file
    broker.rack=${mounted:/run/secrets:rack}        the content of the file /run/secrets/rack

A variable without a value is a ConfigError, whereas Kafka would keep it as literal text. Without the setting
config.providers, nothing is replaced.

Sources: KIP-297, KIP-421, KIP-632, KIP-887, KIP-993.

Thread rule: any thread.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from kafkalite.errors import ConfigError, StartupError
from kafkalite.settings.properties import read_properties
from kafkalite.settings.rows import near_miss

if TYPE_CHECKING:
    from collections.abc import Mapping

PROVIDERS: Final = "config.providers"
_PACKAGE: Final = "org.apache.kafka.common.config.provider."
_VARIABLE: Final = re.compile(r"\$\{([^}:]*):(?:([^}]*?):)?([^}]*)\}")
"""Provider, path (none for one that has no paths) and key; as in Kafka's ConfigTransformer, a key may hold colons."""


class Provider(Protocol):
    """A provider of values. `value` raises ValueError if there is no value; the message is one sentence."""

    def value(self, path: str, key: str) -> str: ...


class EnvironmentProvider:
    """A provider of environment variables, for `${name:KEY}` (Kafka's EnvVarConfigProvider)."""

    PARAMETERS: Final = ("allowlist.pattern",)

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._allowed = re.compile(parameters.get("allowlist.pattern", ".*"), re.DOTALL)

    def value(self, path: str, key: str) -> str:
        """Return the value of the environment variable `key`. ValueError if it is not set or not allowed."""
        if path:
            raise ValueError("environment variables have no path; use ${name:KEY}")
        if self._allowed.fullmatch(key) is None:
            raise ValueError(f"allowlist.pattern does not allow {key}")
        if key not in os.environ:
            raise ValueError(f"environment variable {key} is not set")
        return os.environ[key]


class _PathProvider:
    PARAMETERS: Final = ("allowed.paths",)

    def __init__(self, parameters: Mapping[str, str]) -> None:
        texts = [text.strip() for text in parameters.get("allowed.paths", "").split(",")]
        self._allowed = [_absolute(text) for text in texts if text]

    def _checked(self, path: str) -> Path:
        """Return the normalized path. ValueError if it is not allowed.

        As in Kafka, symbolic links are not resolved for this check.
        """
        if not path:
            raise ValueError("the path is missing; use ${name:/path:key}")
        found = Path(os.path.normpath(_absolute(path)))
        if self._allowed and not any(found.is_relative_to(allowed) for allowed in self._allowed):
            raise ValueError(f"allowed.paths does not allow {path}")
        return found


class FileProvider(_PathProvider):
    """A provider of the keys of properties files, for `${name:/path:key}` (Kafka's FileConfigProvider)."""

    def value(self, path: str, key: str) -> str:
        """Return the value of a key in a properties file. ValueError."""
        try:
            found = read_properties(self._checked(path))
        except StartupError as error:
            raise ValueError(str(error)) from None
        if key not in found:
            raise ValueError(f"{path} has no {key}")
        return found[key]


class DirectoryProvider(_PathProvider):
    """A provider of file contents in a directory, for `${name:/path:file}` (Kafka's DirectoryConfigProvider)."""

    def value(self, path: str, key: str) -> str:
        """Return the content of the file `key` in the directory `path`. ValueError."""
        if not key or "/" in key or key == "..":
            raise ValueError(f"{key!r} is not a file name in {path}")
        try:
            return (self._checked(path) / key).read_text(encoding="utf-8")
        except OSError as error:
            raise ValueError(f"cannot read {path}/{key}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}/{key} is not UTF-8 (byte {error.start})") from None


CLASSES: Final[Mapping[str, type[EnvironmentProvider | FileProvider | DirectoryProvider]]] = {
    f"{_PACKAGE}EnvVarConfigProvider": EnvironmentProvider,
    f"{_PACKAGE}FileConfigProvider": FileProvider,
    f"{_PACKAGE}DirectoryConfigProvider": DirectoryProvider,
}
"""Kafka's name of a class → ours."""


def resolve(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with all variables replaced, and without the settings of providers.

    ConfigError if a variable has no value.
    """
    if not texts.get(PROVIDERS, "").strip():
        return dict(texts)
    providers = _providers(texts)

    def replaced(key: str, text: str) -> str:
        def look_up(match: re.Match[str]) -> str:
            name, path, wanted = match[1], match[2] or "", match[3]
            if name not in providers:
                raise ConfigError(key, f"config.providers names no {name!r}{near_miss(name, providers)}")
            try:
                return providers[name].value(path, wanted)
            except ValueError as error:
                raise ConfigError(key, str(error)) from None

        return _VARIABLE.sub(look_up, text)

    return {
        key: replaced(key, text)
        for key, text in texts.items()
        if key != PROVIDERS and not key.startswith(f"{PROVIDERS}.")
    }


def _providers(texts: Mapping[str, str]) -> dict[str, Provider]:
    names = [name.strip() for name in texts[PROVIDERS].split(",") if name.strip()]
    _refuse_strays(texts, names)
    return {name: _provider(texts, name) for name in names}


def _refuse_strays(texts: Mapping[str, str], names: list[str]) -> None:
    """Raise ConfigError for a setting of a provider that config.providers does not list."""
    for key in texts:
        if key.startswith(f"{PROVIDERS}.") and not any(key.startswith(f"{PROVIDERS}.{name}.") for name in names):
            raise ConfigError(key, f"uses a provider that {PROVIDERS} does not list")


def _provider(texts: Mapping[str, str], name: str) -> Provider:
    key = f"{PROVIDERS}.{name}.class"
    if key not in texts:
        raise ConfigError(key, f"is missing, but {PROVIDERS} lists {name}")
    kind = CLASSES.get(texts[key].strip())
    if kind is None:
        raise ConfigError(key, f"must be one of {', '.join(CLASSES)}, not {texts[key]!r}")
    prefix = f"{PROVIDERS}.{name}.param."
    parameters = {key.removeprefix(prefix): text for key, text in texts.items() if key.startswith(prefix)}
    for parameter in parameters:
        if parameter not in kind.PARAMETERS:
            raise ConfigError(f"{prefix}{parameter}", f"must be {', '.join(kind.PARAMETERS)}")
    try:
        return kind(parameters)
    except re.error as error:
        raise ConfigError(f"{prefix}allowlist.pattern", f"is not a valid regular expression: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{prefix}allowed.paths", str(error)) from None


def _absolute(path: str) -> Path:
    if not path.startswith("/"):
        raise ValueError(f"{path} is not an absolute path")
    return Path(os.path.normpath(path))
