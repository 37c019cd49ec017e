"""Logs of a slave and its master of which it is known what they have in common, and masters that answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import attrs

from rmq_actors.wire.record import BLANK, MESSAGE_MAGIC, encode_blank

FILE_BYTES = 256


@attrs.frozen
class Log:
    """Bytes from `min_offset` on, in files; `offsets` are where whole records begin."""

    data: bytes
    offsets: Sequence[int]
    min_offset: int = 0
    file_size_bytes: int = FILE_BYTES

    @property
    def max_offset(self) -> int:
        return len(self.data)

    def file_at(self, offset: int) -> tuple[memoryview, int]:
        assert self.min_offset <= offset < self.max_offset, "outside of the log"
        begin = offset - offset % FILE_BYTES
        return memoryview(self.data[begin : begin + FILE_BYTES].ljust(FILE_BYTES, b"\0")), begin

    def cut(self, end: int) -> Log:
        return attrs.evolve(
            self, data=self.data[:end], offsets=[each for each in self.offsets if self.end(each) <= end]
        )

    def end(self, offset: int) -> int:
        return offset + int(BLANK.unpack_from(self.data, offset)[0])

    def delete(self, files: int) -> Log:
        begin = min(files, (self.max_offset - 1) // FILE_BYTES) * FILE_BYTES if self.data else 0
        return attrs.evolve(self, min_offset=begin, offsets=[each for each in self.offsets if each >= begin])


def log_of(records: Sequence[tuple[int, str]]) -> Log:
    """Records of these sizes, each with a name that no other has, where a store puts them."""
    data, offsets = b"", []
    for size, name in records:
        room = FILE_BYTES - len(data) % FILE_BYTES
        if size + BLANK.size > room:
            data += encode_blank(room).ljust(room, b"\0")
        offsets.append(len(data))
        data += BLANK.pack(size, MESSAGE_MAGIC) + name.encode().ljust(size - BLANK.size, b"~")
    return Log(data, offsets)


@attrs.define
class Master:
    """Answers as this project's master does, or as Java's: with whatever stands at an offset."""

    log: Log
    kind: Literal["own", "java"]

    async def record_at(self, offset: int) -> bytes | None:
        log = self.log
        if not log.min_offset <= offset <= log.max_offset - BLANK.size:
            return None
        end, file_end = log.end(offset), offset - offset % FILE_BYTES + FILE_BYTES
        if (
            self.kind == "own"
            and offset not in log.offsets
            and log.data[offset:][: BLANK.size] != encode_blank(file_end - offset)
        ):
            return None
        return log.data[offset:end] if offset <= end <= min(file_end, log.max_offset) else None
