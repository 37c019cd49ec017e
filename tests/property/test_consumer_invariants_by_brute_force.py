"""Each invariant of producers and groups says the same of small histories as a simple look at the whole does."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.testing.clients import CHAOS_TOPIC
from rmq_actors.testing.invariants import Consumed, Given, Held, InTime, Invariant, Orderly, SendOk
from rmq_actors.testing.invariants.orderly import ORDERLY_GROUP
from rmq_actors.tracing.event import Event
from rmq_actors.tracing.events.consumer import ConsumerQueue
from rmq_actors.tracing.events.run import ClientCall, ClientConsume, ClientMember, ClientSend, FaultBegin, FaultEnd
from rmq_actors.wire.dispatch_request import PROPERTY_REAL_QUEUE_ID, PROPERTY_REAL_TOPIC, SCHEDULE_TOPIC
from rmq_actors.wire.record import Message, encode_message
from tests.worlds.client_story import chaos_record
from tests.worlds.cluster_story import MASTER, SLAVE, Story

Act = tuple[Any, ...]
MEMBERS, QUEUES, OFFSETS = ("x", "y"), (0, 1), (0, 1, 2)
queue_acts = st.tuples(st.sampled_from(["taken", "given_up"]), st.sampled_from(MEMBERS), st.sampled_from(QUEUES))
consume_acts = st.tuples(
    st.sampled_from(["begin", "begin", "consumed", "later"]),
    st.sampled_from(MEMBERS),
    st.sampled_from(QUEUES),
    st.sampled_from(OFFSETS),
)
member_acts = st.tuples(st.sampled_from(["left", "crashed"]), st.sampled_from(MEMBERS))
histories = st.lists(queue_acts | queue_acts | consume_acts | consume_acts | consume_acts | member_acts, max_size=14)


def event_of(act: Act, group: str) -> Event:
    match act:
        case ("taken" | "given_up") as status, client, queue_id:
            return ConsumerQueue(
                status=status,
                group=group,
                client=client,
                topic=CHAOS_TOPIC,
                broker_name="a",
                queue_id=queue_id,
                queue_offset=0,
            )
        case status, client, queue_id, offset, *keys:
            return ClientConsume(
                status=status,
                offset=100 * offset,
                group=group,
                client=client,
                topic=CHAOS_TOPIC,
                queue_id=queue_id,
                queue_offset=offset,
                key=keys[0] if keys else f"{offset}",
                checksum=0,
            )
        case status, client:
            return ClientMember(status=status, group=group, client=client)
    raise AssertionError(act)


def first_broken(history: Sequence[Act], invariant: type[Invariant[Any]]) -> int | None:
    """At which act it breaks."""
    story = Story()
    story.watch(invariant)
    for number, act in enumerate(history):
        if act[0] == "masters change":
            story.emit(MASTER, "store.open", status="clean", offset=0)
        else:
            story.recorder.record(event_of(act, ORDERLY_GROUP), "consumers")
        if story.broken:
            return number
    return None


def ends_of_tenure(act: Act, client: str, queue_id: int) -> bool:
    return (act[0] in ("taken", "given_up") and act[1:] == (client, queue_id)) or (
        act[0] in ("left", "crashed") and act[1] == client
    )


def since(history: Sequence[Act], at: int, is_it: Callable[[Act], bool]) -> int | None:
    """The last act before that one of which it is true."""
    return next((number for number in reversed(range(at)) if is_it(history[number])), None)


def held(history: Sequence[Act], at: int) -> bool:
    """Whether it is broken by this act."""
    act = history[at]
    if act[0] != "begin":
        return False
    _, client, queue_id, offset = act
    begins = since(history, at, lambda each: ends_of_tenure(each, client, queue_id))
    if begins is None or history[begins][0] != "taken":
        return True
    about_it = [each[0] for each in history[begins:at] if each[1:] == (client, queue_id, offset)]
    given_last = next((said for said in reversed(about_it) if said != "consumed"), "")
    return given_last == "begin"


def orderly(history: Sequence[Act], at: int) -> bool:
    act = history[at]
    if act[0] != "begin":
        return False
    _, client, queue_id, offset = act
    consumed = {each[3] for each in history[:at] if each[0] == "consumed" and each[2] == queue_id}
    if offset > 0 and offset - 1 not in consumed:
        return True
    (other,) = set(MEMBERS) - {client}
    others = acts_of(history, at, other, queue_id)
    if not others or history[others[-1]][0] != "begin":
        return False
    changed = since(history, at, lambda each: each[0] == "masters change")
    return changed is None or all(met_at(history, at + 1, each, queue_id) > changed for each in MEMBERS)


def acts_of(history: Sequence[Act], end: int, client: str, queue_id: int) -> list[int]:
    """What a member has done with a queue, since it was gone last."""
    gone = since(history, end, lambda each: each[0] in ("left", "crashed") and each[1] == client)
    begin = 0 if gone is None else gone + 1
    return [
        number
        for number in range(begin, end)
        if history[number][1:3] == (client, queue_id) and history[number][0] != "given_up"
    ]


def met_at(history: Sequence[Act], end: int, client: str, queue_id: int) -> int:
    """When it took the queue last, or was seen with it first."""
    numbers = acts_of(history, end, client, queue_id)
    return next((number for number in reversed(numbers) if history[number][0] == "taken"), numbers[0])


def delayed_retry(group: str, key: str) -> bytes:
    """A message that waits to come to a group again."""
    properties = {"KEYS": key, PROPERTY_REAL_TOPIC: f"%RETRY%{group}", PROPERTY_REAL_QUEUE_ID: "0"}
    encoded = encode_message(Message(SCHEDULE_TOPIC, b"body", properties=properties))
    encoded.place(queue_offset=0, physical_offset=0, store_timestamp_ms=0)
    return bytes(encoded.data)


@given(histories)
def test_a_message_is_of_a_queue_that_is_held_and_comes_once(history: list[Act]) -> None:
    expected = next((number for number in range(len(history)) if held(history, number)), None)
    assert first_broken(history, Held) == expected


@given(st.lists(queue_acts | consume_acts | consume_acts | member_acts | st.just(("masters change",)), max_size=14))
def test_order_is_kept_and_one_member_at_a_time_has_a_queue(history: list[Act]) -> None:
    expected = next((number for number in range(len(history)) if orderly(history, number)), None)
    assert first_broken(history, Orderly) == expected


@given(st.lists(st.tuples(st.sampled_from([0.0, 2999.5, 3000.9, 3001.1, 9e9]), st.sampled_from([3000, 10**9]))))
def test_a_call_ends_in_time(calls: list[tuple[float, int]]) -> None:
    story = Story()
    story.watch(InTime)
    for elapsed_ms, timeout_ms in calls:
        call = ClientCall(status="ok", name="send", elapsed_ms=elapsed_ms, timeout_ms=timeout_ms)
        story.recorder.record(call, "producers")
    assert bool(story.broken) is any(elapsed > limit + 1 for elapsed, limit in calls)


put_acts = st.tuples(
    st.just("put"), st.sampled_from([0, 10, 20]), st.sampled_from(["PUT_OK", "FLUSH_SLAVE_TIMEOUT", ""])
)
send_acts = st.tuples(
    st.just("send"), st.sampled_from([0, 9, 10, 20]), st.sampled_from(["SEND_OK", "SUCCESS", "FLUSH_SLAVE_TIMEOUT"])
)


@given(st.lists(put_acts | send_acts | st.just(("open", 0, "")), max_size=10))
def test_send_ok_is_what_the_broker_said(history: list[tuple[str, int, str]]) -> None:
    """Each put has 10 bytes; one of status "" does not end."""
    story = Story()
    story.watch(SendOk)
    is_broken = False
    lives: list[list[tuple[int, str]]] = [[]]
    for number, (act, at, status) in enumerate(history):
        if act == "put":
            story.emit(MASTER, "put.begin", msg_id=number, offset=at, size=10)
            if status:
                story.emit(MASTER, "put.end", msg_id=number, offset=at + 10, status=status)
            lives[-1].append((at, status))
        elif act == "open":
            story.emit(MASTER, "store.open", status="clean", offset=0)
            lives.append([])
        else:
            told = ClientSend(status=status, offset=at, key="k", queue_id=0, queue_offset=0)
            story.recorder.record(told, MASTER)
            its_own = {status for puts in lives for begin, status in puts if begin <= at < begin + 10}
            is_broken |= status in {"SEND_OK", "SUCCESS"} and "PUT_OK" not in its_own
        if is_broken or story.broken:
            break
    assert bool(story.broken) is is_broken


@pytest.mark.parametrize(
    ("changes", "is_broken"),
    [
        ({}, False),
        ({"offset": 1}, True),
        ({"queue_offset": 1}, True),
        ({"queue_id": 1}, True),
        ({"topic": "Orders"}, True),
        ({"key": "b"}, True),
        ({"checksum": zlib.crc32(b"bodY")}, True),
        ({"status": "consumed", "key": "b"}, False),  # it was looked at when it was given
    ],
)
@pytest.mark.parametrize("is_gone", [False, True])
def test_what_is_given_stands_in_a_log(changes: dict[str, Any], is_broken: bool, is_gone: bool) -> None:
    """Also in one that is gone: it was pulled before."""
    story = Story()
    story.watch(Given)
    story.append(MASTER, chaos_record(0))
    if is_gone:
        story.promote(SLAVE, is_longest=True)
        story.append(SLAVE, chaos_record(0, "c"))
    given: dict[str, Any] = {
        "status": "begin",
        "offset": 0,
        "topic": CHAOS_TOPIC,
        "queue_id": 0,
        "queue_offset": 0,
        "key": "a",
        "checksum": zlib.crc32(b"body"),
    }
    story.recorder.record(ClientConsume(group=ORDERLY_GROUP, client="x", **(given | changes)), "consumers")
    assert bool(story.broken) is is_broken


@pytest.mark.parametrize(("at", "is_broken"), [(99, True), (100, False), (109, False), (110, True), (119, True)])
def test_of_puts_that_began_together_each_has_its_own_answer(at: int, is_broken: bool) -> None:
    story = Story()
    story.watch(SendOk)
    story.emit(MASTER, "put.begin", msg_id=1, msg_id_last=2, offset=100, size=20)
    story.emit(MASTER, "put.begin", msg_id=3, offset=120, size=10)
    story.emit(MASTER, "put.end", msg_id=1, offset=110, status="PUT_OK")
    story.emit(MASTER, "put.end", msg_id=3, offset=130, status="PUT_OK")  # the second one has not ended
    story.recorder.record(ClientSend(status="SEND_OK", offset=at, key="k", queue_id=0, queue_offset=0), MASTER)
    assert bool(story.broken) is is_broken


@pytest.mark.parametrize(
    ("changed", "is_broken"),
    [("nothing", True), ("slave opens", True), ("slave's role", True), ("master opens", False), ("promotion", False)],
)
def test_two_members_have_a_queue_only_if_a_master_has_lost_its_locks(changed: str, is_broken: bool) -> None:
    story = Story()
    story.watch(Orderly)
    for act in (("taken", "x", 0), ("taken", "y", 0)):
        story.recorder.record(event_of(act, ORDERLY_GROUP), "consumers")
    if changed == "promotion":
        story.promote(SLAVE, is_longest=True)
    elif changed == "slave's role":
        story.emit(
            SLAVE, "broker.role", status="changed", offset=0, role="SLAVE", detail="", attributes={"broker.id": 1}
        )
    elif changed != "nothing":
        story.emit(MASTER if changed == "master opens" else SLAVE, "store.open", status="clean", offset=0)
    for begin in (("begin", "x", 0, 0), ("begin", "y", 0, 0)):
        story.recorder.record(event_of(begin, ORDERLY_GROUP), "consumers")
    assert bool(story.broken) is is_broken


TAKEN, GIVEN_UP, TAKEN_AFTER = ("taken", "x", 0), ("given_up", "x", 0), ("taken", "y", 0)
CONSUMED = [("begin", "x", 0, 0), ("consumed", "x", 0, 0)]
AGAIN = ("begin", "y", 0, 0)


@pytest.mark.parametrize(
    ("acts", "is_broken"),
    [
        ([TAKEN, *CONSUMED, GIVEN_UP, TAKEN_AFTER, AGAIN], True),
        ([TAKEN, CONSUMED[0], GIVEN_UP, CONSUMED[1], TAKEN_AFTER, AGAIN], False),
        ([TAKEN, *CONSUMED, GIVEN_UP, TAKEN_AFTER, ("begin", "y", 0, 1)], False),
        ([TAKEN, *CONSUMED, TAKEN_AFTER, AGAIN], False),
        ([TAKEN, *CONSUMED, ("crashed", "x"), TAKEN_AFTER, AGAIN], False),
        ([TAKEN, CONSUMED[0], GIVEN_UP, TAKEN_AFTER, ("crashed", "x"), AGAIN], False),
        ([TAKEN, *CONSUMED, ("masters change",), GIVEN_UP, TAKEN_AFTER, AGAIN], False),
        ([TAKEN, *CONSUMED, GIVEN_UP, ("masters change",), TAKEN_AFTER, AGAIN], False),
        ([TAKEN, *CONSUMED, ("fault begins",), GIVEN_UP, TAKEN_AFTER, AGAIN], False),
        ([("fault begins",), ("time passes",), TAKEN, *CONSUMED, GIVEN_UP, TAKEN_AFTER, AGAIN], False),
        (
            [("fault begins",), ("fault ends",), ("time passes",), TAKEN, *CONSUMED, GIVEN_UP, TAKEN_AFTER, AGAIN],
            True,
        ),
    ],
)
def test_who_takes_a_queue_that_was_given_up_goes_on_after_what_was_consumed(acts: list[Act], is_broken: bool) -> None:
    story = Story(now_s=60.0)
    story.watch(Orderly)
    for act in acts:
        match act:
            case ("masters change",):
                story.emit(MASTER, "store.open", status="clean", offset=0)
            case ("fault begins" | "fault ends" as what,):
                event = FaultBegin if what == "fault begins" else FaultEnd
                story.recorder.record(event(fault_id=0, fault_kind="Delay", nodes="a,b"), "")
            case ("time passes",):
                story.now_s += 60
            case _:
                story.recorder.record(event_of(act, ORDERLY_GROUP), "consumers")
    assert bool(story.broken) is is_broken


@pytest.mark.parametrize("groups", [("g",), ("g", "h")])
@given(
    keys=st.lists(st.sampled_from("abc"), max_size=3),
    told=st.lists(
        st.tuples(
            st.sampled_from(["consumed", "later", "begin"]),
            st.sampled_from("gh"),
            st.sampled_from(OFFSETS),
            st.sampled_from("abc"),
        ),
        max_size=8,
    ),
    sent_back=st.lists(st.tuples(st.sampled_from("gh"), st.sampled_from("abc")), max_size=2),
)
def test_all_that_the_log_has_is_consumed(
    groups: Sequence[str], keys: list[str], told: list[tuple[str, str, int, str]], sent_back: list[tuple[str, str]]
) -> None:
    story = Story()
    story.watch(Consumed)
    for number, key in enumerate(keys):
        story.append(MASTER, chaos_record(number, key))
    for group, key in sent_back:
        story.append(MASTER, delayed_retry(group, key))
    for group in groups:
        story.recorder.record(ClientMember(status="joined", group=group, client="x"), "consumers")
    for status, group, offset, key in told:
        if group in groups:
            story.recorder.record(event_of((status, "x", 0, offset, key), group), "consumers")
    story.end()

    def is_done(group: str, number: int, key: str) -> bool:
        said = {(status, other) for status, of, offset, other in told if (of, offset) == (group, number)}
        is_consumed = any(status == "consumed" for status, _ in said)
        is_gone = any(status == "later" and other != key for status, other in said)
        return is_consumed or is_gone or (("later", key) in said and (group, key) in sent_back)

    assert bool(story.broken) is not all(
        is_done(group, number, key) for group in groups for number, key in enumerate(keys)
    )
