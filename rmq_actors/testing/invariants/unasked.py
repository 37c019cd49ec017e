"""How long a slave tries to ask before it follows unasked."""

from __future__ import annotations

import attrs

from rmq_actors.protocols.following import LOOKUP_PATIENCE_S, SILENCE_PATIENCE_S
from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.ha import (
    HaClientClose,
    HaClientCompare,
    HaClientConnect,
    HaClientRedirect,
    HaClientReport,
)
from rmq_actors.tracing.events.store import StoreOpen

Looked = HaClientConnect | HaClientCompare | HaClientReport | HaClientClose | HaClientRedirect | StoreOpen
#: Times are whole ns.
_SLACK_S = 1e-6
#: How long a master must have answered nothing, by how the last question failed.
_PATIENCE_S = {"lookup_failed": LOOKUP_PATIENCE_S, "no_answer": SILENCE_PATIENCE_S}


@attrs.define(eq=False, repr=False)
class _Master:
    """What one slave knows of one master."""

    #: When the first attempt began since which that has been there all the time, and has answered nothing.
    since_s: float | None = None
    #: How the last question of the present connection failed; "": none has.
    failure: str = ""
    is_connected: bool = False


@attrs.define(eq=False, repr=False)
class Unasked(Invariant[Looked]):
    """A slave follows a master that it could not ask only if that was there for 10 s and refused to answer.

    One that says nothing must have been there for 60 s.
    """

    name = "unasked"
    kinds = (HaClientConnect, HaClientCompare, HaClientReport, HaClientClose, HaClientRedirect, StoreOpen)

    _masters: dict[str, _Master] = attrs.field(factory=dict, init=False)

    def check(self, event: Looked, view: ClusterView) -> str | None:
        """A slave that reports follows."""
        name, now_s = event.node, (event.sim_time_ns or 0) / 1e9
        master = self._masters.setdefault(name, _Master())
        if isinstance(event, HaClientReport):
            if not master.failure:
                return None
            patience_s = _PATIENCE_S[master.failure]
            waited_s = now_s - (now_s if master.since_s is None else master.since_s)
            if waited_s < patience_s - _SLACK_S:
                return f"{name} follows unasked ({master.failure}) after {waited_s:.3f} s, {patience_s:g} s too few"
            master.failure = ""
        elif isinstance(event, HaClientConnect):
            master.failure, master.is_connected = "", True
            master.since_s = now_s if master.since_s is None else master.since_s
        elif isinstance(event, HaClientCompare):
            if event.status in _PATIENCE_S:
                master.failure = event.status
            else:
                master.failure, master.since_s = "", None
        elif isinstance(event, HaClientClose) and master.is_connected:
            master.failure, master.is_connected = "", False
        else:  # it is away, or another one, or another life begins
            self._masters[name] = _Master()
        return None
