"""Which queue a message goes to (TopicPublishInfo.selectOneMessageQueue, MQFaultStrategy, LatencyFaultTolerance).

Messages go around the queues of all masters. A retry avoids the broker that failed last. With sendLatencyFaultEnable
brokers are avoided that were slow or failed, for a time that grows with their latency. Pure: time is an argument.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from rmq_actors.protocols.topic_publish_info import TopicPublishInfo
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.java_string import java_hash_code

_INT_MIN, _INT_SPAN = -(2**31), 2**32
_POSITIVE_MASK = 0x7FFFFFFF


def queue_position(counter: int, size: int) -> int:
    """Which of `size` queues a counter stands for: |counter| mod size.

    The counter is Java's int: it has one number, its smallest, whose absolute value is negative. That is queue 0.
    """
    counter = (counter - _INT_MIN) % _INT_SPAN + _INT_MIN
    return 0 if counter == _INT_MIN else abs(counter) % size


def select_message_queue_by_hash(queues: Sequence[MessageQueue], message: object, key: str) -> MessageQueue:  # noqa: ARG001 - as every selector
    """The queue of an ordering key, the same one as for a Java producer (SelectMessageQueueByHash of a String)."""
    return queues[queue_position(java_hash_code(key), len(queues))]


@attrs.define(eq=False, repr=False)
class SendWhichQueue:
    """The counter of one topic (ThreadLocalIndex). `value` is where it begins: a random number below 2**31."""

    value: int

    def increment_and_get(self) -> int:
        """The next number, from 0 to 2**31 - 1, and round again."""
        self.value = (self.value + 1) & _POSITIVE_MASK
        return self.value


def select_one_message_queue(
    info: TopicPublishInfo, counter: SendWhichQueue, last_broker_name: str | None = None
) -> MessageQueue:
    """The next queue; one of another broker than `last_broker_name`, unless all are of that one."""
    queues = info.queues
    if last_broker_name is not None:
        for _ in queues:
            queue = queues[queue_position(counter.increment_and_get(), len(queues))]
            if queue.broker_name != last_broker_name:
                return queue
    return queues[queue_position(counter.increment_and_get(), len(queues))]


@attrs.define(eq=False, repr=False)
class _FaultItem:
    latency_ms: float
    #: From when on it is available again.
    start_ms: float


@attrs.define(eq=False, repr=False)
class LatencyFaultTolerance:
    """How slow each broker was last, and until when it is avoided (LatencyFaultToleranceImpl). By brokerName."""

    _which_item_worst: SendWhichQueue
    _items: dict[str, _FaultItem] = attrs.field(factory=dict, init=False)

    def update_fault_item(self, name: str, latency_ms: float, not_available_ms: float, now_ms: float) -> None:
        """Note the latency of a broker, and for how long it is avoided."""
        self._items[name] = _FaultItem(latency_ms, now_ms + not_available_ms)

    def is_available(self, name: str, now_ms: float) -> bool:
        """Whether nothing speaks against a broker."""
        item = self._items.get(name)
        return item is None or now_ms >= item.start_ms

    def remove(self, name: str) -> None:
        """Forget a broker."""
        self._items.pop(name, None)

    def pick_one_at_least(self, now_ms: float) -> str | None:
        """One of the better half of the brokers that were measured; None if there are none."""

        def badness(name: str) -> tuple[bool, float, float]:
            item = self._items[name]
            return now_ms < item.start_ms, item.latency_ms, item.start_ms

        names = sorted(self._items, key=badness)
        half = len(names) // 2
        if half:
            return names[self._which_item_worst.increment_and_get() % half]
        return names[0] if names else None


#: A broker with at least the first latency is avoided for the duration below it; both in ms.
LATENCY_MAX_MS = (50, 100, 550, 1_000, 2_000, 3_000, 15_000)
NOT_AVAILABLE_DURATION_MS = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)
#: A broker that failed counts as one with this latency.
_ISOLATION_MS = 30_000


def not_available_duration_ms(latency_ms: float) -> int:
    """How long a broker of this latency is avoided."""
    for latency_max_ms, duration_ms in zip(reversed(LATENCY_MAX_MS), reversed(NOT_AVAILABLE_DURATION_MS), strict=True):
        if latency_ms >= latency_max_ms:
            return duration_ms
    return 0


@attrs.define(eq=False, repr=False)
class MQFaultStrategy:
    """Chooses queues, and learns from how sends went. Without `send_latency_fault_enable` it learns nothing."""

    send_latency_fault_enable: bool
    _tolerance: LatencyFaultTolerance

    def select_one_message_queue(
        self, info: TopicPublishInfo, counter: SendWhichQueue, last_broker_name: str | None, now_ms: float
    ) -> MessageQueue:
        """The queue of the next attempt. `info` has one queue or more."""
        if not self.send_latency_fault_enable:
            return select_one_message_queue(info, counter, last_broker_name)
        queues, tolerance = info.queues, self._tolerance
        index = counter.increment_and_get()
        for number in range(len(queues)):
            queue = queues[queue_position(index + number, len(queues))]
            if tolerance.is_available(queue.broker_name, now_ms):
                return queue
        not_best = tolerance.pick_one_at_least(now_ms)
        if not_best is not None:
            write_queue_nums = info.write_queue_nums.get(not_best, 0)
            if write_queue_nums > 0:
                queue_id = counter.increment_and_get() % write_queue_nums
                return MessageQueue(topic=info.topic, broker_name=not_best, queue_id=queue_id)
            tolerance.remove(not_best)
        return select_one_message_queue(info, counter)

    def update_fault_item(self, broker_name: str, latency_ms: float, now_ms: float, *, isolation: bool) -> None:
        """Note the latency of an attempt at a broker; `isolation`: it failed."""
        if self.send_latency_fault_enable:
            duration_ms = not_available_duration_ms(_ISOLATION_MS if isolation else latency_ms)
            self._tolerance.update_fault_item(broker_name, latency_ms, duration_ms, now_ms)
