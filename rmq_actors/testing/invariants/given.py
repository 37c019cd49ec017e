"""What a consumer gives to its listener stands in a log."""

from __future__ import annotations

import zlib

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.logs_of_masters import LogsOfMasters
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.run import ClientConsume
from rmq_actors.tracing.events.store import LogAppend
from rmq_actors.wire.body_compression import decompress_body
from rmq_actors.wire.dispatch_request import PROPERTY_KEYS
from rmq_actors.wire.record import BODY_MAX_BYTES, StoredMessage

_Looked = ClientConsume | LogAppend


@attrs.define(eq=False, repr=False)
class Given(Invariant[_Looked]):
    """A message that a listener is given is one that some log has there: of that topic and queue, with key and body.

    Both of its offsets are those of the log: the one where it stands, and the one in its queue.
    """

    name = "given"
    kinds = (ClientConsume, LogAppend)

    _logs: LogsOfMasters = attrs.field(factory=LogsOfMasters, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """One message."""
        if isinstance(event, LogAppend):
            self._logs.note(event, view)
            return None
        if event.status != "begin":
            return None
        given = event.topic, event.queue_id, event.queue_offset, event.key, event.checksum
        found = list(map(_as_given, self._logs.messages_at(event.offset, view)))
        if given in found:
            return None
        there = found[0] if found else "no message"
        what = "topic, queue, offset, key and checksum"
        return f"{event.client} gives {what} {given} of {event.offset}; there is {there}"


def _as_given(stored: StoredMessage) -> tuple[str, int, int, str, int]:
    body = decompress_body(stored.body, stored.sys_flag, BODY_MAX_BYTES)
    key = stored.properties.get(PROPERTY_KEYS, "")
    return stored.topic, stored.queue_id, stored.queue_offset, key, zlib.crc32(body)
