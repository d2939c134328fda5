"""The users file: accepted lines, refused lines, and no plaintext secrets."""

import pytest

from kafkalite.errors import StartupError
from kafkalite.web.users import Role, User, Users, certificate_line, password_line, token_line


def test_a_password_lets_in_its_owner_alone() -> None:
    users = Users([password_line("alice", Role.OPERATOR, "sésame:1"), password_line("bob", Role.VIEWER, "other")])
    assert users.by_password("alice", "sésame:1") == User("alice", Role.OPERATOR)
    assert users.by_password("alice", "other") is None
    assert users.by_password("carol", "sésame:1") is None
    assert users.by_password("alice", "") is None
    assert users.by_password("alice", "x" * 10_000) is None


def test_a_token_and_a_certificate_have_a_role() -> None:
    line, token = token_line("ci", Role.ADMIN)
    users = Users(["# people", "", line, certificate_line("CN=app,O=Example", Role.VIEWER)])
    assert users.by_token(token) == User("ci", Role.ADMIN)
    assert users.by_token(token[:-1]) is None
    assert users.by_token("\udcff") is None
    assert users.by_certificate("CN=app,O=Example") == User("CN=app,O=Example", Role.VIEWER)
    assert users.by_certificate("CN=app") is None
    assert users.by_password("ci", token) is None


def test_no_line_has_a_secret() -> None:
    line, token = token_line("ci", Role.VIEWER)
    assert token not in line
    assert "hunter2" not in password_line("alice", Role.VIEWER, "hunter2")
    assert password_line("alice", Role.VIEWER, "hunter2") != password_line("alice", Role.VIEWER, "hunter2")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("alice", "line 1: expected name:role:secret"),
        (":admin:certificate", "line 1: expected name:role:secret"),
        ("alice:root:certificate", "the role must be viewer, operator or admin"),
        ("alice:admin:hunter2", "the secret must be"),
        ("alice:admin:sha256$AAAA", "the hash has 3 bytes"),
        ("alice:admin:sha256$%%", "not base64"),
        ("alice:admin:scrypt$15$8$1$AAAA", "expected scrypt"),
        ("alice:admin:scrypt$40$8$1$AAAA$AAAA", "the cost of scrypt is above"),
        ("alice:admin:scrypt$x$8$1$AAAA$AAAA", "expected scrypt"),
        ("alice:admin:scrypt$999999999$8$1$AAAA$AAAA", "expected scrypt"),
    ],
)
def test_a_line_that_is_none_is_named(line: str, words: str) -> None:
    with pytest.raises(StartupError, match=words.replace("$", r"\$")):
        Users([line])


def test_a_file_that_others_may_write_is_refused(tmp_path) -> None:
    path = tmp_path / "users"
    path.write_text(certificate_line("CN=app", Role.VIEWER))
    path.chmod(0o622)
    with pytest.raises(StartupError, match="chmod 600"):
        Users.from_file(path)
    path.chmod(0o600)
    assert Users.from_file(path).by_certificate("CN=app") is not None
    with pytest.raises(StartupError, match="No such file"):
        Users.from_file(tmp_path / "none")
    path.write_bytes(b"\xff:admin:certificate")
    with pytest.raises(StartupError, match="UTF-8"):
        Users.from_file(path)


@pytest.mark.parametrize("name", ["", "a:b", "#a", " a", "a\n", "a\x1b"])
def test_a_name_that_a_line_cannot_hold_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        certificate_line(name, Role.VIEWER)
