"""Users of SCRAM as a listener looks them up."""

from kafkalite.broker.security.sasl_listener import Users
from kafkalite.model import ScramCredential
from kafkalite.security import scram

SECRET = b"s" * 32
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def test_users_are_found_and_others_are_given_what_no_password_fits() -> None:
    kept: dict[tuple[str, str], ScramCredential] = {}
    users = Users(kept, SECRET)
    for count in range(40):
        for mechanism in MECHANISMS:
            assert users.find(mechanism, "nobody") == scram.decoy(mechanism, SECRET, "nobody")
            for number in range(count):
                name = f"user-{number}"
                if number % 2 == MECHANISMS.index(mechanism):
                    assert users.find(mechanism, name) == kept[mechanism, name]
                else:
                    assert users.find(mechanism, name) == scram.decoy(mechanism, SECRET, name)
        key = (MECHANISMS[count % 2], f"user-{count}")
        kept[key] = ScramCredential(scram.new_salt(), b"stored %d" % count, b"server", 4096 + count)
    kept.clear()
    assert users.find(MECHANISMS[0], "user-0") == scram.decoy(MECHANISMS[0], SECRET, "user-0")
