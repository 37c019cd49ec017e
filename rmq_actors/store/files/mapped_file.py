"""One file of a mapped-file queue: written by `write_at`, read through a read-only mapping."""

from __future__ import annotations

import contextlib

import attrs

from rmq_actors.ports.disk import BytesLike, DiskFile

_CHUNK_BYTES = 1024 * 1024
_ZEROS = bytes(_CHUNK_BYTES)


@attrs.define(eq=False, repr=False)
class MappedFile:
    """A preallocated file that holds the log's bytes from `from_offset`. `wrote_position` is how many are valid."""

    file: DiskFile
    from_offset: int
    #: From 0 to `size_bytes`.
    wrote_position: int = 0
    #: What `used_bytes` has found, until something is written.
    _used_bytes: int | None = attrs.field(default=None, init=False)
    #: How many bytes after the valid ones a write that failed may have left.
    _left_bytes: int = attrs.field(default=0, init=False)

    @property
    def size_bytes(self) -> int:
        """The file's length: how many bytes it can hold."""
        return self.file.size_bytes

    @property
    def room_bytes(self) -> int:
        """How many bytes are free."""
        return self.size_bytes - self.wrote_position

    @property
    def end_offset(self) -> int:
        """The offset after the last valid byte."""
        return self.from_offset + self.wrote_position

    def append(self, data: BytesLike, *, advance: int | None = None) -> None:
        """Write `data` after the last valid byte; count it, or `advance` bytes (a blank covers more than it writes).

        Raises `OSError` with nothing counted, and zeros where a part had been written already: the first records of a
        batch are whole, and a later recovery would find them. Where zeros cannot be written either, nothing else is
        before they are: what is left of a batch would stand, whole, after a record of the size of its first one.
        """
        self._used_bytes = None
        if self._left_bytes:
            self._zero_what_is_left()
        try:
            self.file.write_at(self.wrote_position, data)
        except OSError:
            self._left_bytes = len(data)
            with contextlib.suppress(OSError):  # the next call tries again
                self._zero_what_is_left()
            raise
        self.wrote_position += len(data) if advance is None else advance
        assert self.wrote_position <= self.size_bytes, "whoever appends has looked for room"

    def _zero_what_is_left(self) -> None:
        self.file.write_at(self.wrote_position, bytes(self._left_bytes))
        self._left_bytes = 0

    def cut(self, position: int) -> None:
        """Make `position` the end of the valid bytes, and zero what stands after it. Raises `OSError`."""
        assert 0 <= position <= self.size_bytes
        self.wrote_position = position
        torn_bytes = self.used_bytes() - position
        if torn_bytes > 0:
            self._used_bytes = None
            self.file.write_at(position, bytes(torn_bytes))
        self._left_bytes = 0

    def select(self, offset: int, size: int) -> memoryview:
        """A view of valid bytes, without a copy. Raises `ValueError` outside of them: our mistake."""
        position = offset - self.from_offset
        if position < 0 or position + size > self.wrote_position:
            raise ValueError(f"{size} bytes from {offset} are not in {self.file.path}, valid to {self.end_offset}")
        return self.file.map()[position : position + size]

    def whole(self) -> memoryview:
        """All bytes of the file, valid or not: for recovery."""
        return self.file.map()

    def used_bytes(self) -> int:
        """The file's length without the zeros at its end. Holes are not read: a fresh file is large and sparse."""
        if self._used_bytes is None:
            self._used_bytes = self._find_used_bytes()
        return self._used_bytes

    def _find_used_bytes(self) -> int:
        view, end = self.file.map(), min(self.size_bytes, self.file.written_end())
        while end:
            begin = max(0, end - _CHUNK_BYTES)
            chunk = bytes(view[begin:end])  # comparing views goes byte by byte
            if chunk != (_ZEROS if end - begin == _CHUNK_BYTES else bytes(end - begin)):
                return begin + len(chunk.rstrip(b"\0"))
            end = begin
        return 0


@attrs.define(eq=False, repr=False)
class PreparedFile:
    """A file that was created before the log needs it: all zeros."""

    from_offset: int
    file: DiskFile
    #: Whether it is part of the log now. Whoever writes zeros to it stops then.
    taken: bool = attrs.field(default=False, init=False)

    def take(self) -> DiskFile:
        """Make it a part of the log."""
        assert not self.taken
        self.taken = True
        return self.file
