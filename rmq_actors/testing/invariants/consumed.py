"""In the end each group has consumed every message."""

from __future__ import annotations

import attrs

from rmq_actors.protocols.send_rules import RETRY_GROUP_TOPIC_PREFIX
from rmq_actors.testing.clients import CHAOS_TOPIC
from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.logs_of_masters import LogsOfMasters
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.run import ClientConsume, ClientMember
from rmq_actors.tracing.events.store import LogAppend
from rmq_actors.wire.dispatch_request import PROPERTY_REAL_TOPIC
from rmq_actors.wire.record import StoredMessage

_Looked = ClientConsume | ClientMember | LogAppend
#: A group, and an offset of a queue of a topic.
_Place = tuple[str, str, int, int]


@attrs.define(eq=False, repr=False)
class Consumed(Invariant[_Looked]):
    """Each message that the master's log has in the end was consumed by a member of each group, or was sent back.

    What was sent back is in some log, for the group's topic of retries; if it is in the master's, it was consumed, too.
    So what was acknowledged, and is not lost in a way that *acknowledged* allows, is consumed. A group has no second
    look at an offset of a queue: if it was given another message there, of a log that is gone, it may pass one over.
    """

    name = "consumed"
    kinds = (ClientConsume, ClientMember, LogAppend)

    _logs: LogsOfMasters = attrs.field(factory=LogsOfMasters, init=False)
    _groups: dict[str, None] = attrs.field(factory=dict, init=False)
    #: Which messages were consumed there, and which were to come again, by their keys.
    _consumed: dict[_Place, set[str]] = attrs.field(factory=dict, init=False)
    _later: dict[_Place, set[str]] = attrs.field(factory=dict, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """Keep what was consumed."""
        if isinstance(event, LogAppend):
            self._logs.note(event, view)
            return None
        self._groups[event.group] = None
        if isinstance(event, ClientConsume) and event.status in {"consumed", "later"}:
            kept = self._consumed if event.status == "consumed" else self._later
            kept.setdefault(self._place(event.group, event), set()).add(event.key)
        return None

    @staticmethod
    def _place(group: str, message: ClientConsume | StoredMessage) -> _Place:
        return group, message.topic, message.queue_id, message.queue_offset

    def at_end(self, view: ClusterView) -> str | None:
        """Look at the whole log."""
        if not self._groups:
            return None
        retries = self._sent_back(view)
        master = view.master
        for message in self._logs.messages_of(master.lineage, master.begin, master.end):
            for group in self._groups:
                retry_topic = f"{RETRY_GROUP_TOPIC_PREFIX}{group}"
                if message.topic not in (CHAOS_TOPIC, retry_topic):
                    continue
                place, key = self._place(group, message), message.properties.get("KEYS", "")
                later = self._later.get(place, set())
                # Another one was given there, and sent back: the offset counts as consumed.
                was_sent_back = (key in later and (retry_topic, key) in retries) or bool(later - {key})
                if not was_sent_back and place not in self._consumed:
                    where = f"offset {message.queue_offset} of queue {message.queue_id} of {message.topic}"
                    return f"{master.name} has {where}, key {key}; {group} has not consumed it"
        return None

    def _sent_back(self, view: ClusterView) -> set[tuple[str, str]]:
        """What some log has for a topic of retries, delayed or not: the topic, and the key."""
        found = set[tuple[str, str]]()
        for message in self._logs.messages(view):
            topic = message.properties.get(PROPERTY_REAL_TOPIC, message.topic)
            if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
                found.add((topic, message.properties.get("KEYS", "")))
        return found
