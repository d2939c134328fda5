"""Provide the SASL mechanisms of one listener, and a server for each authentication exchange.

    PLAIN with a JAAS line      authenticates the users in the line, as in Kafka
    PLAIN without a JAAS line   authenticates SCRAM users: hashes the password and compares it with the stored keys
    SCRAM                       authenticates the users of AlterUserScramCredentials and `kafkalite users`
    OAUTHBEARER                 authenticates any client with a valid token (`kafkalite.security.oauth`)

Thread rule: any thread may call `server`. The returned server belongs to one exchange.
"""

from __future__ import annotations

import functools
import hmac
import logging
from typing import TYPE_CHECKING, Final

from kafkalite.base.logging import fields
from kafkalite.errors import ConfigError
from kafkalite.model import ScramCredential
from kafkalite.security import jaas, scram
from kafkalite.security.sasl import OAUTHBEARER, PLAIN, GivenPasswords, PlainServer, Remembered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite.security.oauth import KeySet
    from kafkalite.security.sasl import MechanismServer
    from kafkalite.settings.areas.sasl import ListenerSaslSettings, MechanismSettings

logger = logging.getLogger("kafkalite.broker.security")

_USER_PREFIX: Final = "user_"


class Users:
    """The users with SCRAM credentials. Any thread."""

    def __init__(self, credentials: Mapping[tuple[str, str], ScramCredential], secret: bytes) -> None:
        """Use these credentials, by mechanism and user. They are read at each look-up, so later changes apply.

        The salts for unknown users are derived from `secret`.
        """
        self._credentials = credentials
        self._secret = secret
        self._names: list[tuple[str, str]] = []
        self._last: tuple[ScramCredential | None, ...] = ()
        self._remembered = Remembered()

    def find(self, mechanism: str, name: str) -> ScramCredential:
        """Return a user's credential. For an unknown user, return a credential that matches no password."""
        # Do the same work for existing and unknown users, so that it takes the same time (benchmarks/enumeration.py):
        # make a decoy, look up two users and a name that does not exist, read a user, copy both, and release those of
        # the previous call.
        decoy = scram.decoy(mechanism, self._secret, name)
        asked, unknown = (mechanism, name), (mechanism, "")
        one, other = self._somebody(decoy.salt[-5:]), self._somebody(decoy.salt[-10:-5])
        stored = self._credentials.get(asked)
        others = self._credentials.get(one), self._credentials.get(other if stored is None else unknown)
        read = stored or others[0] or decoy
        hmac.compare_digest(read.salt, decoy.salt)
        answers = ScramCredential(*decoy), ScramCredential(*read)
        self._last = (decoy, read, *others)
        return answers[stored is not None]

    def _somebody(self, digits: bytes) -> tuple[str, str]:
        """Return (mechanism, name) of some user. The same base-36 digits always give the same user."""
        if len(self._names) != len(self._credentials):
            self._names = list(self._credentials)
        return self._names[int(digits, 36) % len(self._names)] if self._names else ("", "")

    def check(self, name: str, password: str) -> bool:
        """Return whether this is the user's password.

        The call takes the time of a hash even for an unknown name, unless the password was correct recently.
        """
        kinds = [kind for kind in scram.HASHES if (kind, name) in self._credentials]
        mechanism = kinds[0] if kinds else next(iter(scram.HASHES))
        found = self.find(mechanism, name)
        digest = self._remembered.digest(name, password, found.stored_key)
        if digest in self._remembered:
            return True
        salted = scram.salted_password(mechanism, password.encode(), found.salt, found.iterations)
        kept = scram.credential(mechanism, salted, found.salt, found.iterations)
        right = hmac.compare_digest(kept.stored_key, found.stored_key)
        if right:
            self._remembered.add(digest)
        return right


class SaslListener:
    """The SASL mechanisms and credentials of one listener."""

    def __init__(self, name: str, settings: ListenerSaslSettings, users: Users, *, encrypted: bool) -> None:
        """Read the login configuration of the listener. Raises ConfigError if it is invalid."""
        self.name = name
        self.receive_size_max = settings.receive_size_max
        self._sessions_ms = {item.name: item.settings.connections_max_reauth_ms for item in settings.mechanisms}
        self._key_sets: list[KeySet] = []
        self._makers = {item.name: _maker(name, item, users, self._key_sets) for item in settings.mechanisms}
        if PLAIN in self._makers and not encrypted:
            logger.warning("PLAIN without TLS: passwords are sent unencrypted", extra=fields(listener=name))

    def start(self) -> None:
        """Start fetching the keys with which bearer tokens are verified. ConfigError for an invalid key file."""
        for keys in self._key_sets:
            keys.start()

    def stop(self) -> None:
        """Stop fetching keys. Idempotent."""
        for keys in self._key_sets:
            keys.stop()

    @property
    def mechanisms(self) -> list[str]:
        """The enabled mechanisms."""
        return list(self._makers)

    def session_ms_max(self, mechanism: str) -> int:
        """Return the maximum lifetime of a session in ms; 0 for unlimited. After it, a client has to
        re-authenticate.
        """
        return self._sessions_ms[mechanism]

    def server(self, mechanism: str) -> MechanismServer | None:
        """Return a new server for one exchange; None if the mechanism is not enabled."""
        maker = self._makers.get(mechanism)
        return None if maker is None else maker()


def _bearer_maker(
    item: MechanismSettings, options: Mapping[str, str], key_sets: list[KeySet]
) -> Callable[[], MechanismServer]:
    from kafkalite.security.oauth import KEYS_KEY, UNSECURED_KEY, BearerServer, KeySet, TokenChecker

    settings = item.settings
    keys = None
    if settings.sasl_oauthbearer_jwks_endpoint_url:
        if not settings.sasl_oauthbearer_jwks_endpoint_url.startswith(("https://", "file://")):
            raise ConfigError(KEYS_KEY, "must begin with https:// or file://")
        tls = {key: text for key, text in options.items() if key.startswith("ssl.")}
        keys = KeySet(settings, tls=tls)
        key_sets.append(keys)
    elif not settings.sasl_oauthbearer_allow_unsecured_tokens:
        raise ConfigError(KEYS_KEY, "is missing, so bearer tokens cannot be verified")
    if settings.sasl_oauthbearer_allow_unsecured_tokens:
        logger.warning("%s: unsigned bearer tokens are accepted", UNSECURED_KEY)
    checker = TokenChecker(settings, keys)
    return lambda: BearerServer(checker.check, settings.sasl_oauthbearer_sub_claim_name)


def _maker(
    listener: str, item: MechanismSettings, users: Users, key_sets: list[KeySet]
) -> Callable[[], MechanismServer]:
    key = f"listener.name.{listener.lower()}.{item.name.lower()}.{jaas.KEY}"
    module = None if item.jaas is None else jaas.parse(item.jaas, key)
    kind = "SCRAM" if item.name in scram.HASHES else item.name
    if module is not None and module.kind != kind:
        raise ConfigError(key, f"the login module is for {module.kind}, but {item.name} is required")
    if item.name == OAUTHBEARER:
        return _bearer_maker(item, {} if module is None else module.options, key_sets)
    if kind == "SCRAM":
        return lambda: scram.ScramServer(item.name, functools.partial(users.find, item.name))
    if module is None:
        return lambda: PlainServer(users.check, quick=False)
    given = GivenPasswords(
        {
            option.removeprefix(_USER_PREFIX): password
            for option, password in module.options.items()
            if option.startswith(_USER_PREFIX)
        }
    )
    return lambda: PlainServer(given.check, quick=True)
