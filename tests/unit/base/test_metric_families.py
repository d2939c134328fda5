"""Labels that clients choose, and names of which there are too many."""

from prometheus_client.parser import text_string_to_metric_families

from kafkalite.base.metric_families import LABELLED_MAX, OTHERS, labels, most


def parsed(text: str) -> dict[str, str]:
    (family,) = text_string_to_metric_families(f"x{text} 1\n")
    return family.samples[0].labels


def test_labels_are_what_a_parser_reads_back() -> None:
    assert labels() == ""
    assert labels(topic="a", partition=0) == '{topic="a",partition="0"}'
    assert parsed(labels(a='quo"te', b="back\\slash")) == {"a": 'quo"te', "b": "back\\slash"}


def test_no_control_character_of_a_client_reaches_the_text() -> None:
    text = labels(client="a\nb\x1b[31m\x00\u2028c")
    assert text.isprintable()
    assert parsed(text) == {"client": "a\\nb\\x1b[31m\\x00\\u2028c"}


def test_a_long_name_is_cut() -> None:
    assert len(parsed(labels(client="x" * 65536))["client"]) == 257


def test_a_flood_of_names_is_exported_together() -> None:
    rows = [(f"client-{i}", float(i)) for i in range(5000)]
    told = most(rows)
    assert len(told) == LABELLED_MAX + 1
    assert told[-1][0] == OTHERS
    assert sum(count for _, count in told) == sum(count for _, count in rows)
    assert most(rows[:3]) == rows[:3]
