"""What an invariant is: the kinds of events that it wants to see, a check of each, and one at the end."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, Generic, TypeVar

from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.event import Event

E = TypeVar("E", bound=Event)


class Invariant(Generic[E]):
    """What must hold in every run. Derive a class, and list it in a scenario: each run makes one of its own.

    `E` is the class of the events that it looks at, or a union of them: those of `kinds`. `check` is called after each
    of these, in order, once the view has applied it. It says in words what is wrong, or None; the first that is wrong
    ends the run, and so does one that raises. An invariant may keep what it needs in attributes.
    """

    name: ClassVar[str]
    kinds: ClassVar[Collection[type[Event]]] = ()

    def check(self, event: E, view: ClusterView) -> str | None:
        """What does not hold after `event`, in words; None: it holds."""
        raise NotImplementedError(f"{type(self).__name__} has kinds, and no check")

    def at_end(self, view: ClusterView) -> str | None:
        """What does not hold when every fault is over and every node has stopped in order; None: it holds."""


class Limit(Invariant[E]):
    """What the documents say is not promised. Once it has come to pass nothing else is: the run ends as passed."""
