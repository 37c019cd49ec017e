"""How far each consumer group is in each queue (ConsumerOffsetManager): a table, and `config/consumerOffset.json`."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet

import attrs

from rmq_actors.broker.quotas import QuotaReached, Room
from rmq_actors.ports.disk import Disk
from rmq_actors.store.files.json_file import ConfigFile
from rmq_actors.store.files.layout import CONSUMER_OFFSET_FILE
from rmq_actors.wire.bodies.decoding import VALUES_MAX, decode_body, decode_file
from rmq_actors.wire.bodies.offsets import ConsumerOffsetSerializeWrapper
from rmq_actors.wire.fastjson import write_fastjson
from rmq_actors.wire.remoting_command import FRAME_MAX_LENGTH_BYTES

_log = logging.getLogger(__name__)

TOPIC_GROUP_SEPARATOR = "@"

#: The field must be there, as a table without entries deletes everything.
_OFFSET_TABLE = re.compile(rb'"offsetTable"\s*:\s*\{')

#: Offsets by queue id, by "topic@group".
OffsetTable = dict[str, dict[int, int]]
#: What one offset takes in the file at most, `-2147483648:-9223372036854775808,`.
_ENTRY_MAX_BYTES = 33
#: What a key takes beside its text: line breaks, tabs, braces, a colon and a comma.
_KEY_AROUND_BYTES = 16
#: With room for what stands around the table.
_TABLE_MAX_BYTES = FRAME_MAX_LENGTH_BYTES - 1024


class OffsetTableMissing(ValueError):
    """A master's answer has no table of offsets, not even an empty one."""


def topic_at_group(topic: str, group: str) -> str:
    """The key of a topic's offsets for a group."""
    return f"{topic}{TOPIC_GROUP_SEPARATOR}{group}"


