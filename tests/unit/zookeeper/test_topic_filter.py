"""White and black lists, as 0.7.1 reads them."""

import pytest

from kafkalite.zookeeper.topic_filter import Blacklist, Whitelist, filter_of


def test_whitelist_takes_the_whole_name():
    chosen = Whitelist("white.*")
    assert chosen.allows("white1")
    assert not chosen.allows("offwhite1")


def test_comma_is_an_alternative_and_spaces_and_quotes_fall_off():
    chosen = Whitelist(" 'a, b' ")
    assert chosen.pattern == "a|b"
    assert chosen.allows("a")
    assert chosen.allows("b")
    assert not chosen.allows("a|b")


def test_blacklist_is_the_rest():
    chosen = Blacklist("a.*")
    assert not chosen.allows("abc")
    assert chosen.allows("bc")


@pytest.mark.parametrize(
    ("made", "watches"),
    [(Whitelist("a,b-2"), False), (Whitelist("a.*"), True), (Whitelist("a_b"), True), (Blacklist("a"), True)],
)
def test_only_a_list_of_plain_names_needs_no_watcher(made, watches):
    assert made.needs_topic_watcher is watches


def test_pattern_that_is_none():
    with pytest.raises(ValueError, match="not a regular expression"):
        Whitelist("a(")


def test_kind_by_its_marker():
    assert isinstance(filter_of("*", "a"), Whitelist)
    assert isinstance(filter_of("!", "a"), Blacklist)
    with pytest.raises(ValueError, match="no kind"):
        filter_of("?", "a")
