"""The scenario of own producers and consumer groups: nothing acknowledged is lost, order is kept, calls end in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import attrs
import pytest

from rmq_actors.client import message_ext, producer
from rmq_actors.client.consume_message_service import ConsumeMessageConcurrentlyService, ConsumeMessageOrderlyService
from rmq_actors.client.held_queue import HeldQueue
from rmq_actors.client.message_ext import MessageExt
from rmq_actors.client.pull_consumer import PullConsumer
from rmq_actors.client.rebalancing import Rebalancer
from rmq_actors.client.send_back import SendBack
from rmq_actors.protocols.process_queue import ProcessQueue
from rmq_actors.protocols.send_retries import SEND_STATUS, SendStatus
from rmq_actors.testing.scenarios import PRODUCE_CONSUME, random_case, run_case, scenario_of
from rmq_actors.testing.workload import ALLOCATIONS, Workload
from rmq_actors.tracing.event import of_kind
from rmq_actors.tracing.events.actor import ActorStart
from rmq_actors.tracing.events.consumer import ConsumerQueue
from rmq_actors.tracing.events.run import ClientConsume, ClientMember
from rmq_actors.wire import plain_record
from sim_net import Schedule
from sim_net.search.search import Case, Parameter

#: Between them all that can happen to a member does.
SEEDS = (0, 1, 6, 12, 14, 42, 51)


def test_every_run_passes() -> None:
    results = [run_case(random_case(seed, scenario=PRODUCE_CONSUME)) for seed in SEEDS]
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []
    assert all(scenario_of(each.case) == PRODUCE_CONSUME for each in results)
    ends = {event.status for each in results for event in of_kind(each.events, ClientMember)}
    assert ends == {"joined", "left", "cancelled", "crashed"}
    consumed = [event for each in results for event in of_kind(each.events, ClientConsume)]
    assert {event.group for event in consumed} == {"concurrent-group", "orderly-group", "pull-group"}
    assert {event.status for event in consumed} >= {"begin", "consumed", "later"}
    assert any(of_kind(each.events, ConsumerQueue) for each in results)


def test_settings_of_clients_are_drawn() -> None:
    workloads = [Workload.of(random_case(seed, scenario=PRODUCE_CONSUME).parameters) for seed in range(60)]
    assert {(each.auto_batch, each.latency_faults) for each in workloads} == set(product((False, True), repeat=2))
    assert {each.consume_batch for each in workloads} == {1, 4, 32}
    assert {each.allocation for each in workloads} == set(ALLOCATIONS)


@pytest.mark.parametrize("allocation", ALLOCATIONS)
def test_a_run_has_the_settings_of_its_case(allocation: str) -> None:
    parameters: dict[str, Parameter] = {"puts": 30, "pause_s": 0.1, "in_flight": 5, "clients": True, "groups": "all"}
    parameters |= {"auto_batch": True, "latency_faults": True, "consume_batch": 4, "allocation": allocation}
    result = run_case(Case(1, Schedule(), parameters))
    assert (result.outcome, result.failure) == ("passed", "")
    assert any(event.actor.endswith("ProduceAccumulator") for event in of_kind(result.events, ActorStart))
    together = Counter(  # each call of the listener takes a time of its own
        (event.client, event.sim_time_ns)
        for event in of_kind(result.events, ClientConsume)
        if (event.group, event.status) == ("concurrent-group", "consumed")
    )
    assert 1 < max(together.values()) <= 4


def test_a_message_comes_again_three_times_at_most() -> None:
    """After that it would come when the run is long over."""
    parameters: dict[str, Parameter] = {
        "puts": 60,
        "pause_s": 1.0,
        "clients": True,
        "groups": "concurrent",
        "retries": 1.0,
    }
    result = run_case(Case(1, Schedule(), parameters))
    assert (result.outcome, result.failure) == ("passed", "")
    later = Counter(each.key for each in of_kind(result.events, ClientConsume) if each.status == "later")
    assert max(later.values()) == 3


Break = Callable[[pytest.MonkeyPatch], None]


def committed_before_the_listener_ends(patch: pytest.MonkeyPatch) -> None:
    consume = ConsumeMessageConcurrentlyService._consume

    async def too_early(self: Any, held: HeldQueue, messages: list[MessageExt]) -> None:
        end = messages[-1].queue_offset + 1
        self._rebalancer.offset_store.table.update_offset(held.queue, end, increase_only=True)
        await consume(self, held, messages)

    patch.setattr(ConsumeMessageConcurrentlyService, "_consume", too_early)


def polled_is_committed(patch: pytest.MonkeyPatch) -> None:
    poll = PullConsumer.poll

    async def too_early(self: PullConsumer, timeout_ms: int | None = None) -> list[MessageExt]:
        messages = await poll(self, timeout_ms)
        self._note_consumed()
        for held, offset in self._uncommitted.items():
            self._member.offset_store.table.update_offset(held.queue, offset, increase_only=False)
        return messages

    patch.setattr(PullConsumer, "poll", too_early)


def refused_locks_are_taken(patch: pytest.MonkeyPatch) -> None:
    async def lock(self: Rebalancer, queues: list[Any]) -> bool:
        for queue in queues:
            if queue in self.held:
                self.held[queue].process_queue.locked, self.held[queue].process_queue.last_lock_s = True, 1e9
        return True

    patch.setattr(Rebalancer, "_lock", lock)


def process_queue_is_not_dropped(patch: pytest.MonkeyPatch) -> None:
    def drop(self: HeldQueue) -> None:
        self.pulling.cancel()
        self.changed()

    patch.setattr(HeldQueue, "drop", drop)


def flush_slave_timeout_is_send_ok(patch: pytest.MonkeyPatch) -> None:
    wrong = {
        code: SendStatus.SEND_OK if status is SendStatus.FLUSH_SLAVE_TIMEOUT else status
        for code, status in SEND_STATUS.items()
    }
    patch.setattr(producer, "SEND_STATUS", wrong)


def sent_back_without_being_sent(patch: pytest.MonkeyPatch) -> None:
    async def send(*_: object) -> bool:
        return True

    patch.setattr(SendBack, "send_message_back", send)


def suspended_is_consumed(patch: pytest.MonkeyPatch) -> None:
    async def again(_: object, __: Sequence[MessageExt]) -> list[MessageExt]:
        return []

    patch.setattr(ConsumeMessageOrderlyService, "_to_consume_again", again)


def offset_of_the_last_one_that_ended(patch: pytest.MonkeyPatch) -> None:
    remove = ProcessQueue.remove_messages

    def remove_messages(self: ProcessQueue[Any], messages: Sequence[Any], now_s: float) -> int:
        offset = remove(self, messages, now_s)
        return messages[-1].queue_offset + 1 if messages else offset

    patch.setattr(ProcessQueue, "remove_messages", remove_messages)


def properties_of_another_message(patch: pytest.MonkeyPatch) -> None:
    first: list[Any] = []

    def properties_of(after_body: bytes) -> Any:
        first.append(plain_record.properties_of(after_body))
        return first[0]

    patch.setattr(message_ext, "properties_of", properties_of)


def body_of_the_message_before(patch: pytest.MonkeyPatch) -> None:
    of_plain, bodies = MessageExt.of_plain, [b"none yet"]

    def with_wrong_body(record: plain_record.PlainRecord, broker_name: str) -> MessageExt:
        head, body, after_body = record
        bodies.append(body)
        return of_plain((head, bodies.pop(0), after_body), broker_name)

    patch.setattr(MessageExt, "of_plain", with_wrong_body)


@pytest.mark.parametrize(
    ("bug", "first_seed", "invariant"),
    [
        (properties_of_another_message, 0, "given"),
        (body_of_the_message_before, 0, "given"),
        (committed_before_the_listener_ends, 2, "consumed"),
        (polled_is_committed, 3, "consumed"),
        (refused_locks_are_taken, 27, "orderly"),
        (process_queue_is_not_dropped, 10, "held"),
        (flush_slave_timeout_is_send_ok, 42, "send_ok"),
        (sent_back_without_being_sent, 12, "consumed"),
        (suspended_is_consumed, 12, "orderly"),
        (offset_of_the_last_one_that_ended, 46, "consumed"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_bug_of_the_clients_is_noticed(
    bug: Break, first_seed: int, invariant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the seed on that finds it today: another one does if the product's timing has changed since."""
    bug(monkeypatch)
    cases = (random_case(seed, scenario=PRODUCE_CONSUME) for seed in range(first_seed, first_seed + 60))
    # A member must end between its poll and what it does with the messages: where all members poll, one in 16 runs.
    changed = {"groups": "pull"} if bug is polled_is_committed else {}
    runs = (run_case(attrs.evolve(case, parameters={**case.parameters, **changed})) for case in cases)
    found = next((result for result in runs if result.outcome != "passed"), None)
    assert found is not None
    assert (found.outcome, found.failure.partition(":")[0]) == ("invariant", invariant)
