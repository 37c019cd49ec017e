"""Every log that some broker has written, also those that are gone: `LogsOfMasters`, which finds records in them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import attrs

from rmq_actors.testing.lineage import Lineage
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.store import LogAppend
from rmq_actors.wire.record import BLANK, MESSAGE_MAGIC, StoredMessage, decode_message


@attrs.define(eq=False, repr=False)
class LogsOfMasters:
    """What clients were told may come long after it was true: it is looked for in all that was ever appended."""

    #: The present one of each node last.
    _lineages: list[Lineage] = attrs.field(factory=list, init=False)

    def note(self, event: LogAppend, view: ClusterView) -> None:
        """Every append must be told."""
        lineage = view.nodes[event.node].lineage
        if not self._lineages or self._lineages[-1] is not lineage:
            self._lineages = [each for each in self._lineages if each is not lineage] + [lineage]

    def find(self, offset: int, size: int, checksum: int, view: ClusterView) -> Lineage | None:
        """The log, the master's first, that has these bytes, of which `checksum` is the CRC-32."""
        for lineage in (view.log_of_master, *reversed(self._lineages)):
            if zlib.crc32(lineage.log[offset : offset + size]) == checksum and len(lineage.log) >= offset + size:
                return lineage
        return None

    def messages_at(self, offset: int, view: ClusterView) -> list[StoredMessage]:
        """The messages that stood there, in any log."""
        found = []
        for lineage in (view.log_of_master, *reversed(self._lineages)):
            size, magic = BLANK.unpack(lineage.log[offset : offset + BLANK.size].ljust(BLANK.size, b"\0"))
            if magic == MESSAGE_MAGIC and len(lineage.log) >= offset + size:
                found.append(decode_message(memoryview(lineage.log[offset : offset + size])))
        return found

    def messages(self, view: ClusterView) -> Iterator[StoredMessage]:
        """Every message of every log, those of several as often."""
        for lineage in {id(each): each for each in (view.log_of_master, *self._lineages)}.values():
            yield from self.messages_of(lineage, 0, len(lineage.log))

    @staticmethod
    def messages_of(lineage: Lineage, begin: int, end: int) -> Iterator[StoredMessage]:
        """The messages of a part of a log, which begins and ends with a record."""
        for at in lineage.records(begin, end):
            size, magic = BLANK.unpack_from(lineage.log, at)
            if magic == MESSAGE_MAGIC:
                yield decode_message(memoryview(lineage.log[at : at + size]))
