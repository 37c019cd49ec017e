"""Checking a row of files of one size that together hold a log: names, sizes, no gap. Nothing is changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import attrs

from rmq_actors.ports.disk import Disk
from rmq_actors.store.check.finding import CANNOT_BE_OPENED, REFUSED, CheckSummary, Finding, Severity
from rmq_actors.store.files.layout import file_name, parse_file_name
from rmq_actors.store.files.mapped_file import MappedFile


@attrs.frozen
class RowFile:
    """One file of a row: `from_offset` is the offset of its first byte, in the log or queue that the row holds."""

    path: str
    from_offset: int
    size_bytes: int

    @property
    def end_offset(self) -> int:
        """The offset after its last byte."""
        return self.from_offset + self.size_bytes


@attrs.define(eq=False, repr=False)
class FileRow:
    """The files of `directory` that can be read, oldest first. `file_size_bytes`: the size that most of them have."""

    directory: str
    files: list[RowFile] = attrs.field(factory=list)
    file_size_bytes: int = 0
    #: Which bytes no file holds, between the first and the last.
    gaps: list[tuple[int, int]] = attrs.field(factory=list)
    _by_offset: dict[int, RowFile] = attrs.field(factory=dict, init=False)

    @property
    def min_offset(self) -> int:
        """The offset of the first byte; 0 when there is no file."""
        return self.files[0].from_offset if self.files else 0

    @property
    def capacity_end(self) -> int:
        """The offset after the last byte that a file holds."""
        return self.files[-1].end_offset if self.files else 0

    @classmethod
    def load(
        cls,
        disk: Disk,
        directory: str,
        summary: CheckSummary,
        findings: list[Finding],
        severity_from: Callable[[int], Severity],
        strange_name: str = REFUSED,
    ) -> FileRow:
        """List the files and their sizes; what is wrong with the row goes to `findings`.

        `severity_from`: how bad it is that the row is not whole from an offset on. `strange_name`: what a start makes
        of a file that is not named as those of a row are.
        """
        row = cls(directory)
        found = list(row._readable(disk, findings, strange_name))
        summary.files += len(found)
        if found and found[-1].size_bytes == 0:
            empty = found.pop()
            findings.append(Finding(empty.path, 0, "note", "an empty file: it was created, and never got its length"))
        sizes = Counter(file.size_bytes for file in found if file.size_bytes)
        if sizes:
            row.file_size_bytes = max(sizes, key=lambda size: sizes[size])
        for file in found:
            row._add(file, findings, severity_from)
        return row

    def _readable(self, disk: Disk, findings: list[Finding], strange_name: str) -> Iterator[RowFile]:
        for name in disk.list(self.directory):
            path = f"{self.directory}/{name}"
            from_offset = parse_file_name(name)
            if from_offset is None:
                findings.append(
                    Finding(path, 0, "error", f"not the name of a file of this row (20 digits): {strange_name}")
                )
                continue
            try:
                file = disk.open(path, read_only=True)
            except OSError as error:
                findings.append(Finding(path, 0, "error", f"{CANNOT_BE_OPENED}: {error.strerror}"))
                continue
            yield RowFile(path, from_offset, file.size_bytes)
            file.close()

    def _add(self, file: RowFile, findings: list[Finding], severity_from: Callable[[int], Severity]) -> None:
        size = self.file_size_bytes
        if file.size_bytes != size:
            text = f"the file is {file.size_bytes} bytes long, the others of its row are {size}"
            findings.append(Finding(file.path, 0, severity_from(file.from_offset), text))
        expected = self.files[-1].from_offset + size if self.files else file.from_offset
        if file.from_offset > expected:
            missing = ", ".join(file_name(offset) for offset in range(expected, file.from_offset, size)[:3])
            missing += ", ..." if file.from_offset - expected > 3 * size else ""
            text = f"no file holds offsets {expected} to {file.from_offset - 1}: missing before this one: {missing}"
            findings.append(Finding(file.path, 0, severity_from(expected), text))
            self.gaps.append((expected, file.from_offset))
        elif file.from_offset < expected:
            text = f"the file before it ends at {expected}: the two overlap, and this one is not read"
            findings.append(Finding(file.path, 0, "error", text))
            return
        self.files.append(file)
        self._by_offset[file.from_offset] = file

    def find(self, offset: int) -> RowFile | None:
        """The file that holds `offset`, or None."""
        return self._by_offset.get(self._begin_of(offset))

    def place(self, offset: int) -> tuple[str, int]:
        """The path of the file that holds `offset`, or would, and the position in it."""
        begin = self._begin_of(offset)
        return f"{self.directory}/{file_name(max(0, begin))}", offset - max(0, begin)

    def _begin_of(self, offset: int) -> int:
        size = self.file_size_bytes
        return self.min_offset + (offset - self.min_offset) // size * size if size else 0


def open_mapped(disk: Disk, file: RowFile) -> MappedFile:
    """The file, opened for reading. Raises `OSError`. `MappedFile.file` is to be closed."""
    return MappedFile(disk.open(file.path, read_only=True), file.from_offset)
