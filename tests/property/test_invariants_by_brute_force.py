"""Each invariant says the same of small histories as a simple look at the whole history does.

What is simple here asks the recorded steps each time again, and knows nothing of views, lineages or marks.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.testing.invariants import REPLICATION_INVARIANTS
from rmq_actors.tracing.event import Event
from rmq_actors.tracing.events.broker import BrokerSlaveSynchronize
from rmq_actors.tracing.events.ha import HaClientReport, HaReplicated, HaReport, HaTransfer
from rmq_actors.tracing.events.run import ClientRead, ClientTable, OperatorPromote
from rmq_actors.tracing.events.store import LogAppend, LogFlush, LogTruncate, PutBegin, PutEnd, StoreOpen
from tests.property.told_histories import GROUP, SLAVES, Act, Step, Telling, acts, numbers_in
from tests.worlds.cluster_story import ADDRESSES, MASTER, OTHER, SLAVE

BY_NAME = {each.name: each for each in REPLICATION_INVARIANTS}
#: A step's number for the end of the run.
AT_END = 10**9
Steps = Sequence[Step]


def play(history: Sequence[Act], name: str, *, acks: int = 1, sync: Sequence[str] = ()) -> Telling:
    """What happened, to its end, looked at by one invariant."""
    story = Telling(acks=acks, sync_flush=tuple(sync), takes_parts=name != "whole")
    story.watch(BY_NAME[name])
    for number, address in enumerate(("10.0.0.2", "10.0.0.3"), 1):
        story.connect(number, address)
    for act in history:
        story.act(act)
    story.end()
    return story


def told(history: Sequence[Act], name: str, *, acks: int = 1, sync: Sequence[str] = ()) -> tuple[Steps, int | None]:
    """What happened, and at which step the invariant broke."""
    story = play(history, name, acks=acks, sync=sync)
    if not story.broken:
        return story.steps, None
    seq = story.broken[0].seq
    at = next((number for number, step in enumerate(story.steps) if step.event.seq == seq), AT_END)
    return story.steps, AT_END if seq == 99 else at


# --- what was so at a step, by a look at all before it ----------------------------------------------------------------


def end_of(steps: Steps, at: int, node: str) -> int:
    """Where the node's log ended before that step."""
    for step in reversed(steps[:at]):
        event = step.event
        if event.node == node and isinstance(event, LogAppend):
            return event.offset + event.size
        if event.node == node and isinstance(event, StoreOpen | LogTruncate):
            return event.offset
    return 0


def most(steps: Steps, at: int, node: str) -> int:
    """The most that it ever had before that step."""
    return max(end_of(steps, number, node) for number in range(at + 1))


def written(steps: Steps, at: int) -> bytes:
    """What the master has written until then, whatever its page cache says: the bytes as they were appended."""
    log = b""
    for step in steps[: at + 1]:
        if step.is_of("log.append", MASTER) and isinstance(step.event, LogAppend):
            log += step.logs[MASTER][step.event.offset : step.event.offset + step.event.size]
    return log


def boundaries(steps: Steps, at: int) -> set[int]:
    """Where a record ends."""
    ends = [end_of(steps, number, MASTER) for number in range(at + 2)]
    return {0, *ends}


def synced(steps: Steps, at: int, node: str) -> int:
    """How far it had synced in its life."""
    for step in reversed(steps[:at]):
        event = step.event
        if event.node == node and isinstance(event, LogFlush):
            return event.offset
        if event.node == node and isinstance(event, StoreOpen):
            return 0
    return 0


def durable(steps: Steps, at: int, node: str) -> int:
    """What no power loss could take: the most that it synced of what it still had."""
    least = 0
    for number, step in enumerate(steps[:at]):
        event = step.event
        if event.node == node and isinstance(event, LogFlush):
            least = max(least, event.offset)
        if event.node == node and isinstance(event, StoreOpen):
            least = min(least, end_of(steps, number + 1, node))
    return least


# --- the invariants, simply -------------------------------------------------------------------------------------------

Check = Callable[[Steps, int, Any, int, Sequence[str]], bool]


def prefix(steps: Steps, at: int, event: Event, _: int, __: Sequence[str]) -> bool:
    """Whether it is broken by this step; so are all of these."""
    if not isinstance(event, LogAppend):
        return False
    end = event.offset + event.size
    return event.offset != end_of(steps, at, event.node) or (
        steps[at].logs[event.node][event.offset : end] != written(steps, at)[event.offset : end]
    )


