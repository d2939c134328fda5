"""Define the broker's settings for authorization: the authorizer and the super users."""

from __future__ import annotations

from typing import Final

from kafkalite.base.dataclass import dataclass
from kafkalite.errors import ConfigError
from kafkalite.settings.rows import BOOLEAN, STRING, setting

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The class of Kafka's authorizer, whose name enables ACLs here, too."""


@dataclass(frozen=True, kw_only=True, eq=False, init=False, repr=False)
class PermissionRows:
    """Settings of authorization."""

    __slots__ = ()

    authorizer_class_name: str = setting(
        STRING,
        "",
        f"`{STANDARD_AUTHORIZER}` enables authorization with ACLs. Unset: every client may do everything. Other "
        "classes cannot be loaded.",
    )
    super_users: str = setting(
        STRING,
        "",
        "Principals with full access, which bypass ACLs; separated by semicolons: `User:alice;User:CN=b,O=c`.",
    )
    allow_everyone_if_no_acl_found: bool = setting(
        BOOLEAN,
        False,
        "Allow everyone to use a resource that has no ACL. Its first ACL denies access to everyone else.",
    )

    @property
    def asks_rules(self) -> bool:
        """Whether ACLs are enforced. ConfigError for an authorizer other than Kafka's StandardAuthorizer."""
        if self.authorizer_class_name not in {"", STANDARD_AUTHORIZER}:
            raise ConfigError("authorizer.class.name", f"only {STANDARD_AUTHORIZER} can be loaded")
        return bool(self.authorizer_class_name)

    @property
    def super_user_names(self) -> frozenset[str]:
        """The principals of super.users. ConfigError if one is not of the form type:name."""
        names = frozenset(filter(None, (text.strip() for text in self.super_users.split(";"))))
        for name in names:
            kind, separator, rest = name.partition(":")
            if not (kind and separator and rest):
                raise ConfigError("super.users", f"{name[:64]!r} must have the form type:name, such as User:alice")
        return names
