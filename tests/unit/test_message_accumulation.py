"""How messages of several tasks become batches, and which of them may."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.client.send_result import SendResult, results_of_batch
from rmq_actors.protocols.message_accumulation import MessageAccumulation, may_be_batched
from rmq_actors.protocols.send_requests import batch_item_bytes, outgoing_batch, outgoing_batch_of, outgoing_message
from rmq_actors.protocols.send_retries import SendStatus
from rmq_actors.wire.batch import decode_batch
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.record import Message


def test_what_waits_while_a_batch_is_under_way_is_the_next_batch() -> None:
    lane = MessageAccumulation[int](1_000, 100)
    assert lane.add(1, 10)
    assert lane.take() == [1]
    assert not lane.add(2, 10)
    assert not lane.add(3, 10)
    assert not lane.add(4, 10)
    assert lane.withdraw(3)
    assert not lane.withdraw(1)
    assert lane.take() == [2, 4]
    assert lane.take() == []
    assert lane.add(5, 10)


def test_a_batch_is_bounded_by_bytes_and_by_count_and_a_longer_message_goes_alone() -> None:
    lane = MessageAccumulation[int](100, 3)
    for token, size in enumerate((60, 40, 1, 500, 1, 1, 1, 1)):
        lane.add(token, size)
    assert [lane.take() for _ in range(5)] == [[0, 1], [2], [3], [4, 5, 6], [7]]
    assert lane.take() == []


steps = st.lists(
    st.tuples(st.just("add"), st.integers(1, 60))
    | st.tuples(st.just("withdraw"), st.integers(0, 30))
    | st.just(("take", 0))
)


@given(steps, st.integers(1, 100), st.integers(1, 5))
def test_each_message_is_taken_once_in_order_unless_it_was_withdrawn(
    done: list[tuple[str, int]], max_bytes: int, max_messages: int
) -> None:
    lane = MessageAccumulation[int](max_bytes, max_messages)
    sizes, withdrawn, taken, begun = list[int](), set[int](), list[int](), False

    def take() -> None:
        nonlocal begun
        batch = lane.take()
        assert len(batch) <= max_messages
        assert len(batch) <= 1 or sum(sizes[token] for token in batch) <= max_bytes
        taken.extend(batch)
        begun = bool(batch)

    for step, number in done:
        if step == "add":
            sizes.append(number)
            assert lane.add(len(sizes) - 1, number) != begun
            begun = True
        elif step == "withdraw" and number < len(sizes):
            was_waiting = number not in taken and number not in withdrawn
            assert lane.withdraw(number) == was_waiting
            withdrawn |= {number} if was_waiting else set()
        elif step == "take" and begun:
            take()
    while begun:
        take()
    assert taken == [token for token in range(len(sizes)) if token not in withdrawn]


@pytest.mark.parametrize(
    ("message", "together"),
    [
        (Message("T", b"x"), True),
        (Message("T", b"x", flag=7, properties={"TAGS": "a", "WAIT": "false"}), True),
        (Message("T", b"x", properties={"DELAY": "1"}), False),
        (Message("T", b"x", properties={"TIMER_DELIVER_MS": "1"}), False),
        (Message("T", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}), False),
        (Message("T", b"x", properties={"TRAN_MSG": "true"}), False),
        (Message("T", b"x" * 200), False),
        (Message("T", b"x", sys_flag=1 << 6), False),
        (Message("%RETRY%G", b"x"), False),
        (Message("T", b"x", properties={"a": "b" * 32_000}), True),
        (Message("T", b"x", properties={"a": "b" * 32_700}), False),
        (Message("T", b"x", properties={"a": "日" * 9_000}), False),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_brokers_heed_in_single_messages_alone_goes_alone(message: Message, together: bool) -> None:
    assert may_be_batched(message, outgoing_message(message, "ID", 100, 5)) == together


def test_messages_that_are_ready_make_the_batch_that_they_would_have_made() -> None:
    messages = [
        Message("T", b"one", flag=7, properties={"TAGS": "a", "WAIT": "false"}),
        Message("T", b"two", properties={"k": "日", "WAIT": "false"}),
    ]
    ready = [outgoing_message(message, f"ID{number}", 100, 5) for number, message in enumerate(messages)]
    batch = outgoing_batch_of(ready)
    assert batch == outgoing_batch(messages, ["ID0", "ID1"])
    assert len(list(decode_batch(batch.body))) == 2
    assert len(batch.body) <= sum(map(batch_item_bytes, ready))


def test_each_message_of_a_batch_has_its_own_ids_and_offset() -> None:
    queue = MessageQueue(topic="T", broker_name="b", queue_id=1)
    assert results_of_batch(SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "A,B", "1,2", queue, 7)) == [
        SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "A", "1", queue, 7),
        SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "B", "2", queue, 8),
    ]
    assert len(results_of_batch(SendResult(SendStatus.SEND_OK, "A,B", "1", queue, 7))) == 1
