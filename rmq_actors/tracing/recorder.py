"""Recording events: one `Recorder` per run, one `Tracer` per node.

The recorder numbers and times events, keeps them, and tells its listeners (the invariant checker, the digest, a
spool). It does no I/O: `spool` writes files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

import attrs

from rmq_actors.tracing.actor_tracer import EmitsActorEvents
from rmq_actors.tracing.event import KINDS, Event, RunInfo, UnknownKind
from rmq_actors.tracing.events.node import NodeBoot

#: Gives (virtual time in ns or None, wall time in ns).
Now = Callable[[], tuple[int | None, int]]
Listener = Callable[[Any], object]
_E = TypeVar("_E", bound=Event)


@attrs.define(eq=False, repr=False)
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
    #: The listeners of each kind that was met so far, in the order in which they subscribed.
    _listeners: dict[type[Event], list[Listener]] = attrs.field(factory=dict, init=False)
    #: Those that are told of every kind.
    _of_all: list[Listener] = attrs.field(factory=list, init=False)
    #: How often each node has booted.
    _lives: dict[str, int] = attrs.field(factory=dict, init=False)
    _next_seq: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._listeners[NodeBoot] = [self._begin_life]

    @overload
    def subscribe(self, listener: Callable[[Event], object], kinds: Iterable[str] | None = None) -> None: ...
    @overload
    def subscribe(self, listener: Callable[[_E], object], kinds: Iterable[type[_E]]) -> None: ...
    def subscribe(self, listener: Listener, kinds: Iterable[type[Event] | str] | None = None) -> None:
        """Call `listener` with each later event of these kinds, in order, at once; None: of every kind.

        Kinds are classes, or names, where they come from data. Raises `UnknownKind`.
        """
        if kinds is None:
            self._of_all.append(listener)
            for listeners in self._listeners.values():
                listeners.append(listener)
            return
        for kind in kinds:
            made = KINDS.get(kind) if isinstance(kind, str) else kind
            if made is None:
                raise UnknownKind(kind)
            self._listeners_of(made).append(listener)

    def tracer(self, node: str) -> Tracer:
        """The recording end for one node."""
        return Tracer(self, node)

    def record(self, event: Event, node: str = "", actor: str = "") -> int:
        """Record one event and return its seq; from then on it belongs to the trace, and is not recorded again.

        `actor`: the actor that tells it, if it is not its kind's default. Raises `UnknownKind` if its class is not
        registered, `TraceLimitExceeded` past `events_max`, `ValueError` if it is recorded already.
        """
        listeners = self._listeners.get(event.__class__)
        if listeners is None:
            listeners = self._listeners_of(event.__class__)
        seq = self._next_seq
        if self.keep:
            if seq >= self.events_max:
                raise TraceLimitExceeded(
                    f"run {self.run.scenario} seed {self.run.seed}: more than {self.events_max} events"
                )
        elif not listeners:
            self._next_seq = seq + 1
            return seq
        if event.seq >= 0:
            raise ValueError(f"{event.kind} is recorded a second time, it has the seq {event.seq}")
        self._next_seq = seq + 1
        own: Any = event  # frozen for everybody else
        own.sim_time_ns, own.wall_time_ns = self.now()
        own.seq = seq
        own.node = node
        own.life = self._lives.get(node)
        own.actor = actor or event.default_actor
        if self.keep:
            self.events.append(event)
        for listener in listeners:
            listener(event)
        return seq

    def _listeners_of(self, kind: type[Event]) -> list[Listener]:
        if not kind.kind:
            raise UnknownKind(f"{kind.__qualname__} has no kind")
        return self._listeners.setdefault(kind, list(self._of_all))

    def _begin_life(self, boot: NodeBoot) -> None:
        own: Any = boot
        own.life = self._lives[boot.node] = self._lives.get(boot.node, 0) + 1


@attrs.define(eq=False, repr=False)
class Tracer(EmitsActorEvents):
    """Records for one node; silent once `fence` was called, as a dead process is."""

    recorder: Recorder
    node: str
    _fenced: bool = attrs.field(default=False, init=False)
    _record: Callable[[Event, str, str], int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._record = self.recorder.record

    def fence(self) -> None:
        """Drop every later event: the node's incarnation is dead."""
        self._fenced = True

    def emit(self, event: Event, actor: str = "") -> int | None:
        """Record one event of this node, as `Recorder.record` does; None once fenced."""
        if self._fenced:
            return None
        return self._record(event, self.node, actor)


class TraceLimitExceeded(RuntimeError):
    """A run recorded more events than its recorder may keep."""
