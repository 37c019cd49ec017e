"""What view and invariants know of cleaned logs, slaves that are set up again, transient pools and bits that flip."""

from __future__ import annotations

import pytest

from rmq_actors.testing.lineage import Lineage
from rmq_actors.wire.record import Message, encode_message
from tests.worlds.cluster_story import MASTER, OTHER, SLAVE, Story, halt

RECORDS = [b"first.", b"second", b"third."]
BEGIN, END = 12, 18


@pytest.fixture
def cleaned() -> Story:
    """Three records of 6 bytes; the master has deleted the first two, a slave has the first, the other one nothing."""
    story = Story()
    for record in RECORDS:
        story.append(MASTER, record)
    story.append(SLAVE, RECORDS[0])
    for offset in (6, BEGIN):
        story.emit(MASTER, "log.delete", offset=offset)
    return story


def begin(story: Story, node: str, offset: int, data: bytes) -> None:
    """Its log, of which there is nothing, begins at `offset`."""
    story.logs[node] = bytearray(offset) + data
    story.emit(node, "log.append", offset=offset, size=len(data))


@pytest.mark.parametrize(("offset", "record"), [(6, RECORDS[1] + RECORDS[2]), (BEGIN, RECORDS[2])])
def test_a_new_slave_begins_where_the_masters_log_does_or_has(cleaned: Story, offset: int, record: bytes) -> None:
    begin(cleaned, OTHER, offset, record)
    cleaned.emit(OTHER, "node.kill")
    cleaned.emit(OTHER, "store.open", offset=END, status="clean")
    assert (cleaned.seen, cleaned.view.nodes[OTHER].end) == ([], END)


@pytest.mark.parametrize(("node", "offset"), [(OTHER, 8), (SLAVE, BEGIN), (MASTER, 6)])
def test_prefix_a_log_begins_elsewhere(cleaned: Story, node: str, offset: int) -> None:
    """Not where the master's never did, nor if there is something of it already, nor the master's own."""
    begin(cleaned, node, offset, RECORDS[2])
    assert cleaned.seen == ["prefix"]


def test_prefix_other_bytes_of_a_log_that_begins_late(cleaned: Story) -> None:
    begin(cleaned, OTHER, BEGIN, b"thirt.")
    assert cleaned.seen == ["prefix"]


@pytest.mark.parametrize(("left", "seen"), [(0, []), (END, []), (BEGIN + 3, ["survival"])])
def test_of_a_log_that_begins_late_nothing_may_be_left(cleaned: Story, left: int, seen: list[str]) -> None:
    begin(cleaned, OTHER, BEGIN, RECORDS[2])
    cleaned.emit(OTHER, "node.power_loss")
    cleaned.emit(OTHER, "store.open", offset=left, status="clean")
    assert cleaned.seen == seen


def test_survival_a_log_that_begins_late_and_was_synced_is_lost(cleaned: Story) -> None:
    begin(cleaned, OTHER, BEGIN, RECORDS[2])
    cleaned.emit(OTHER, "log.flush", offset=END)
    cleaned.emit(OTHER, "node.power_loss")
    cleaned.emit(OTHER, "store.open", offset=0, status="clean")
    assert cleaned.seen == ["survival"]


@pytest.mark.parametrize("death", ["node.kill", "node.power_loss"])
def test_survival_a_log_that_began_late_has_begun_at_0_since(cleaned: Story, death: str) -> None:
    """The master's removals were undone, by a power loss of its own."""
    begin(cleaned, OTHER, BEGIN, RECORDS[2])
    cleaned.lose_power(OTHER, 0)
    cleaned.append(OTHER, RECORDS[0])
    cleaned.emit(OTHER, "log.flush", offset=6)
    assert cleaned.seen == []
    cleaned.logs[OTHER][2] ^= 1
    cleaned.emit(OTHER, death)
    cleaned.emit(OTHER, "store.open", offset=0, status="clean")
    assert cleaned.seen == ["survival"]


def test_who_needs_what_is_gone_is_set_up_anew(cleaned: Story) -> None:
    assert [cleaned.view.needs_what_is_gone(cleaned.view.nodes[node]) for node in (MASTER, SLAVE, OTHER)] == [
        False,
        True,
        False,
    ]
    cleaned.emit(SLAVE, "operator.set_up_anew")
    cleaned.emit(SLAVE, "store.open", offset=0, status="clean")
    begin(cleaned, SLAVE, BEGIN, RECORDS[2])
    begin(cleaned, OTHER, BEGIN, RECORDS[2])
    assert not any(cleaned.view.needs_what_is_gone(cleaned.view.nodes[node]) for node in (MASTER, SLAVE, OTHER))
    cleaned.end()
    assert cleaned.seen == []


def test_what_is_compared_at_the_end_is_what_is_left(cleaned: Story) -> None:
    for node in (SLAVE, OTHER):
        cleaned.emit(node, "operator.set_up_anew")
        begin(cleaned, node, BEGIN, RECORDS[2])
    cleaned.logs[MASTER][:BEGIN] = bytes(BEGIN)
    cleaned.end()
    assert cleaned.seen == []
    cleaned.logs[MASTER][BEGIN] ^= 1
    cleaned.end()
    assert cleaned.seen == ["convergence"]


# Bits that flip.


@pytest.fixture
def rotten() -> Story:
    """A bit has flipped in the second of three records of a slave that has synced them."""
    story = Story(sync_flush=(SLAVE,))
    for node in (MASTER, SLAVE):
        for record in RECORDS:
            story.append(node, record)
    story.emit(SLAVE, "log.flush", offset=END)
    story.logs[SLAVE][8] ^= 1
    story.rot(SLAVE, 8)
    return story


