"""A limit: a slave whose master answers no question follows it unasked."""

from __future__ import annotations

import attrs

from rmq_actors.testing.invariants.invariant import Limit
from rmq_actors.testing.invariants.unasked import Looked, Unasked
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.ha import HaClientReport


@attrs.define(eq=False, repr=False)
class FollowedUnasked(Limit[Looked]):
    """A slave that could not ask follows a master with a diverged log (`docs/invariants.md`)."""

    name = "followed_unasked"
    kinds = Unasked.kinds

    _unasked: Unasked = attrs.field(factory=Unasked, init=False)

    def check(self, event: Looked, view: ClusterView) -> str | None:
        """A slave that reports follows. One that has not tried for long enough breaks the invariant instead."""
        node, is_too_early = view.nodes[event.node], self._unasked.check(event, view) is not None
        if not isinstance(event, HaClientReport) or is_too_early or not node.could_not_ask:
            return None
        if view.log_of_master.common(node.lineage) >= node.end:
            return None
        return f"{node.name} follows, and could not ask whether it has the same log"