@attrs.define(eq=False, repr=False)
class ConsumerOffsetManager:
    """What consumers committed, here or, on a slave, to the master. `persist` makes it durable."""

    _table: OffsetTable
    _file: ConfigFile
    #: Counted up by each change; what the file is known to hold.
    _changes: int = attrs.field(default=0, init=False)
    _persisted: int = attrs.field(default=0, init=False)
    #: How many offsets there are, and what the table's JSON takes at most.
    _entries: int = attrs.field(default=0, init=False)
    _json_bytes: int = attrs.field(default=0, init=False)
    #: Keys that consumers have committed to this broker and that no master's table has had since.
    _only_here: dict[str, None] = attrs.field(factory=dict, init=False)
    #: The last answer of a master, and `_changes` once it was taken over.
    _followed: tuple[bytes, int] = attrs.field(default=(b"", 0), init=False)
    #: The JSON of each key that has not changed since it was written: few change between two writes of a large table.
    _encoded: dict[str, bytes] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        for key, offsets in self._table.items():
            self._count(_key_bytes(key), len(offsets))

    @classmethod
    def load(cls, disk: Disk) -> ConsumerOffsetManager:
        """Read the file. Raises `ConfigFileDamaged`."""
        file = ConfigFile(disk, CONSUMER_OFFSET_FILE, FRAME_MAX_LENGTH_BYTES)
        loaded = file.load_text(_decode)
        manager = cls(loaded.value or {}, file)
        if loaded.source == "backup":
            manager._changes += 1
        return manager

    def commit_offset(self, client_host: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Take a consumer's offset. It may be lower than before: a consumer may want to read again."""
        key = topic_at_group(topic, group)
        before = self._table.get(key, {}).get(queue_id)
        if before is not None and offset < before:
            _log.warning("%s sets %s queue %d back, from %d to %d", client_host, key, queue_id, before, offset)
        if before != offset:
            self._only_here[key] = None
            self._set(key, {queue_id: offset})

    def check_room(self, room: Room, group: str, topic: str, queues: Collection[int]) -> None:
        """Raise `QuotaReached` if offsets in these queues are new ones, and there is no room for them.

        A table that is too long for a file or a frame could be neither kept nor sent, not one offset of it.
        """
        key = topic_at_group(topic, group)
        known = self._table.get(key)
        added = len(queues) if known is None else sum(queue not in known for queue in queues)
        if not added:
            return
        room.check(self._entries, added, "offsets")
        added_bytes = added * _ENTRY_MAX_BYTES + (_key_bytes(key) if known is None else 0)
        if self._json_bytes + added_bytes > _TABLE_MAX_BYTES:
            raise QuotaReached(
                f"the table of offsets may take {self._json_bytes} of {_TABLE_MAX_BYTES} bytes, {added_bytes} more "
                "do not fit"
            )

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        """The offset of a group in a queue; -1 where there is none."""
        return self._table.get(topic_at_group(topic, group), {}).get(queue_id, -1)

    def offsets_of(self, group: str, topic: str) -> Mapping[int, int]:
        """The offsets of a group in a topic, by queue."""
        return self._table.get(topic_at_group(topic, group), {})

    def topics_of(self, group: str) -> list[str]:
        """The topics in which a group has offsets (whichTopicByConsumer)."""
        keys = (key.rpartition(TOPIC_GROUP_SEPARATOR) for key in self._table)
        return [topic for topic, _, name in keys if name == group]

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have offsets in a topic (whichGroupByTopic)."""
        keys = (key.rpartition(TOPIC_GROUP_SEPARATOR) for key in self._table)
        return [group for name, _, group in keys if name == topic]

    def clone_offset(self, source: str, target: str, topic: str) -> None:
        """Let a group be where another one is in a topic, and nowhere else."""
        offsets = self._table.get(topic_at_group(topic, source))
        if offsets is not None and source != target:
            key = topic_at_group(topic, target)
            if key in self._table:
                self._remove(key)
            self._only_here[key] = None
            self._set(key, offsets)

    def remove_offset(self, group: str) -> None:
        """Forget a group, in all topics."""
        for key in [key for key in self._table if key.rpartition(TOPIC_GROUP_SEPARATOR)[2] == group]:
            self._remove(key)

    def remove_topics(self, topics: AbstractSet[str]) -> None:
        """Forget how far any group is in these topics."""
        for key in [key for key in self._table if key.rpartition(TOPIC_GROUP_SEPARATOR)[0] in topics]:
            self._remove(key)

    def correct(self, end_of_queue: Callable[[str, int], int]) -> None:
        """Lower offsets past the end of their queue: the log was cut, and new messages there would be skipped."""
        for key, offsets in self._table.items():
            topic = key.rpartition(TOPIC_GROUP_SEPARATOR)[0]
            ends = {queue: end_of_queue(topic, queue) for queue in offsets}
            lowered = {queue: end for queue, end in ends.items() if end < offsets[queue]}
            if lowered:
                _log.warning("%s: offsets %s are corrected to %s, where queues end", key, offsets, lowered)
                self._set(key, lowered)

    def wrapper(self) -> ConsumerOffsetSerializeWrapper:
        """The table itself, not a copy."""
        return ConsumerOffsetSerializeWrapper(offset_table=self._table)

    def encode(self) -> bytes:
        """The table as it is sent to a slave (GET_ALL_CONSUMER_OFFSET)."""
        return b'{"offsetTable":{%b}}' % b",".join(self._pieces())

    def follow(self, data: bytes) -> bool:
        """Take over what a master sent; whether anything changed.

        What the master has deleted is deleted here too (4.9 keeps it), except what consumers committed here while they
        could not reach the master. An offset never goes back, as a slave that has served consumers knows better
        (#1094). Raises `RemotingCommandError`, and `OffsetTableMissing`, with everything as it was.
        """
        if self._followed == (data, self._changes):
            return False
        if _OFFSET_TABLE.search(data) is None:
            raise OffsetTableMissing(f"no offsetTable in {data[:100]!r}")
        has_changed = self._merge(decode_body(ConsumerOffsetSerializeWrapper, data).offset_table)
        self._followed = data, self._changes
        return has_changed

    def _merge(self, master_table: Mapping[str, Mapping[int, int]]) -> bool:
        before = self._changes
        for key in [key for key in self._table if key not in master_table and key not in self._only_here]:
            self._remove(key)
        for key, offsets in master_table.items():
            self._only_here.pop(key, None)
            mine = self._table.get(key)
            if mine is None:
                self._set(key, offsets)
            elif newer := {queue: offset for queue, offset in offsets.items() if offset > mine.get(queue, -1)}:
                self._set(key, newer)
        return self._changes != before

    async def persist(self) -> bool:
        """Write the file if the table has changed; return when it is durable: whether it was written.

        Raises `OSError`, and `ValueError` for a table that could not be read again.
        """
        changes = self._changes
        if changes == self._persisted:
            return False
        if sum(len(offsets) + 1 for offsets in self._table.values()) >= VALUES_MAX:
            raise ValueError(f"{CONSUMER_OFFSET_FILE}: more than {VALUES_MAX} offsets could not be read again")
        await self._file.persist_text(self._pretty())
        self._persisted = changes
        return True

    def _pretty(self) -> bytes:
        """As `encode`, in fastjson's PrettyFormat."""
        lines = [b"\n\t\t" + (piece if piece.endswith(b"{}") else piece[:-1] + b"\n\t\t}") for piece in self._pieces()]
        return b'{\n\t"offsetTable":{%b}\n}' % (b",".join(lines) + b"\n\t" if lines else b"")

    def _pieces(self) -> list[bytes]:
        """`"topic@group":{0:1,1:2}` of each key."""
        encoded, pieces = self._encoded, []
        for key, offsets in self._table.items():
            piece = encoded.get(key)
            if piece is None:
                queues = ",".join([f"{queue}:{offset}" for queue, offset in offsets.items()])
                piece = encoded[key] = write_fastjson(key) + b":{%b}" % queues.encode()
            pieces.append(piece)
        return pieces

    def _set(self, key: str, offsets: Mapping[int, int]) -> None:
        known = self._table.get(key)
        if known is None:
            known = self._table[key] = {}
            self._count(_key_bytes(key), 0)
        before = len(known)
        known.update(offsets)
        self._count(0, len(known) - before)
        self._encoded.pop(key, None)
        self._changes += 1

    def _count(self, key_bytes: int, entries: int) -> None:
        self._entries += entries
        self._json_bytes += key_bytes + entries * _ENTRY_MAX_BYTES

    def _remove(self, key: str) -> None:
        self._count(-_key_bytes(key), -len(self._table.pop(key)))
        self._encoded.pop(key, None)
        self._only_here.pop(key, None)
        self._changes += 1


def _key_bytes(key: str) -> int:
    return len(write_fastjson(key)) + _KEY_AROUND_BYTES


def _decode(data: memoryview) -> OffsetTable:
    return decode_file(ConsumerOffsetSerializeWrapper, data).offset_table
