"""Whether the store may be read and written, and what stands against it (RunningFlags).

Unlike 4.9's, every flag is cleared when its cause is gone: there a failed write of a consume queue or of the index
closes the store for writes until the process is started again.
"""

from __future__ import annotations

import enum

import attrs


class RunningFlag(enum.IntFlag):
    """What stands against reads or writes; RocketMQ's bits."""

    NOT_READABLE = 1
    NOT_WRITEABLE = 2
    WRITE_LOGICS_QUEUE_ERROR = 4
    WRITE_INDEX_FILE_ERROR = 8
    DISK_FULL = 16
    #: Of RocketMQ 5: another broker is about to be the master.
    FENCED = 32


_AGAINST_WRITES = (
    RunningFlag.NOT_WRITEABLE
    | RunningFlag.WRITE_LOGICS_QUEUE_ERROR
    | RunningFlag.WRITE_INDEX_FILE_ERROR
    | RunningFlag.DISK_FULL
    | RunningFlag.FENCED
)


@attrs.define(eq=False, repr=False)
class RunningFlags:
    """The flags that are set, each with its reason."""

    #: Whether messages may be read.
    is_readable: bool = attrs.field(default=True, init=False)
    #: Whether producers may write.
    is_writeable: bool = attrs.field(default=True, init=False)
    _reasons: dict[RunningFlag, str] = attrs.field(factory=dict, init=False)

    @property
    def bits(self) -> RunningFlag:
        """All flags that are set."""
        bits = RunningFlag(0)
        for flag in self._reasons:
            bits |= flag
        return bits

    @property
    def why_not_writeable(self) -> str:
        """The reasons against writes, in the order of their bits; empty if there are none."""
        return "; ".join(self._reasons[flag] for flag in sorted(self._reasons) if flag & _AGAINST_WRITES)

    def set(self, flag: RunningFlag, reason: str) -> bool:
        """Set one flag; whether it was not set before. A later reason replaces an earlier one."""
        is_new = flag not in self._reasons
        self._reasons[flag] = reason
        self._changed()
        return is_new

    def clear(self, flag: RunningFlag) -> bool:
        """Take one flag back; whether it was set."""
        was_set = self._reasons.pop(flag, None) is not None
        self._changed()
        return was_set

    def _changed(self) -> None:
        self.is_readable = RunningFlag.NOT_READABLE not in self._reasons
        self.is_writeable = not self.bits & _AGAINST_WRITES
