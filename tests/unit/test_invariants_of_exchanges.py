"""What brokers must do, and must not, while they exchange their roles, or are given one."""

from __future__ import annotations

import pytest

from rmq_actors.protocols.exchange import OVERRULED
from rmq_actors.testing.invariants import Commands, Exchanges, TablesKept
from tests.worlds.cluster_story import MASTER, SLAVE, Story


@pytest.fixture
def story() -> Story:
    story = Story()
    story.watch(Exchanges)
    return story


def step(story: Story, effect: str, status: str = "promote") -> None:
    story.emit(MASTER, "broker.exchange", status=status, attributes={"effect": effect})


def say(story: Story, status: str) -> None:
    story.emit(SLAVE, "broker.exchange_partner", status=status)


def test_a_put_is_taken_until_there_is_a_note_and_again_once_it_is_gone(story: Story) -> None:
    step(story, "WriteNote", "note")
    story.put(0, b"abc")  # the disk has not taken the note yet
    story.notes.add(MASTER)
    step(story, "Promote")
    step(story, "RemoveNote", "take_back")
    story.notes.clear()
    step(story, "Unfence", "take_back")
    story.put(1, b"abc")
    assert story.seen == []


@pytest.mark.parametrize(
    ("part", "status", "seen"),
    [
        ("topics", "ok", ["exchanges"]),
        ("subscription_groups", "ok", ["exchanges"]),
        ("topics", "TableFenced", []),
        ("consumer_offsets", "ok", []),
    ],
)
def test_nothing_is_made_that_the_next_master_may_lack(story: Story, part: str, status: str, seen: list[str]) -> None:
    story.emit(MASTER, "client.table", status="ok", attributes={"part": part, "entry": "before"})
    story.notes.add(MASTER)
    step(story, "Promote")
    story.emit(MASTER, "client.table", status=status, attributes={"part": part, "entry": "made"})
    assert story.seen == seen
    story.notes.clear()
    step(story, "Unfence", "take_back")
    story.emit(MASTER, "client.table", status="ok", attributes={"part": part, "entry": "after"})
    assert story.seen == seen


def test_who_starts_with_a_note_takes_no_put(story: Story) -> None:
    story.notes.add(MASTER)
    story.emit(MASTER, "store.open", offset=0, status="recovered")
    story.put(0, b"abc")
    assert story.seen == ["exchanges"]


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        (["ready", "is_promoted"], []),
        (["ready", "ready", "is_promoted", "ready", "is_promoted"], []),
        (["waits", "is_promoted"], ["exchanges"]),
        (["ready", "is_promoted", "refuses", "is_promoted"], ["exchanges"]),
    ],
)
def test_a_slave_is_promoted_once_for_each_time_that_it_was_ready(
    story: Story, said: list[str], seen: list[str]
) -> None:
    for each in said:
        say(story, each)
    assert story.seen == seen


def test_a_slave_that_has_opened_its_store_again_is_not_ready_any_more(story: Story) -> None:
    say(story, "ready")
    story.emit(SLAVE, "store.open", offset=0, status="clean")
    say(story, "is_promoted")
    assert story.seen == ["exchanges"]


@pytest.mark.parametrize(
    ("status", "role", "asks", "seen"),
    [
        ("changed", "SYNC_MASTER", True, []),
        ("changed", "SYNC_MASTER", False, ["tables_kept"]),
        ("changed", "SLAVE", False, []),
        ("reopened", "SYNC_MASTER", False, []),
    ],
)
def test_a_slave_asks_for_tables_once_more_before_it_becomes_the_master(
    *, status: str, role: str, asks: bool, seen: list[str]
) -> None:
    story = Story()
    story.watch(TablesKept)
    if asks:
        story.take_table(SLAVE, set(), actor="LastRound")
    story.emit(SLAVE, "broker.role", status=status, offset=0, attributes={"role": role})
    assert story.seen == seen


def command(story: Story, status: str) -> None:
    story.now_s += 0.1
    story.emit(MASTER, "operator.role", status=status, attributes={"role": "SLAVE"})


def change_role(story: Story) -> None:
    story.now_s += 0.1
    story.emit(MASTER, "broker.role", status="changed", offset=0, attributes={"role": "SLAVE"})


@pytest.mark.parametrize(
    ("answer", "seen"), [("refused", ["commands"]), ("unwritten", ["commands"]), ("done", []), ("failed", [])]
)
def test_a_command_that_is_not_done_changes_no_role(answer: str, seen: list[str]) -> None:
    story = Story()
    story.watch(Commands)
    command(story, "asked")
    change_role(story)
    command(story, answer)
    assert story.seen == seen


def test_another_command_may_have_changed_the_role_and_so_may_an_exchange() -> None:
    story = Story()
    story.watch(Commands)
    command(story, "asked")
    command(story, "asked")
    change_role(story)
    command(story, "done")
    command(story, "refused")
    step(story, "StepDown", "step_down")
    command(story, "asked")
    change_role(story)
    command(story, "refused")
    assert story.seen == []


def test_an_exchange_may_begin_at_the_instant_in_which_one_command_is_done_and_another_comes() -> None:
    story = Story()
    story.watch(Commands)
    command(story, "asked")
    command(story, "asked")
    story.now_s -= 0.1
    command(story, "done")
    step(story, "Check", "check")
    command(story, "done")
    assert story.seen == []


def test_an_exchange_that_began_while_a_command_was_under_way_is_seen_whatever_begins_later() -> None:
    story = Story()
    story.watch(Commands)
    command(story, "asked")
    story.now_s += 0.1
    step(story, "Check", "check")
    story.emit(MASTER, "broker.exchange", status="ended", detail="")
    story.now_s += 0.1
    step(story, "Check", "check")  # at the instant in which the command is answered
    story.now_s -= 0.1
    command(story, "done")
    assert story.seen == ["commands"]


@pytest.mark.parametrize(("answer", "seen"), [("refused", ["commands"]), ("unwritten", []), ("done", [])])
def test_a_command_that_is_refused_gives_up_no_exchange(answer: str, seen: list[str]) -> None:
    story = Story()
    story.watch(Commands)
    step(story, "Prepare", "prepare")
    command(story, "asked")
    peer = {"network.peer.address": "10.0.0.2:10911"}
    story.emit(MASTER, "broker.exchange", status="ended", attributes={"detail": OVERRULED, **peer})
    command(story, answer)
    assert story.seen == seen


@pytest.mark.parametrize(("later_s", "seen"), [(0.0, []), (0.05, ["commands"])])
@pytest.mark.parametrize("commands", [1, 2])
@pytest.mark.parametrize("ends", [False, True])
def test_no_exchange_begins_while_the_role_is_set(
    later_s: float, seen: list[str], commands: int, *, ends: bool
) -> None:
    """At the instant at which the command comes the exchange may have been begun before it."""
    story = Story()
    story.watch(Commands)
    command(story, "asked")
    story.now_s += later_s
    step(story, "Check", "check")
    if ends:
        step(story, "not_exchanged", "ended")
    for _ in range(commands - 1):
        command(story, "asked")
        command(story, "done")
    command(story, "done")
    assert story.seen == seen


def test_a_process_that_has_died_has_no_command_under_way() -> None:
    story = Story()
    story.watch(Commands)
    command(story, "asked")
    story.emit(MASTER, "node.boot")
    step(story, "Check", "check")
    command(story, "asked")
    command(story, "refused")
    assert story.seen == []
