"""A log of transactional messages, as its dispatcher and readers see it."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rmq_actors.wire.dispatch_request import HALF_TOPIC, OP_HALF_TOPIC, DispatchRequest
from rmq_actors.wire.record import StoredMessage

RECORD_BYTES = 100
TIMESTAMP_MS = 1_700_000_000_999


@attrs.define
class Log:
    """Records of 100 bytes each, and the half queue's next offset."""

    requests: list[DispatchRequest] = attrs.field(factory=list)
    bodies: list[bytes] = attrs.field(factory=list)
    min_offset: int = 0

    def put(
        self,
        topic: str = "T",
        body: bytes = b"",
        properties: Mapping[str, str] | None = None,
        *,
        sys_flag: int = 0,
        prepared: int = 0,
    ) -> int:
        """Append a record; its number."""
        number = len(self.requests)
        queue_offset = sum(request.topic == topic for request in self.requests)
        self.requests.append(
            DispatchRequest(
                topic,
                0,
                number * RECORD_BYTES,
                RECORD_BYTES,
                0,
                TIMESTAMP_MS,
                queue_offset,
                sys_flag,
                prepared * RECORD_BYTES,
                {} if properties is None else properties,
            )
        )
        self.bodies.append(body)
        return number

    def prepare(self, group: str = "PG", key: str | None = None) -> int:
        """A prepared message of 3.x."""
        return self.put(properties=_properties(group, key), sys_flag=4)

    def end(self, prepared: int, sys_flag: int = 8, group: str = "PG") -> int:
        return self.put(properties={"PGROUP": group}, sys_flag=sys_flag, prepared=prepared)

    def half(self, key: str | None = None, *, checked: bool = False, group: str = "PG") -> int:
        properties = _properties(group, key)
        if checked:
            properties["TRANSACTION_CHECK_TIMES"] = "1"
        return self.put(HALF_TOPIC, properties=properties)

    def op(self, body: bytes, tags: str = "d") -> int:
        return self.put(OP_HALF_TOPIC, body, {"TAGS": tags})

    def read(self, offset: int) -> StoredMessage | None:
        number, rest = divmod(offset, RECORD_BYTES)
        if rest or not self.min_offset <= offset or number >= len(self.requests):
            return None
        request = self.requests[number]
        return StoredMessage(
            physical_offset=offset,
            total_size=RECORD_BYTES,
            body_crc=0,
            queue_id=request.queue_id,
            flag=0,
            queue_offset=request.consume_queue_offset,
            sys_flag=request.sys_flag,
            born_timestamp_ms=0,
            born_host="127.0.0.1:0",
            store_timestamp_ms=request.store_timestamp_ms,
            store_host="127.0.0.1:0",
            reconsume_times=0,
            prepared_transaction_offset=request.prepared_transaction_offset,
            body=self.bodies[number],
            topic=request.topic,
            properties=request.properties,
        )


def _properties(group: str, key: str | None) -> dict[str, str]:
    return {"PGROUP": group} if key is None else {"PGROUP": group, "UNIQ_KEY": key}
