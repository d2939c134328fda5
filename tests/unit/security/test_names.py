"""Distinguished names as Java writes them, and what Kafka's mapping rules make of them."""

from __future__ import annotations

import contextlib

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.errors import ConfigError
from kafkalite.security.distinguished_name import SIZE_MAX, alternative_names, java_text
from kafkalite.security.ssl_principal_mapping import PrincipalRules
from tests.kit.harness.certificates import Authority, name_of

JAVA = [
    (
        (
            "306f310b30090603550406130244453110300e06035504080c0742617661726961310f300d06035504070c064d"
            "756e696368310e300c06035504090c055761792031310e300c060355040a0c055465737473310d300b06035504"
            "0b0c04556e6974310e300c06035504030c05616c696365"
        ),
        "CN=alice,OU=Unit,O=Tests,STREET=Way 1,L=Munich,ST=Bavaria,C=DE",
    ),
    (
        (
            "305031133011060a0992268993f22c64011916036f726731173015060a0992268993f22c64011916076578616d"
            "706c6531123010060a0992268993f22c6401010c027531310c300a06035504030c03626f62"
        ),
        "CN=bob,UID=u1,DC=example,DC=org",
    ),
    (
        "301e311c301a06035504030c13612c622b6322645c653c663e673b683d69236a",
        'CN=a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h\\=i\\#j',
    ),
    ("3010310e300c06035504030c05236c656164", "CN=\\#lead"),
    ("3011310f300d06035504030c062074776f2020", "CN=\\ two\\ \\ "),
    ("300e310c300a06035504030c03202020", "CN=\\ \\ \\ "),
    ("300b3109300706035504030c00", "CN="),
    ("3011310f300d06035504030c066e756c00696e", "CN=nul\\00in"),
    ("3021311f301d06035504030c165a6fc3ab20c3856e67737472c3b66d20e6bca2e5ad97", "CN=Zoë Ångström 漢字"),
    (
        ("3032310a300806035504030c01783114301206092a864886f70d01090116056140622e63310e300c060355040513053132203334"),
        "2.5.4.5=#13053132203334,1.2.840.113549.1.9.1=#16056140622e63,CN=x",
    ),
    ("3020311e300806035504030c01783008060355040b0c017930080603550405130131", "CN=x+OU=y+2.5.4.5=#130131"),
    ("301c310c300a06035504030c036f6e65310c300a06035504030c0374776f", "CN=two,CN=one"),
    ("300f310d300b06035504031e0400610062", "CN=\\00a\\00b"),
    ("300f310d300b0603550403140474656c65", "CN=tele"),
    ("3011310f300d060355040304066f6374657473", "CN=#04066f6374657473"),
    ("300c310a30080603550403020105", "CN=#020105"),
    ("3000", ""),
    ("300e310c300a06038837010c036f6464", "2.999.1=#0c036f6464"),
    ("30183116301406035504030c0d74616209686572650a6c696e65", "CN=tab\there\nline"),
    ("300d310b300906035504030c02fffe", "CN=��"),
    ("300e310c300a06035504031b0367656e", "CN=gen"),
    ("300f310d300b06035504031c0400000075", "CN=#1c0400000075"),
    (
        "302a310e300c060355040c0c057469746c65310c300a06035504040c03737572310a300806035504030c0171",
        "CN=q,2.5.4.4=#0c03737572,2.5.4.12=#0c057469746c65",
    ),
]
"""DER of a name, and what X500Principal.getName() of Java 17 says: made once with it."""


@pytest.mark.parametrize(("der", "text"), JAVA, ids=range(len(JAVA)))
def test_name_is_javas_text(der: str, text: str) -> None:
    assert java_text(bytes.fromhex(der)) == text


@given(st.binary(max_size=200))
def test_bytes_that_are_no_name_are_refused_and_nothing_worse(data: bytes) -> None:
    for read in (java_text, alternative_names):
        with contextlib.suppress(ValueError):
            read(data)


@given(st.sampled_from(JAVA), st.data())
def test_damaged_name_is_refused_or_another_one(pair: tuple[str, str], data: st.DataObject) -> None:
    der = bytearray.fromhex(pair[0])
    der[data.draw(st.integers(0, len(der) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        assert java_text(bytes(der)) is not None


def test_name_of_64_kib_is_refused() -> None:
    with pytest.raises(ValueError, match="65537 bytes"):
        java_text(bytes(SIZE_MAX + 1))


def test_alternative_names_are_distinguished() -> None:
    authority = Authority()
    found = []
    for hosts in (("a", "b"), ("b",)):
        certificate = authority.issue("x", hosts=hosts).certificate
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        found.append(alternative_names(extension.public_bytes()))
    assert found[1] < found[0]
    assert alternative_names(b"") == frozenset()


ALICE = "CN=Alice.Smith,OU=Sales,O=Firm,C=DE"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", ALICE),
        ("", ALICE),
        ("RULE:^CN=(.*?),.*$/$1/", "Alice.Smith"),
        ("RULE:CN=(.*?),.*/$1/L", "alice.smith"),
        ("RULE:CN=(.*?),.*/$1/U, DEFAULT", "ALICE.SMITH"),
        ("RULE:CN=(.*?),OU=(.*?),.*/$2-$1@x/L", "sales-alice.smith@x"),
        ("RULE:OU=.*/$1/,DEFAULT", ALICE),
        ("RULE:CN=(\\w+)\\.(\\w+),.*/$2$1/", "SmithAlice"),
        ("RULE:CN=(.*?),.*/$1$12$9/", "Alice.SmithAlice.Smith2$9"),
        ("RULE:CN=(.*?),.*/a\\/b\\$1/", "a/b$1"),
        ("RULE:.*/$0/", ALICE),
    ],
)
def test_first_rule_that_matches_the_whole_name_wins(rules: str, name: str) -> None:
    assert PrincipalRules(rules).name_of(ALICE) == name


def test_client_whom_no_rule_names_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no rule of ssl\.principal.mapping\.rules matches 'CN=Alice"):
        PrincipalRules("RULE:CN=Bob/bob/").name_of(ALICE)


@pytest.mark.parametrize(
    "rules", ["RULE:a/b", "RULE:a/b/X", "NONE", "DEFAULT;DEFAULT", "RULE:(/x/", "RULE:(?=a)/x/", "RULE:(a)\\1/x/"]
)
def test_rules_that_are_none_are_refused_at_the_start(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalRules(rules)


def test_rule_that_would_backtrack_for_ever_ends() -> None:
    rules = PrincipalRules("RULE:(a*)*(a*)*(a*)*b/$1/")
    with pytest.raises(ValueError, match="no rule"):
        rules.name_of("a" * 10_000)


def test_names_of_the_authority_are_read() -> None:
    assert java_text(name_of("x", COUNTRY_NAME="DE").public_bytes()) == "CN=x,C=DE,O=Tests"
