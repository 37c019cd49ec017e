"""What a SYNC_MASTER says of slaves that are too far behind."""

from __future__ import annotations

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.ha import HaConnectionClose, HaConnectionOpen, HaReport
from rmq_actors.tracing.events.node import NodeBoot
from rmq_actors.tracing.events.store import PutBegin, PutEnd, StoreOpen

_Looked = HaConnectionOpen | HaConnectionClose | HaReport | PutBegin | PutEnd | StoreOpen | NodeBoot
_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
#: The status of a put that its producer, or its broker, does not let wait.
_NOT_WAITED = "not_waited"


@attrs.define(eq=False, repr=False)
class _Slave:
    """At the other end of one connection: its node, and the offset of its last report."""

    node: str
    reported: int | None = None


@attrs.define(eq=False, repr=False)
class Near(Invariant[_Looked]):
    """A put waits for slaves if enough are there that are nearer than haSlaveFallbehindMax, and else for none.

    So a producer learns at once that no slave can keep up, and not by a time-out: RocketMQ's rule (isSlaveOK). Which
    slaves these are, the reports of the connections say that are open. While a slave has two nothing is judged.
    """

    name = "near"
    kinds = (HaConnectionOpen, HaConnectionClose, HaReport, PutBegin, PutEnd, StoreOpen, NodeBoot)

    #: By master, and by connection.
    _slaves: dict[str, dict[int, _Slave]] = attrs.field(factory=dict, init=False)
    #: By master and put, whether enough slaves were near as it began.
    _was_near: dict[tuple[str, int], bool] = attrs.field(factory=dict, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """Note reports, judge answers."""
        if not view.acks:
            return None
        slaves = self._slaves.setdefault(event.node, {})
        if isinstance(event, HaConnectionOpen):
            slaves[event.conn_id] = _Slave(view.peer(event))
        elif isinstance(event, HaConnectionClose):
            slaves.pop(event.conn_id, None)
        elif isinstance(event, HaReport):
            slaves[event.conn_id].reported = event.offset
        elif isinstance(event, PutBegin):
            self._begin(event, slaves, view)
        elif isinstance(event, PutEnd):
            return self._end(event)
        else:
            slaves.clear()
            self._was_near = {key: value for key, value in self._was_near.items() if key[0] != event.node}
        return None

    def _begin(self, event: PutBegin, slaves: dict[int, _Slave], view: ClusterView) -> None:
        nodes = [slave.node for slave in slaves.values()]
        if len({*nodes}) < len(nodes):
            return
        reports = sorted((each.reported for each in slaves.values() if each.reported is not None), reverse=True)
        reached = reports[view.acks - 1] if len(reports) >= view.acks else 0
        most, is_there = view.evidence.fallbehind_max_bytes(event.node), len(slaves) >= view.acks
        # Puts that are told together end one after the other: some may be near, and others not.
        is_near = is_there and event.offset + event.size - reached < most
        if is_near or not is_there or event.offset - reached >= most:
            self._was_near.update({(event.node, each): is_near for each in event.msg_ids})

    def _end(self, event: PutEnd) -> str | None:
        for each in event.msg_ids:
            was_near = self._was_near.pop((event.node, each), None)
            if was_near is None or event.status == _NOT_WAITED or (event.status == _NOT_AVAILABLE) is not was_near:
                continue
            if was_near:
                return f"{event.node} answers a put {event.status}, and enough slaves were near"
            return (
                f"{event.node} answers a put {event.status}: as it began, too few slaves were near enough to wait for"
            )
        return None
