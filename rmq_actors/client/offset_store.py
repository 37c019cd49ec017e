"""Where a consumer's offsets are kept (OffsetStore): at the broker of each queue, or in a file of one's own."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Protocol

import attrs
import trio

from rmq_actors.client.client_error import BrokerRefused, ClientError
from rmq_actors.client.consumer_requests import ConsumerRequests
from rmq_actors.client.requests import deadline_after
from rmq_actors.ports.disk import Disk
from rmq_actors.protocols.consume_from import NO_OFFSET, OFFSET_UNKNOWN
from rmq_actors.protocols.offset_table import OffsetTable
from rmq_actors.protocols.rebalance import by_broker_name
from rmq_actors.store.files.json_file import ConfigFile, ConfigFileDamaged
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.bodies.offsets import ResetOffsetBody

_log = logging.getLogger(__name__)

#: How long a broker may take to tell or take an offset.
_TIMEOUT_MS = 5_000


class OffsetStore(Protocol):
    """Offsets in `table` are in memory; `persist` has them kept."""

    @property
    def table(self) -> OffsetTable:
        """How far this consumer is."""
        ...

    async def read_from_store(self, queue: MessageQueue) -> int:
        """The offset that is kept; -1: there is none, -2: that is not known now."""
        ...

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Have the offsets of these queues kept. What fails is logged, and kept the next time."""
        ...


@attrs.define(eq=False, repr=False)
class RemoteBrokerOffsetStore:
    """Offsets of a group whose members share the queues: at the master of each queue."""

    _requests: ConsumerRequests
    table: OffsetTable = attrs.field(factory=OffsetTable, init=False)

    async def read_from_store(self, queue: MessageQueue) -> int:
        """See `OffsetStore`. What a broker refuses is not known: only QUERY_NOT_FOUND says that there is none."""
        try:
            found = await self._requests.query_consumer_offset(queue, deadline_after(_TIMEOUT_MS))
        except ClientError as error:
            _log.warning("%s: the offset of %s is not known: %s", self._requests.group, queue, error)
            return OFFSET_UNKNOWN
        if found is None:
            return NO_OFFSET
        self.table.update_offset(queue, found, increase_only=False)
        return found

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """See `OffsetStore`. Offsets that did not change go, too: a broker that was killed may have lost them.

        All brokers are told at the same time, so that one that is silent holds up no other.
        """
        deadline_s = deadline_after(_TIMEOUT_MS)
        async with trio.open_nursery() as nursery:
            for of_one in by_broker_name(self.table.of_queues(queues)).values():
                nursery.start_soon(self._persist_at_one, of_one, deadline_s)

    async def _persist_at_one(self, queues: Collection[MessageQueue], deadline_s: float) -> None:
        for queue in queues:
            # As it is when its turn comes: an operator may have reset it, and had that kept, since the first was sent.
            offset = self.table.read_offset(queue)
            if offset is None:
                continue
            try:
                await self._requests.update_consumer_offset(queue, offset, deadline_s)
            except ClientError as error:
                _log.warning("%s: offset %d of %s is not committed: %s", self._requests.group, offset, queue, error)
                if not isinstance(error, BrokerRefused):
                    return  # what it is told next would take as long


@attrs.define(eq=False, repr=False)
class LocalFileOffsetStore:
    """Offsets of a consumer that gets every message: in a file below `directory`, in RocketMQ's form.

    That is the form of a `ResetOffsetBody` (Java: OffsetSerializeWrapper). The file is named after client and group:
    two clients of one group that keep their files in one directory need instance names of their own, as RocketMQ's do.
    """

    _disk: Disk
    _client_id: str
    _group: str
    _directory: str
    table: OffsetTable = attrs.field(factory=OffsetTable, init=False)
    _kept: dict[MessageQueue, int] = attrs.field(factory=dict, init=False)
    _file: ConfigFile = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._file = ConfigFile(self._disk, f"{self._directory}/{self._client_id}/{self._group}/offsets.json")

    def load(self) -> None:
        """Read the file. Raises `ConfigFileDamaged` if neither it nor its `.bak` can be read."""
        loaded = self._file.load_text(lambda data: decode_body(ResetOffsetBody, bytes(data)))
        if loaded.value is not None:
            self._kept = dict(loaded.value.offset_table)

    async def read_from_store(self, queue: MessageQueue) -> int:
        """See `OffsetStore`."""
        found = self._kept.get(queue)
        if found is None:
            return NO_OFFSET
        self.table.update_offset(queue, found, increase_only=False)
        return found

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """See `OffsetStore`. The file is written only when an offset has changed."""
        changed = {**self._kept, **self.table.of_queues(queues)}
        if changed == self._kept:
            return
        try:
            await self._file.persist_text(encode_body(ResetOffsetBody(offset_table=changed)))
        except (OSError, ConfigFileDamaged) as error:
            _log.error("%s: the offsets are not kept: %s", self._group, error)
            return
        self._kept = changed