def whole(steps: Steps, at: int, event: Event, _: int, __: Sequence[str]) -> bool:
    return (
        isinstance(event, LogAppend) and event.node != MASTER and event.offset + event.size not in boundaries(steps, at)
    )


def report(steps: Steps, at: int, event: Event, _: int, __: Sequence[str]) -> bool:
    if isinstance(event, HaClientReport):
        return event.offset > end_of(steps, at, event.node)
    return isinstance(event, HaReport) and event.offset > most(steps, at, SLAVES[event.conn_id - 1])


def replicated(steps: Steps, at: int, event: Event, acks: int, __: Sequence[str]) -> bool:
    if not isinstance(event, HaReplicated):
        return False
    return sum(most(steps, at, slave) >= event.offset for slave in SLAVES) < max(1, acks)


def ack(steps: Steps, at: int, event: Event, acks: int, sync: Sequence[str]) -> bool:
    if not isinstance(event, PutEnd) or event.status != "PUT_OK":
        return False
    had = [(end_of if slave in sync else most)(steps, at, slave) for slave in SLAVES]
    return sum(each >= event.offset for each in had) < acks


def sync_flush(steps: Steps, at: int, event: Event, _: int, sync: Sequence[str]) -> bool:
    if event.node not in sync:
        return False
    if isinstance(event, HaTransfer):
        return event.offset + event.size > synced(steps, at, event.node)
    says = isinstance(event, HaClientReport) or (isinstance(event, PutEnd) and event.status == "PUT_OK")
    return says and getattr(event, "offset", 0) > synced(steps, at, event.node)


def survival(steps: Steps, at: int, event: Event, _: int, __: Sequence[str]) -> bool:
    log, found = written(steps, at), steps[at].logs.get(event.node, b"")
    if steps[at].is_of("node.kill"):
        end = end_of(steps, at, event.node)
        return found[:end] != log[:end]
    if not isinstance(event, StoreOpen):
        return False
    before = end_of(steps, at, event.node)
    if steps[at - 1].is_of("node.power_loss", event.node):
        before = durable(steps, at - 1, event.node)
    ends = boundaries(steps, at)
    least = max(end for end in ends if end <= before)
    return not least <= event.offset or event.offset not in ends or found[: event.offset] != log[: event.offset]


def answer(steps: Steps, at: int, event: Event, _: int, __: Sequence[str]) -> bool:
    if not isinstance(event, PutEnd):
        return False
    begun = next(
        n for n, step in enumerate(steps) if isinstance(step.event, PutBegin) and step.event.msg_id == event.msg_id
    )
    waited_s, is_paused = 0.0, False
    for number in range(at + 1):
        step = steps[number]
        if number > begun and not is_paused:
            waited_s += step.now_s - steps[number - 1].now_s
        is_paused = (is_paused or step.is_of("node.pause")) and not step.is_of("node.resume")
    return waited_s > 3.0 + 1e-9


STEPWISE: Mapping[str, tuple[Check, Sequence[str]]] = {
    "prefix": (prefix, ("write", "write", "copy", "copy", "copy", "spoil", "leap", "kill")),
    "whole": (whole, ("write", "write", "copy", "copy", "copy")),
    "report": (report, ("write", "write", "copy", "copy", "tell", "arrive", "kill", "lose")),
    "replicated": (replicated, ("write", "write", "copy", "copy", "copy", "replicate", "lose")),
    "ack": (ack, ("write", "write", "copy", "copy", "copy", "reply", "reply", "lose")),
    "synced": (sync_flush, ("write", "copy", "copy", "flush", "flush", "tell", "send", "reply", "kill")),
    "survival": (survival, ("write", "write", "copy", "copy", "copy", "flush", "flip", "kill", "lose")),
    "answer": (answer, ("write", "write", "reply", "wait", "wait", "pause", "resume")),
}
#: After one of these is broken the view knows of another log than page caches do.
OF_THE_LOG = ("prefix", "survival")


def first(check: Check, steps: Steps, acks: int, sync: Sequence[str]) -> int | None:
    numbers = (number for number, step in enumerate(steps) if check(steps, number, step.event, acks, sync))
    return next(numbers, None)


