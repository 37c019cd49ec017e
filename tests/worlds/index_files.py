"""What the index is made of: requests of small records or of the golden logs, a stepping clock, a disk that fails."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import attrs

from rmq_actors.real_io.os_disk import OsDisk, OsFile
from rmq_actors.wire.dispatch_request import DispatchRequest, read_dispatch_request

GOLDEN = Path(__file__).parents[1] / "golden"
EPOCH_MS = 1_700_000_000_000
RECORD_BYTES = 100


@attrs.define
class SteppingClock:
    """A wall clock that says what it is told, and then stands."""

    times_ms: list[int] = attrs.field(factory=list)
    offset_s: int = 0
    ms: int = EPOCH_MS

    def now_ms(self) -> int:
        if self.times_ms:
            self.ms = self.times_ms.pop(0)
        return self.ms

    def utc_offset_s(self, at_ms: int) -> int:
        return self.offset_s


@attrs.define
class FailingDisk(OsDisk):
    """Fails the n-th write or creation from now on."""

    operations_left: int = -1

    def count(self) -> None:
        self.operations_left -= 1
        if self.operations_left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")

    def open(
        self,
        path: str,
        *,
        allocate_bytes: int | None = None,
        read_only: bool = False,
        exclusive: bool = False,
        private: bool = False,
    ) -> OsFile:
        if allocate_bytes is not None:
            self.count()
        file = OsDisk.open(
            self, path, allocate_bytes=allocate_bytes, read_only=read_only, exclusive=exclusive, private=private
        )
        return FailingFile(self, file.path, file.size_bytes, file._fd)


class FailingFile(OsFile):
    def __init__(self, disk: FailingDisk, path: str, size_bytes: int, fd: int) -> None:
        super().__init__(path, size_bytes, fd)
        self.disk = disk

    def write_at(self, offset: int, data: Any) -> None:
        self.disk.count()
        super().write_at(offset, data)

    def write_scattered(self, offsets: Any, values: Any) -> None:
        for offset, value in zip(offsets.tolist(), values.tolist(), strict=True):
            self.write_at(offset, value.to_bytes(4, "big", signed=True))


def message(number: int, keys: str = "", unique_key: str | None = None, **fields: Any) -> DispatchRequest:
    properties = {"KEYS": keys} if keys else {}
    if unique_key is not None:
        properties["UNIQ_KEY"] = unique_key
    return DispatchRequest(
        "T", 0, number * RECORD_BYTES, RECORD_BYTES, 0, EPOCH_MS + number * 1000, number, 0, 0, properties
    )._replace(**fields)


def contents(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((root / "index").glob("*"))]


def golden_requests(store: str) -> list[DispatchRequest]:
    requests = []
    for path in sorted((GOLDEN / store / "commitlog").iterdir()):
        view, position = memoryview(path.read_bytes()), 0
        while position < len(view):
            found = read_dispatch_request(view, position, int(path.name) + position)
            if not isinstance(found, DispatchRequest):
                break
            requests.append(found)
            position += found.msg_size
    return requests
