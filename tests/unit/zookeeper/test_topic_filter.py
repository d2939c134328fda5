"""White and black lists, as 0.7.1 reads them."""

import pytest

from kafkalite.zookeeper.nodes import FilterCounts
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


def test_an_expression_that_would_hang_a_backtracking_engine_takes_no_time():
    chosen = Whitelist("(a+)+b")
    assert chosen.is_linear
    assert not chosen.allows("a" * 200)


def test_what_only_a_backtracking_engine_knows_is_taken_and_says_so():
    chosen = Whitelist("(?!secret).*")
    assert not chosen.is_linear
    assert chosen.allows("open")
    assert not chosen.allows("secret-1")
    with pytest.raises(ValueError, match="not a regular expression"):
        Blacklist("(?!a(")


def test_a_strangers_expression_is_not_tried_where_it_might_take_for_ever():
    stranger = FilterCounts("*", 1, "(?=a)(a+)+b")
    with pytest.raises(ValueError, match="may take exponential time"):
        stranger.streams_of(["a" * 200], only_linear=True)
    assert stranger.streams_of(["aab"]) == {"aab": 1}
    assert FilterCounts("*", 2, "(a+)+b").streams_of(["a" * 200, "ab"], only_linear=True) == {"ab": 2}


def test_kind_by_its_marker():
    assert isinstance(filter_of("*", "a"), Whitelist)
    assert isinstance(filter_of("!", "a"), Blacklist)
    with pytest.raises(ValueError, match="unknown topic filter marker"):
        filter_of("?", "a")
