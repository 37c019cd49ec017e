"""Recording events: a `Recorder` a run, a `Tracer` a node.

The recorder numbers and times events, checks each against the registry of kinds, keeps them, and tells its listeners
(the invariant checker, the digest, a spool). It does no I/O: `spool` writes files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import attrs

from rmq_actors.tracing.event import KINDS, Event, RunInfo

#: Gives (virtual time in ns or None, wall time in ns).
Now = Callable[[], tuple[int | None, int]]
Listener = Callable[[Event], None]


@attrs.define(eq=False)
class Recorder:
    """The events of one run, in order.

    `events_max` bounds memory: a run that would keep more raises `TraceLimitExceeded` instead of growing for ever. A
    long-lived recorder is given a listener that spools, and `keep=False`: it holds nothing, and so has no bound.
    """

    run: RunInfo
    now: Now
    keep: bool = True
    events_max: int = 5_000_000
    events: list[Event] = attrs.field(factory=list, init=False)
    #: The listeners of each kind, in the order in which they subscribed.
    _listeners: dict[str, list[Listener]] = attrs.field(init=False)
    _next_seq: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._listeners = {kind: [] for kind in KINDS}

    def subscribe(self, listener: Listener, kinds: Iterable[str] = KINDS) -> None:
        """Call `listener` with each later event of these kinds, in order, at once. Raises `UnknownKind`."""
        for kind in kinds:
            if kind not in KINDS:
                raise UnknownKind(kind)
            self._listeners[kind].append(listener)

    def tracer(self, node: str) -> Tracer:
        """The recording end for one node."""
        return Tracer(self, node)

    def record(
        self,
        node: str,
        actor: str,
        kind: str,
        *,
        status: str | None = None,
        state_from: str | None = None,
        state_to: str | None = None,
        conn_id: int | None = None,
        conn_dir: int | None = None,
        offset: int | None = None,
        size: int | None = None,
        msg_id: int | None = None,
        fault_id: int | None = None,
        parent_seq: int | None = None,
        link_id: int | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> int:
        """Record one event and return its seq.

        Raises `UnknownKind` for a kind that the registry does not list, `TraceLimitExceeded` past `events_max`.
        """
        listeners = self._listeners.get(kind)
        if listeners is None:
            raise UnknownKind(kind)
        seq = self._next_seq
        if self.keep and seq >= self.events_max:
            raise TraceLimitExceeded(
                f"run {self.run.scenario} seed {self.run.seed}: more than {self.events_max} events"
            )
        self._next_seq = seq + 1
        if not self.keep and not listeners:
            return seq
        sim_time_ns, wall_time_ns = self.now()
        event = Event(
            seq,
            sim_time_ns,
            wall_time_ns,
            node,
            actor,
            kind,
            status,
            state_from,
            state_to,
            None,
            parent_seq,
            link_id,
            conn_id,
            conn_dir,
            offset,
            size,
            None,
            msg_id,
            None,
            fault_id,
            None,
            None,
            attributes,
        )
        if self.keep:
            self.events.append(event)
        for listener in listeners:
            listener(event)
        return seq


@attrs.define(eq=False)
class Tracer:
    """Records for one node; silent once `fence` was called, as a dead process is."""

    recorder: Recorder
    node: str
    _fenced: bool = attrs.field(default=False, init=False)
    _record: Callable[..., int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._record = self.recorder.record

    def fence(self) -> None:
        """Drop every later event: the node's incarnation is dead."""
        self._fenced = True

    def emit(
        self,
        kind: str,
        actor: str,
        *,
        status: str | None = None,
        state_from: str | None = None,
        state_to: str | None = None,
        conn_id: int | None = None,
        conn_dir: int | None = None,
        offset: int | None = None,
        size: int | None = None,
        msg_id: int | None = None,
        parent_seq: int | None = None,
        link_id: int | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> int | None:
        """Record one event of this node, as `Recorder.record` does; None once fenced."""
        if self._fenced:
            return None
        return self._record(
            self.node,
            actor,
            kind,
            status=status,
            state_from=state_from,
            state_to=state_to,
            conn_id=conn_id,
            conn_dir=conn_dir,
            offset=offset,
            size=size,
            msg_id=msg_id,
            parent_seq=parent_seq,
            link_id=link_id,
            attributes=attributes,
        )


class UnknownKind(ValueError):
    """An event of a kind that `KINDS` does not list."""


class TraceLimitExceeded(RuntimeError):
    """A run recorded more events than its recorder may keep."""