def test_a_bit_that_has_flipped_is_no_difference(rotten: Story) -> None:
    rotten.emit(SLAVE, "node.kill")
    rotten.emit(SLAVE, "store.open", offset=END, status="clean")
    assert (rotten.seen, bool(rotten.view.nodes[SLAVE].rotten), bool(rotten.view.nodes[MASTER].rotten)) == (
        [],
        True,
        False,
    )


@pytest.mark.parametrize("node", [SLAVE, MASTER])
def test_survival_another_byte_differs(rotten: Story, node: str) -> None:
    rotten.logs[node][9 if node == SLAVE else 8] ^= 1
    rotten.emit(node, "node.kill")
    assert rotten.seen == ["survival"]


@pytest.mark.parametrize("path", ["index/20201122", "cut/00000000000000000000.1"])
def test_survival_the_bit_was_of_another_file(path: str) -> None:
    story = Story()
    story.append(MASTER, RECORDS[0])
    story.append(SLAVE, RECORDS[0])
    story.rot(SLAVE, 2, path)
    story.logs[SLAVE][2] ^= 1
    story.emit(SLAVE, "node.kill")
    assert story.seen == ["survival"]


@pytest.mark.parametrize(("end", "seen"), [(6, []), (END, []), (0, ["survival"]), (12, ["survival"])])
def test_a_log_may_end_before_the_damaged_record_alone(rotten: Story, end: int, seen: list[str]) -> None:
    rotten.emit(SLAVE, "node.power_loss")
    del rotten.logs[SLAVE][end:]
    rotten.emit(SLAVE, "store.open", offset=end, status="torn_tail_cut")
    assert rotten.seen == seen


def test_a_damaged_log_that_was_to_be_cut_ends_before_the_damage_and_keeps_nothing(rotten: Story) -> None:
    """The start that the truncation begins with ends the log there."""
    halt(rotten, SLAVE, master="10.0.0.1")
    rotten.emit(SLAVE, "node.kill")
    del rotten.logs[SLAVE][6:]
    rotten.emit(SLAVE, "store.open", offset=6, status="torn_tail_cut")
    assert rotten.seen == []


@pytest.mark.parametrize(("end", "seen"), [(6, []), (0, []), (12, ["survival"])])
def test_where_its_first_record_is_damaged_a_log_begins_and_ends_there_or_again_at_0(
    rotten: Story, end: int, seen: list[str]
) -> None:
    rotten.emit(SLAVE, "log.delete", offset=6)
    rotten.emit(SLAVE, "node.power_loss")
    del rotten.logs[SLAVE][end:]
    rotten.emit(SLAVE, "store.open", offset=end, status="torn_tail_cut")
    assert rotten.seen == seen


def test_what_came_again_behind_the_damage_counts_once_it_is_synced(rotten: Story) -> None:
    rotten.lose_power(SLAVE, 6)
    for record in RECORDS[1:]:
        rotten.append(SLAVE, record)
    rotten.lose_power(SLAVE, 12)
    assert rotten.seen == []
    rotten.append(SLAVE, RECORDS[2])
    rotten.emit(SLAVE, "log.flush", offset=END)
    rotten.lose_power(SLAVE, 12)
    assert rotten.seen == ["survival"]


def test_who_is_set_up_anew_has_no_damage(rotten: Story) -> None:
    rotten.emit(SLAVE, "operator.set_up_anew")
    assert not bool(rotten.view.nodes[SLAVE].rotten)


@pytest.mark.parametrize(("had", "seen"), [(END, []), (END + 1, ["ack"])])
def test_what_a_slave_had_may_be_answered_when_its_damaged_log_has_ended(
    rotten: Story, had: int, seen: list[str]
) -> None:
    """Its report was under way."""
    rotten.emit(MASTER, "log.flush", offset=END)
    rotten.emit(MASTER, "put.begin", msg_id=1, offset=BEGIN, size=had - BEGIN)
    rotten.emit(SLAVE, "node.kill")
    del rotten.logs[SLAVE][6:]
    rotten.emit(SLAVE, "store.open", offset=6, status="torn_tail_cut")
    rotten.answer(1, had)
    assert rotten.seen == seen


def encoded(body: bytes) -> bytes:
    return bytes(encode_message(Message("Topic", body)).data)


def test_damage_that_a_checksum_covers() -> None:
    record = encoded(b"the body")
    body = record.index(b"the body")
    for offset, is_covered in ((body - 1, False), (body, True), (body + 7, True), (body + 8, False), (0, False)):
        story = Story()
        for node in (MASTER, SLAVE):
            story.append(node, record)
        story.logs[SLAVE][offset] ^= 0x80
        story.rot(SLAVE, offset)
        assert story.view.damaged_bodies(story.view.nodes[SLAVE]) == ([offset] if is_covered else [])
        story.logs[SLAVE][offset] ^= 0x80  # it was written again
        assert story.view.damaged_bodies(story.view.nodes[SLAVE]) == []


# Pools.


def test_a_commit_of_a_pool_is_several_records() -> None:
    first, second = encoded(b"a"), encoded(b"another")
    lineage = Lineage()
    lineage.append(first + second)
    lineage.append(first)
    assert [lineage.whole_records(end) for end in (len(first) - 1, len(first), len(lineage.log) - 1)] == [
        0,
        len(first),
        len(first) + len(second),
    ]
    assert lineage.log == first + second + first
