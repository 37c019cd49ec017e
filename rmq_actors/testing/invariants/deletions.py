"""Deletions of topics come to an end."""

from __future__ import annotations

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.actor import ActorStart
from rmq_actors.tracing.events.storage import StorageError
from rmq_actors.tracing.events.store import StoreOpen

_Looked = ActorStart | StorageError | StoreOpen
#: The first service that a broker starts after it has answered for what an earlier life of it has left undone.
_BEGINS = "RoleChanges"


@attrs.define(eq=False, repr=False)
class Deletions(Invariant[_Looked]):
    """A broker that has started has ended what an earlier life of it had begun to delete.

    So no topic is there whose messages are gone. An error of its disk since its store was opened is an excuse.
    """

    name = "deletions"
    kinds = (ActorStart, StorageError, StoreOpen)

    #: The nodes whose disk has failed since the store was opened.
    _failed: set[str] = attrs.field(factory=set, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """Look at what is not ended yet as the node begins to serve."""
        if isinstance(event, StoreOpen):
            self._failed.discard(event.node)
        elif isinstance(event, StorageError):
            self._failed.add(event.node)
        elif event.actor == _BEGINS and event.node not in self._failed:
            topics = view.evidence.deletions_under_way(event.node)
            if topics:
                return f"{event.node} has started, and {', '.join(sorted(topics))} is not deleted to the end"
        return None
