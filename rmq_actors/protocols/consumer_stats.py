"""What a consumer counts for operators (ConsumerStatsManager), by topic: rates of a minute, failures of an hour."""

from __future__ import annotations

import collections

import attrs

from rmq_actors.wire.bodies.consumer_running_info import ConsumeStatus

_MINUTE_S, _HOUR_S = 60.0, 3600.0
#: Events are added up in slots of this length, so that a minute is a handful of them.
_SLOT_S = 10.0
#: More topics than this are not counted.
_TOPICS_MAX = 1000


@attrs.define(eq=False, repr=False)
class _Slot:
    begin_s: float
    ok: int = 0
    failed: int = 0
    calls: int = 0
    consume_s: float = 0.0
    pulls: int = 0
    pulled: int = 0
    pull_s: float = 0.0


@attrs.define(eq=False, repr=False)
class ConsumerStats:
    """Time is an argument, in seconds."""

    _slots: dict[str, collections.deque[_Slot]] = attrs.field(factory=dict, init=False)

    def consumed(self, topic: str, ok: int, failed: int, took_s: float, now_s: float) -> None:
        """A listener has returned."""
        slot = self._slot(topic, now_s)
        slot.ok += ok
        slot.failed += failed
        slot.calls += 1
        slot.consume_s += took_s

    def pulled(self, topic: str, count: int, took_s: float, now_s: float) -> None:
        """A pull has found messages."""
        slot = self._slot(topic, now_s)
        slot.pulls += 1
        slot.pulled += count
        slot.pull_s += took_s

    def status(self, topic: str, now_s: float) -> ConsumeStatus:
        """The figures of a topic."""
        slots = self._slots.get(topic, ())
        minute = [slot for slot in slots if now_s - slot.begin_s <= _MINUTE_S]
        if not slots:
            return ConsumeStatus()
        lasted_s = max(_SLOT_S, now_s - minute[0].begin_s) if minute else _SLOT_S
        calls, pulls = sum(slot.calls for slot in minute), sum(slot.pulls for slot in minute)
        return ConsumeStatus(
            consume_failed_msgs=sum(slot.failed for slot in slots if now_s - slot.begin_s <= _HOUR_S),
            consume_failed_tps=sum(slot.failed for slot in minute) / lasted_s,
            consume_ok_tps=sum(slot.ok for slot in minute) / lasted_s,
            consume_rt=1000 * sum(slot.consume_s for slot in minute) / calls if calls else 0.0,
            pull_rt=1000 * sum(slot.pull_s for slot in minute) / pulls if pulls else 0.0,
            pull_tps=sum(slot.pulled for slot in minute) / lasted_s,
        )

    def _slot(self, topic: str, now_s: float) -> _Slot:
        slots = self._slots.get(topic)
        if slots is None:
            slots = collections.deque()
            if len(self._slots) < _TOPICS_MAX:
                self._slots[topic] = slots
        if not slots or now_s - slots[-1].begin_s >= _SLOT_S:
            slots.append(_Slot(now_s))
            while now_s - slots[0].begin_s > _HOUR_S:
                slots.popleft()
        return slots[-1]
