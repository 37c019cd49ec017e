"""How transactions end."""

from __future__ import annotations

from collections import Counter

import attrs

from rmq_actors.testing.clients import CHAOS_TOPIC
from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.run import ClientTransaction
from rmq_actors.tracing.events.transactions import TransactionCheck
from rmq_actors.wire.dispatch_request import HALF_TOPIC
from rmq_actors.wire.record import (
    MESSAGE_MAGIC,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    StoredMessage,
    check_record,
    decode_record,
)


@attrs.define(eq=False, repr=False)
class Transactions(Invariant[ClientTransaction | TransactionCheck]):
    """In the end each half message that the master's log has was ended as its producer wanted it.

    What it committed is in the log once, and never twice; what it rolled back, or has not decided, is not. A commit
    that was lost with its master, and whose half message was not, is made again when the next master asks. No check of
    one fails by an error.
    """

    name = "transactions"
    kinds = (ClientTransaction, TransactionCheck)

    #: What producers want, by key.
    _wanted: dict[str, str] = attrs.field(factory=dict, init=False)

    def check(self, event: ClientTransaction | TransactionCheck, view: ClusterView) -> str | None:
        """Keep what a producer has decided; look at what a broker asks."""
        if isinstance(event, TransactionCheck):
            if event.status.endswith("Error"):
                return f"{event.node} cannot check the half message at {event.offset}: {event.status}"
            return None
        if event.status in {"commit", "roll_back"}:
            self._wanted[event.key] = event.status
        return None

    def at_end(self, view: ClusterView) -> str | None:
        """Look at the whole log."""
        if not self._wanted:
            return None
        prepared, committed = set[str](), Counter[str]()
        for message in _messages(view):
            key = message.properties.get("KEYS", "")
            if message.topic == HALF_TOPIC:
                prepared.add(key)
            elif message.topic == CHAOS_TOPIC and message.sys_flag & TRANSACTION_ROLLBACK_TYPE:
                committed[key] += message.sys_flag & TRANSACTION_ROLLBACK_TYPE == TRANSACTION_COMMIT_TYPE
        name = view.master.name
        for key, count in committed.items():
            if self._wanted.get(key) != "commit":
                return f"{name} has committed {key}, which its producer has not"
            if count > 1:
                return f"{name} has committed {key} {count} times"
        missing = sorted(key for key in prepared if self._wanted.get(key) == "commit" and not committed[key])
        return (
            f"{name} has prepared {missing[0]}, which its producer has committed, and has no commit"
            if missing
            else None
        )


def _messages(view: ClusterView) -> list[StoredMessage]:
    node, found = view.master, list[StoredMessage]()
    log = memoryview(node.lineage.log)
    for at in node.lineage.records(node.begin, node.end):
        if int.from_bytes(log[at + 4 : at + 8], "big") != MESSAGE_MAGIC:
            continue
        record = log[at : at + int.from_bytes(log[at : at + 4], "big")]
        found.append(decode_record(record, 0, at, check=check_record(record, 0, at)))
    return found