@pytest.mark.parametrize("name", STEPWISE)
@given(data=st.data())
def test_it_is_broken_at_the_same_step(name: str, data: st.DataObject) -> None:
    check, names = STEPWISE[name]
    history = data.draw(acts(*names))
    acks, sync = (
        data.draw(st.integers(0, 2)),
        data.draw(st.sampled_from([(), (MASTER,), (SLAVE, OTHER), (MASTER, SLAVE)])),
    )
    steps, broken = told(history, name, acks=acks, sync=sync)
    expected = first(check, steps, acks, sync)
    others = [first(STEPWISE[other][0], steps, acks, sync) for other in OF_THE_LOG if other != name]
    unknown_from = min([number for number in others if number is not None], default=AT_END)
    assert _before(broken, unknown_from) == _before(expected, unknown_from)


def _before(number: int | None, limit: int) -> int | None:
    return None if number is None or number >= limit else number


@given(acts("write", "write", "copy", "copy", "copy", "flip"))
def test_logs_are_equal_in_the_end(history: list[Act]) -> None:
    story = play(history, "convergence")
    log = written(story.steps, len(story.steps) - 1)
    assert (not story.broken) is all(found == log for found in story.logs.values())


def consumer_offsets(steps: Steps, at: int, event: Event, _: int, __: Sequence[str]) -> bool:
    if not isinstance(event, BrokerSlaveSynchronize):
        return False
    for step in reversed(steps[:at]):
        if step.event.node == event.node and isinstance(step.event, StoreOpen):
            return False
        if step.event.node == event.node and isinstance(step.event, BrokerSlaveSynchronize):
            return steps[at].offsets[event.node] < step.offsets[event.node]
    return False


def queue_offsets(steps: Steps, at: int, event: Event, _: int, __: Sequence[str]) -> bool:
    if not isinstance(event, LogAppend) or event.node != dict(masters(steps))[at]:
        return False
    *before, number = numbers_in(steps[at].logs[event.node])
    return number != (before[-1] + 1 if before else 0)


@pytest.mark.parametrize(
    ("check", "names"),
    [(consumer_offsets, ("commit", "commit", "forget")), (queue_offsets, ("number", "number", "copy_all", "lead"))],
    ids=["consumer_offsets", "queue_offsets"],
)
@given(data=st.data())
def test_numbers_go_on_or_not(check: Check, names: Sequence[str], data: st.DataObject) -> None:
    name = "consumer_offsets" if check is consumer_offsets else "queue_offsets"
    history = [("lead", 0, 1), *data.draw(acts(*names))]
    steps, broken = told(history, name)
    assert broken == first(check, steps, 1, ())


@given(acts("number", "number", "copy_all", "get", "get", "get", "lead"))
def test_a_consumer_reads_what_it_should_or_not(history: list[Act]) -> None:
    steps, broken = told([("lead", 0, 1), *history], "read")
    assert broken == next((number for number in range(len(steps)) if _is_read_wrongly(steps, number)), None)


def _is_read_wrongly(steps: Steps, at: int) -> bool:
    event = steps[at].event
    if not isinstance(event, ClientRead):
        return False
    log = steps[at].logs[event.node]
    is_there = zlib.crc32(log[event.offset : event.offset + event.size]) == event.checksum
    if event.status != "as_sent" or event.queue_offset != event.expected or not is_there:
        return True
    # What was read there last, if the master's log still has it.
    before = [step for step in steps[:at] if isinstance(step.event, ClientRead)]
    same = [step for step in before if getattr(step.event, "queue_offset", -1) == event.queue_offset]
    if not same or not isinstance(same[-1].event, ClientRead):
        return False
    end = same[-1].event.offset + same[-1].event.size
    return same[-1].event.offset != event.offset and log.startswith(same[-1].logs[same[-1].event.node][:end])


@given(acts("make", "make", "take", "take", "take", "lead", "commit"))
def test_tables_are_equal_in_the_end(history: list[Act]) -> None:
    story = play(history, "tables_equal")
    asked = {step.event.entry for step in story.steps if isinstance(step.event, ClientTable)}
    tables = {node: story.tables.get((node, "topics"), set()) & asked for node in story.logs}
    offsets = {node: story.offsets.get(node, {}).get(GROUP, {0: -1})[0] for node in story.logs}
    master = story.master
    is_equal = all(
        tables[node] == tables[master] and (offsets[master] < 0 or offsets[node] >= offsets[master])
        for node in story.slaves
    )
    has_asked = any(isinstance(step.event, ClientTable) for step in story.steps)
    assert (not story.broken) is (is_equal or not has_asked)


# --- with other masters ---------------------------------------------------------------------------------------------


