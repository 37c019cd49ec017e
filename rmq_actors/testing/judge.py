"""Judges a run: the view applies each event, then the invariants that want its kind look at it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any

import attrs

from rmq_actors.settings.field_types import on_one_line
from rmq_actors.testing.invariants.invariant import Invariant, Limit
from rmq_actors.testing.mistakes import MISTAKES, told
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.event import Event

_Applier = Callable[[Any], None]
_Check = Callable[[Any, ClusterView], str | None]


@attrs.frozen
class Broken:
    """An invariant that does not hold: its name, what was seen, and at which event."""

    invariant: str
    detail: str = attrs.field(converter=on_one_line)
    seq: int

    def __str__(self) -> str:
        return f"{self.invariant}: {self.detail} (at event {self.seq})"


@attrs.define(eq=False, repr=False)
class Judge:
    """Follows one run until the first invariant breaks: after that, what it sees means nothing."""

    view: ClusterView
    invariants: Iterable[Invariant[Any]]
    on_broken: Callable[[Broken], object]
    #: Called when a documented limit has come to pass: nothing is promised any more.
    on_limit: Callable[[str, str], object]
    broken: Broken | None = attrs.field(default=None, init=False)
    #: How many events were looked at.
    checks: int = attrs.field(default=0, init=False)
    #: What applies the events of each kind, and which invariants check them.
    _by_kind: Mapping[type[Event], tuple[_Applier | None, Sequence[tuple[Invariant[Any], _Check]]]] = attrs.field(
        init=False
    )

    def __attrs_post_init__(self) -> None:
        self.invariants = tuple(self.invariants)
        kinds = dict.fromkeys([*self.view.appliers, *(kind for each in self.invariants for kind in each.kinds)])
        self._by_kind = {
            kind: (
                self.view.appliers.get(kind),
                tuple((each, each.check) for each in self.invariants if kind in each.kinds),
            )
            for kind in kinds
        }

    @property
    def kinds(self) -> Collection[type[Event]]:
        """The kinds of events that `observe` looks at."""
        return self._by_kind.keys()

    def observe(self, event: Event) -> None:
        """Take in one event: subscribe this to the run's recorder, for `kinds`."""
        if self.broken is not None:
            return
        self.checks += 1
        apply, checks = self._by_kind[event.__class__]
        if apply is not None:
            apply(event)
        for invariant, check in checks:
            try:
                detail = _text(invariant, check(event, self.view))
            except MISTAKES as error:  # else the node that tells the event would seem to have crashed
                self._break(invariant, f"it raises {told(error)}", event.seq)
                return
            if detail is not None:
                if not isinstance(invariant, Limit):
                    self._break(invariant, detail, event.seq)
                    return
                self.on_limit(invariant.name, on_one_line(detail))

    def check_end(self, seq: int) -> None:
        """For the end of a run of `seq` events, when every fault is over and every node has stopped in order."""
        for invariant in () if self.broken is not None else self.invariants:
            try:
                detail = _text(invariant, invariant.at_end(self.view))
            except MISTAKES as error:  # as in `observe`
                detail = f"it raises {told(error)}"
            if detail is not None:
                self._break(invariant, detail, seq)
                return

    def _break(self, invariant: Invariant[Any], detail: str, seq: int) -> None:
        self.broken = Broken(invariant.name, detail, seq)
        self.on_broken(self.broken)


def _text(invariant: Invariant[Any], told: object) -> str | None:
    """What an invariant has returned. Raises `TypeError`: it is one's own, and perhaps `async`."""
    if told is None or (isinstance(told, str) and told):
        return told
    if isinstance(told, Coroutine):
        told.close()
    returned = "an empty text" if told == "" else f"a {type(told).__name__}"
    raise TypeError(
        f"{type(invariant).__name__} returns {returned}, where it should say in words what is wrong, or None"
    )
