"""Login configurations: Kafka's, odd ones, and those that are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.errors import ConfigError
from kafkalite.security.jaas import SIZE_MAX, parse

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "kind", "options"),
    [
        (f'{PLAIN} required user_alice="secret" user_bob="b";', "PLAIN", {"user_alice": "secret", "user_bob": "b"}),
        (f"{PLAIN} required;", "PLAIN", {}),
        ("x.ScramLoginModule optional\n  username='a'\n  password=b\n;\n", "SCRAM", {"username": "a", "password": "b"}),
        ("OAuthBearerLoginModule REQUIRED a=b;", "OAUTHBEARER", {"a": "b"}),
        (r'PlainLoginModule required user_a="q\"\\\t\101";', "PLAIN", {"user_a": 'q"\\\tA'}),
        ("/* who */ PlainLoginModule // what\n required /**/ user_a = 'x' ;", "PLAIN", {"user_a": "x"}),
        ('PlainLoginModule required "user_a b"="x y";', "PLAIN", {"user_a b": "x y"}),
        ('PlainLoginModule required user_a="" user_ü="ü;=//";', "PLAIN", {"user_a": "", "user_ü": "ü;=//"}),
        ("PlainLoginModule required user_a=first user_a=second;", "PLAIN", {"user_a": "second"}),
    ],
)
def test_what_is_read(text: str, kind: str, options: dict[str, str]) -> None:
    assert parse(text) == (kind, options)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "lacks a login module"),
        (";", "lacks a login module"),
        ("Krb5LoginModule required;", "unknown login module; expected PlainLoginModule"),
        ("hidden", "unknown login module; expected PlainLoginModule"),
        ("'hidden' required user_a=b;", "unknown login module; expected PlainLoginModule"),
        ("PlainLoginModule;", "lacks a control flag"),
        ("PlainLoginModule needed;", "control flag must be one of"),
        ('PlainLoginModule required user_a="hidden"', "does not end with a semicolon"),
        ("PlainLoginModule required user_a;", "option 1 is not of the form name=value"),
        ("PlainLoginModule required user_a=;", "lacks a value of option 1"),
        ("PlainLoginModule required a=b =c;", "option 2 is not of the form name=value"),
        ('PlainLoginModule required user_a="hidden;', "cannot be parsed from character 34"),
        ("PlainLoginModule required a=b; PlainLoginModule required;", "nothing after its semicolon"),
        ("x" * (SIZE_MAX + 1), "longer than"),
        ("/* no end", "cannot be parsed from character 1"),
    ],
)
def test_what_is_refused_in_one_sentence_that_shows_no_password(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config") as error:
        parse(text)
    assert reason in str(error.value)
    assert "hidden" not in str(error.value)
    assert len(str(error.value)) < 300


@given(st.dictionaries(st.text("ab_$.-1", min_size=1, max_size=9), st.text(max_size=9), max_size=5))
def test_quoted_values_come_back(options: dict[str, str]) -> None:
    def quoted(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    words = " ".join(f'{name}="{quoted(value)}"' for name, value in options.items())
    assert parse(f"PlainLoginModule required {words};").options == options


@given(st.text(max_size=100))
def test_any_text_is_read_or_refused(text: str) -> None:
    for start in ("", "PlainLoginModule required "):
        try:
            parse(start + text)
        except ConfigError:
            continue