def masters(steps: Steps) -> Iterator[tuple[int, str]]:
    """Each step's number, and the master by then."""
    master = MASTER
    for number, step in enumerate(steps):
        if isinstance(step.event, OperatorPromote):
            master = step.event.node
        yield number, master


@given(acts("write", "write", "copy", "copy", "copy", "reply", "reply", "lead", "part", "lose", "kill", most=20))
def test_what_was_acknowledged_is_lost_or_not(history: list[Act]) -> None:
    steps, broken = told(history, "acknowledged")
    assert broken == _lost(steps)


def _lost(steps: Steps) -> int | None:
    """The step at which a put is lost that a node must have."""
    puts: list[tuple[bytes, set[str]]] = []
    before = MASTER
    for number, master in masters(steps):
        step, event = steps[number], steps[number].event
        if isinstance(event, PutEnd) and event.status == "PUT_OK":
            data = step.logs[master][: event.offset]
            puts.append((data, {node for node, log in step.logs.items() if log.startswith(data)}))
        if isinstance(event, StoreOpen) and number and steps[number - 1].is_of("node.power_loss"):
            for data, holders in puts:
                if len(step.logs[event.node]) < len(data):
                    holders.discard(event.node)
        if isinstance(event, OperatorPromote):
            log = step.logs[before]
            following = {node for node, own in step.logs.items() if node != before and log.startswith(own)}
            for data, holders in puts:
                is_his = log.startswith(data) and bool(holders & following)
                if event.status == "longest" and is_his and not step.logs[master].startswith(data):
                    return number
            before = master
    last = steps[-1] if steps else None
    for data, holders in puts:
        if holders and last is not None and not any(log.startswith(data) for log in last.logs.values()):
            return AT_END if not _is_kept(data, steps) else None
    return None


def _is_kept(data: bytes, steps: Steps) -> bool:
    """Whether a truncation has taken the end of it: that what it took is kept is another invariant."""
    return any(
        isinstance(step.event, LogTruncate) and steps[number - 1].logs[step.event.node].startswith(data)
        for number, step in enumerate(steps)
    )


@given(acts("make", "make", "take", "take", "take", "lead", "forget", "copy", most=16))
def test_topics_are_kept_or_not(history: list[Act]) -> None:
    steps, broken = told(history, "tables_kept")
    assert broken == _topics_lost(steps)


def _topics_lost(steps: Steps) -> int | None:
    """The step at which a topic is lost that was acknowledged, and that no promotion has left behind."""
    master_at = dict(masters(steps))
    has_begun = next((number for number, step in enumerate(steps) if isinstance(step.event, ClientTable)), AT_END)
    seen_at = [number for number in range(len(steps)) if _is_looked_at(steps, number, has_begun)]

    def seen(node: str, at: int) -> frozenset[str]:
        """What it had when it was looked at last, before a step."""
        looks = [number for number in seen_at if number < at and steps[number].event.node == node]
        return steps[looks[-1]].topics[node] if looks else frozenset()

    acknowledged: dict[str, int] = {}
    for number in range(len(steps)):
        event, node = steps[number].event, steps[number].event.node
        if isinstance(event, OperatorPromote):
            acknowledged = {topic: at for topic, at in acknowledged.items() if topic in seen(node, number)}
        if number not in seen_at:
            continue
        now = steps[number].topics[node]
        if isinstance(event, ClientTable) and event.status == "ok":
            if event.entry not in now:
                return number
            acknowledged[event.entry] = number
        elif isinstance(event, ClientTable):
            continue
        lost = (seen(node, number) - now) & set(acknowledged)
        master = master_at[number]
        if node != master:
            lost &= seen(master, number)
            if isinstance(event, BrokerSlaveSynchronize) and ADDRESSES[event.peer_address.split(":")[0]] != master:
                continue  # a slave may be behind, and so is who follows it
        if lost:
            return number
    return None


def _is_looked_at(steps: Steps, number: int, has_begun: int) -> bool:
    """Whether this step has somebody look at the node's table; a start has so once it has been looked at before."""
    event = steps[number].event
    if isinstance(event, ClientTable | BrokerSlaveSynchronize):
        return number >= has_begun
    earlier = (step.event for step in steps[has_begun:number] if step.event.node == event.node)
    return isinstance(event, StoreOpen) and any(
        isinstance(each, ClientTable | BrokerSlaveSynchronize) for each in earlier
    )
