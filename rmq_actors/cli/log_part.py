"""One file of log bytes, for `store dump`: kept by a cut (`cut/<offset>`), or copied out of a log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rmq_actors.real_io.os_disk import OsDisk, OsFile
from rmq_actors.store.check.dump import Unreadable, read_commit_log
from rmq_actors.store.files.mapped_file_queue import StoreLayoutError
from rmq_actors.wire.record import (
    BLANK,
    BLANK_MAGIC,
    MAX_PROPERTIES_BYTES,
    MESSAGE_MAGIC,
    StoredMessage,
    check_record,
    decode_record,
)

#: Files of other bytes that were kept at the same offset end in .1, .2 and so on.
_NAME = re.compile(r"([0-9]{20})(\.[0-9]+)?")


class _LogPart(OsDisk):
    """The directory of the file, which stands in it as the one file of a log: `offset` is where that log begins."""

    def __init__(self, path: Path, offset: str) -> None:
        super().__init__(path.parent)
        self._name, self._offset = path.name, offset

    def list(self, directory: str) -> list[str]:
        """The one file, by the name that it would have in a log."""
        return [self._offset]

    def open(
        self,
        path: str,
        *,
        allocate_bytes: int | None = None,
        read_only: bool = False,
        exclusive: bool = False,
        private: bool = False,
    ) -> OsFile:
        """The one file."""
        return super().open(self._name, read_only=True)


def read_log_part(path: Path) -> Iterator[StoredMessage | Unreadable]:
    """Every message of the file from the offset on that its name says, and each place that cannot be read.

    Raises `StoreLayoutError` if its name is not an offset, and `OSError`.
    """
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise StoreLayoutError(
            "its name is not the offset in the log at which its bytes stand: 20 digits, and perhaps .1, as "
            "cut/00000000000000001234 has"
        )
    for item in read_commit_log(_LogPart(path, match[1])):
        if isinstance(item, Unreadable) and item.resumes_at is None:
            yield from _read_end(path, item, item.offset - int(match[1]))
        else:
            yield item


def _read_end(path: Path, end: Unreadable, position: int) -> Iterator[StoredMessage | Unreadable]:
    """What stands at the file's end, of which zeros are not kept: a blank, or a record without properties, ends so."""
    with path.open("rb") as file:
        file.seek(position)
        head = file.read(BLANK.size)
        if len(head) == BLANK.size:
            size, magic = BLANK.unpack(head)
            rest_bytes = path.stat().st_size - position
            if magic == BLANK_MAGIC and size >= rest_bytes:
                return
            if magic == MESSAGE_MAGIC and 0 < size - rest_bytes <= MAX_PROPERTIES_BYTES:
                record = memoryview((head + file.read()).ljust(size, b"\0"))
                if check_record(record, 0, end.offset).what == "message":
                    yield decode_record(record, 0, end.offset)
                    return
    yield end
