"""Tells a run's trace which broker's log counts, at each promotion: also at those that no broker has told."""

from __future__ import annotations

import attrs

from rmq_actors.broker.config import BrokerConfig
from rmq_actors.testing.evidence import WorldEvidence
from rmq_actors.testing.view import LONGEST, STORE_SERVICES, ClusterView
from rmq_actors.tracing.events.actor import ActorStart
from rmq_actors.tracing.events.run import OperatorPromote
from rmq_actors.tracing.events.store import StoreTerm
from rmq_actors.tracing.recorder import Recorder


@attrs.define(eq=False, repr=False)
class Promotions:
    """See the module. It is told with what each broker is started, and hears the rest from the trace."""

    recorder: Recorder
    #: What each process has begun to start its broker with, until its store's services start.
    _starting: dict[str, BrokerConfig] = attrs.field(factory=dict, init=False)
    #: Nodes whose latest process ended as it was to become a master.
    _failed: set[str] = attrs.field(factory=set, init=False)

    def starts(self, name: str, config: BrokerConfig) -> None:
        """A process begins to start its broker."""
        self._starting[name] = config

    def has_failed(self, name: str) -> None:
        """A process has ended as its broker was to have another role."""
        self._failed.add(name)

    def follow(self, view: ClusterView, evidence: WorldEvidence) -> None:
        """From each promotion on, whatever its cause, that broker's log counts. The view must have seen it before."""

        def on_term(event: StoreTerm) -> None:
            if event.status == "promoted":
                self._note(view, event.node)

        def on_actor_start(event: ActorStart) -> None:
            # Nothing of a broker's is at work before its store's services, and its term is known then.
            if event.actor == STORE_SERVICES:
                config = self._starting.pop(event.node, None)
                if config is not None and not config.is_slave:
                    self._note_what_nobody_told(view, evidence, event.node)

        self.recorder.subscribe(on_term, [StoreTerm])
        self.recorder.subscribe(on_actor_start, [ActorStart])

    def _note(self, view: ClusterView, name: str) -> None:
        node = view.nodes.get(name)
        if node is None or node is view.master:
            return
        followers = [each for each in view.slaves if view.has_followed(each)]
        is_longest = node in followers and node.end == max(each.end for each in followers)
        self.recorder.record(OperatorPromote(status=LONGEST if is_longest else "shortest"), name)

    def _note_what_nobody_told(self, view: ClusterView, evidence: WorldEvidence, name: str) -> None:
        """A promotion that was durable when its process died, before its trace had it; or one without a term.

        A broker that has not heard of a term may be promoted to it, too. A store on a full disk starts as a master in
        term 0. A broker whose disk took no term when it was to be promoted starts as the master that its configuration
        says: in the term that it led before, if it did.
        """
        term, was_refused = evidence.term(name), name in self._failed
        self._failed.discard(name)
        was_not_told = term.leads and term.number > view.nodes[name].term_led and term.number >= view.master.term
        if was_refused or not term.number or was_not_told:
            self._note(view, name)
