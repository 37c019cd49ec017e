"""Where things are in a store directory: RocketMQ's names."""

from __future__ import annotations

COMMIT_LOG_DIRECTORY = "commitlog"
_OFFSET_DIGITS = 20


def file_name(from_offset: int) -> str:
    """A file of the log is named after the offset of its first byte, in 20 digits (UtilAll.offset2FileName)."""
    return f"{from_offset:0{_OFFSET_DIGITS}d}"


def parse_file_name(name: str) -> int | None:
    """The offset that a file name stands for, or None if it is not such a name."""
    return int(name) if len(name) == _OFFSET_DIGITS and name.isascii() and name.isdigit() else None
