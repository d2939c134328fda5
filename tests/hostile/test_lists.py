"""Every list of every API, with names that exist, that do not, one repeated, null and empty: others are served."""

from __future__ import annotations

import pytest

from kafkalite.broker.handlers.table import ROWS, find
from kafkalite.wire.protocol import header
from tests.hostile.bounds import ITEMS, PIPELINED, SAMPLE_ITEMS, WAIT_S
from tests.hostile.conftest import POPULACE, Scene
from tests.kit.harness.samples import sample
from tests.kit.hostile.flood import Flood
from tests.kit.hostile.requests import (
    CLIENT_ID,
    EMPTY,
    EXISTING,
    KINDS,
    NULL,
    REPEATED,
    UNKNOWN,
    ListAttack,
    attacks_named,
    inline_items,
    list_attacks,
    whole_requests,
)

CONNECTIONS = 4
REQUESTS = 2
SAMPLE = {attack.key: attack for attack in reversed(list_attacks())}
"""The first list of each API."""
PIPELINED_SAMPLE = ("Metadata.topics/name", "OffsetFetch.groups/group_id", "DescribeConfigs.resources", "DeleteGroups")


def by_id(attack: ListAttack) -> str:
    return attack.id


def decoded(attack: ListAttack, names: str, count: int) -> object:
    """Return the request that the broker decodes from an attack's frame, down to the attacked list."""
    frame = attack.frame(names, count, POPULACE)
    head = header.decode_request_header(memoryview(frame)[4:])
    row = find(head.api_key)
    assert row is not None
    assert row.serves(head.api_version)
    assert head.client_id == CLIENT_ID
    found = row.decode(head.api_version, frame[4 + head.body_position :])
    for name in attack.path[:-1]:
        (found,) = getattr(found, name)
    return getattr(found, attack.path[-1])


@pytest.mark.parametrize("attack", list_attacks(), ids=by_id)
def test_a_frame_holds_as_many_names_as_it_says(attack: ListAttack) -> None:
    for names in (EXISTING, UNKNOWN, REPEATED):
        found = decoded(attack, names, 30)
        assert isinstance(found, list)
        assert len(found) == 30
        if names == REPEATED:
            assert all(item == found[0] for item in found)
    assert decoded(attack, EMPTY, 30) == []
    if attack.nullable:
        assert decoded(attack, NULL, 30) is None


def test_each_api_with_a_list_is_attacked_and_each_naming_field_has_a_kind() -> None:
    lists = {row.key for row in ROWS if any("[]" in kind for kind in kinds_of(row.key))}
    assert {attack.key for attack in list_attacks()} == lists
    named = {attack.identity or attack.path[-1] for attack in list_attacks()}
    assert named - KINDS.keys() == {"entries"}, "of AlterClientQuotas, whose entries are named by a list in them"


def kinds_of(key: int) -> list[str]:
    """Kinds of the fields of an API's requests, of any version."""
    from kafkalite.wire import protocol

    row = find(key)
    assert row is not None
    return [fields[1] for fields in protocol.request_program(key, row.newest).message.FIELDS]


def attack_list(
    scene: Scene, attack: ListAttack, names: str, count: int, in_flight: int = 1, requests: int = REQUESTS
) -> None:
    """Floods with it; each request has to be answered."""
    frame = attack.frame(names, count, POPULACE)
    requests = requests if in_flight == 1 else in_flight
    flood = Flood(scene.broker.port, [frame], connections=CONNECTIONS, in_flight=in_flight)
    attacked = scene.endure(flood, WAIT_S, requests)
    assert attacked["closed"] == 0, scene.broker.log()[-2000:]
    assert attacked["answered"] >= CONNECTIONS * requests


@pytest.mark.parametrize("attack", sample(SAMPLE.values(), 8), ids=by_id)
def test_some_names(scene: Scene, attack: ListAttack) -> None:
    attack_list(scene, attack, EXISTING, SAMPLE_ITEMS)


@pytest.mark.parametrize("attack", attacks_named(PIPELINED_SAMPLE[:1]), ids=by_id)
@pytest.mark.parametrize("names", [UNKNOWN, REPEATED, NULL, EMPTY])
def test_unknown_and_repeated_names_null_and_empty_lists(scene: Scene, attack: ListAttack, names: str) -> None:
    attack_list(scene, attack, names, SAMPLE_ITEMS)


@pytest.mark.parametrize("attack", sample(attacks_named(PIPELINED_SAMPLE), 2), ids=by_id)
def test_pipelined_requests_just_below_what_is_long(scene: Scene, attack: ListAttack) -> None:
    count = inline_items(attack, POPULACE)
    attack_list(scene, attack, UNKNOWN, count, in_flight=PIPELINED // 5)


@pytest.mark.slow
@pytest.mark.parametrize("attack", list_attacks(), ids=by_id)
def test_many_names(own_scene: Scene, attack: ListAttack) -> None:
    for names in (EXISTING, UNKNOWN, REPEATED):
        attack_list(own_scene, attack, names, ITEMS, requests=1)


@pytest.mark.slow
@pytest.mark.parametrize("attack", list_attacks(), ids=by_id)
def test_a_thousand_pipelined(own_scene: Scene, attack: ListAttack) -> None:
    count = inline_items(attack, POPULACE)
    attack_list(own_scene, attack, EXISTING, count, in_flight=PIPELINED)
    for names in (NULL, EMPTY):
        if names in attack.kinds_of_names():
            attack_list(own_scene, attack, names, 0, in_flight=PIPELINED)


@pytest.mark.parametrize("name", sample(whole_requests(), 1))
def test_requests_for_everything(scene: Scene, name: str) -> None:
    flood = Flood(scene.broker.port, [whole_requests()[name]], connections=CONNECTIONS, in_flight=10)
    assert scene.endure(flood, WAIT_S, 10)["answered"] >= CONNECTIONS * 10
