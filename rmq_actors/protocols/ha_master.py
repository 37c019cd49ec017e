"""The master's half of one HA connection: what a slave's bytes mean, and what to send it next.

`SlaveReports` decides for ReadSocketService, `TransferCursor` for WriteSocketService. RocketMQ trusts the first report,
repeats heartbeats for an offset that it no longer has, and starts a new slave at its last file. These machines check
each report, refuse with a reason, and start a new slave at the minimum offset (`docs/ha-protocol.md`).
"""

from __future__ import annotations

import attrs

from rmq_actors.wire.ha_frames import REPORT, REPORT_BYTES

#: How a TLS handshake begins: its content type, and the first byte of a version.
_TLS_BEGIN = 0x1603


class SlaveRefused(ValueError):
    """The slave's mistake, or its misfortune: this connection cannot go on. `reason` is short and stable."""

    reason = "refused"


class SlaveAhead(SlaveRefused):
    """The slave reports more than the master has: it has another log, or the peer is not a slave at all."""

    reason = "slave_ahead"


class OffsetGone(SlaveRefused):
    """The slave asks for bytes that the master has deleted."""

    reason = "offset_gone"


class IllegalReport(SlaveRefused):
    """A negative offset."""

    reason = "illegal_report"


class SlaveSilent(SlaveRefused):
    """Nothing was heard from the slave for haHousekeepingInterval."""

    reason = "housekeeping"


class SlaveStuck(SlaveRefused):
    """The slave reports, but has taken nothing of what it was sent for haHousekeepingInterval."""

    reason = "transfer_stuck"


@attrs.define(eq=False, repr=False)
class SlaveReports:
    """Makes reports of the bytes from a slave, and notices its silence. Times are seconds of one monotonic clock."""

    last_read: float
    housekeeping_interval_s: float
    #: The beginning of a report: less than `REPORT_BYTES`.
    _partial: bytes = attrs.field(default=b"", init=False)
    _seen_one: bool = attrs.field(default=False, init=False)

    def receive(self, data: bytes | memoryview, now: float, *, min_offset: int, max_offset: int) -> int | None:
        """Take bytes as they came; return the newest whole report, or None while it is incomplete.

        A newer report replaces the older ones, so only the last whole one of a buffer counts, as in RocketMQ. All are
        checked, the first one too. Raises `SlaveAhead`, `OffsetGone`, `IllegalReport`.
        """
        buffer = self._partial + bytes(data)
        whole = len(buffer) - len(buffer) % REPORT_BYTES
        self._partial = buffer[whole:]
        # Before its first report a peer has not shown that it is a slave: single bytes keep no place.
        if whole or self._seen_one:
            self.last_read = now
        if not whole:
            return None
        offset = 0
        for (offset,) in REPORT.iter_unpack(buffer[:whole]):
            self._check(offset, min_offset, max_offset)
        return offset

    def _check(self, offset: int, min_offset: int, max_offset: int) -> None:
        if offset < 0:
            raise IllegalReport(f"the slave reports offset {offset}")
        if offset > max_offset:
            raise SlaveAhead(
                f"the slave reports offset {offset}, this master's log ends at {max_offset}{_of_tls(offset)}"
            )
        if not self._seen_one and 0 < offset < min_offset:
            raise OffsetGone(f"the slave asks for offset {offset}, this master's log begins at {min_offset}")
        self._seen_one = True

    @property
    def silent_at(self) -> float:
        """When the slave has been silent too long."""
        return self.last_read + self.housekeeping_interval_s

    def check_silence(self, now: float) -> None:
        """Raise `SlaveSilent` once `now` has reached `silent_at`."""
        if now >= self.silent_at:
            raise SlaveSilent(f"nothing was heard from the slave for {self.housekeeping_interval_s:g} s")


def _of_tls(offset: int) -> str:
    """What else is said of a report that is the beginning of a TLS handshake."""
    return "; it speaks TLS, and this master has not haTlsEnable=true" if offset >> 48 == _TLS_BEGIN else ""


@attrs.frozen
class Transfer:
    """An effect: send `size` bytes of the log from `offset` as one frame; size 0 is a heartbeat."""

    offset: int
    size: int


@attrs.define(eq=False, repr=False)
class SlavePace:
    """How fast the log grows, counted in the reports of one slave, from the beginning of its connection."""

    #: What the slave has confirmed last; -1 before its first report.
    reported_offset: int = attrs.field(default=-1, init=False)
    #: Whether the log grew at most once between the last two reports.
    grows_slowly: bool = attrs.field(default=True, init=False)
    _growths: int = attrs.field(default=0, init=False)

    def grew(self) -> None:
        """The log has grown."""
        self._growths += 1

    def reported(self, offset: int) -> None:
        """The slave has everything before `offset`."""
        self.reported_offset = offset
        self.grows_slowly = self._growths <= 1
        self._growths = 0


@attrs.define(eq=False, repr=False)
class TransferCursor:
    """What to send next. Offsets and sizes are bytes; a frame never crosses the end of a commit-log file."""

    #: All before it was planned. It falls only when a plan is taken back, to where that began.
    next_offset: int
    last_write: float
    file_size_bytes: int
    heartbeat_interval_s: float
    batch_size_bytes: int = 32 * 1024
    group_size_bytes: int = 1024 * 1024
    group_frames_max: int = 256
    housekeeping_interval_s: float = 20.0
    #: While something is being sent: when the socket took a part of it last, or was given it.
    _taken_at: float = attrs.field(default=float("inf"), init=False)

    def plan(self, limit_offset: int, now: float, *, min_offset: int = 0) -> list[Transfer]:
        """The frames to send now: log bytes before `limit_offset`, else a heartbeat when one is due, else nothing.

        The cursor moves past what it returns: send all of it, in order, or end the connection. Raises `OffsetGone` if
        cleaning has overtaken the slave: the log begins at `min_offset` by now.
        """
        if self.next_offset < min_offset:
            raise OffsetGone(f"the slave needs offset {self.next_offset}, this master's log begins at {min_offset} now")
        frames: list[Transfer] = []
        offset, room = self.next_offset, self.group_size_bytes
        while offset < limit_offset and room > 0 and len(frames) < self.group_frames_max:
            left_in_file = self.file_size_bytes - offset % self.file_size_bytes
            size = min(limit_offset - offset, left_in_file, self.batch_size_bytes)
            frames.append(Transfer(offset, size))
            offset += size
            room -= size
        self.next_offset = offset
        if not frames and now >= self.wake_at:
            frames.append(Transfer(offset, 0))
        if frames:
            self._taken_at = now
        return frames

    def plan_at_once(self, limit_offset: int, pace: SlavePace, now: float, *, min_offset: int = 0) -> list[Transfer]:
        """What the task that made the log grow to `limit_offset` sends itself: like `plan`, but never a heartbeat.

        Returns nothing unless the slave has all that it was sent, and one group of frames can hold what is new: what
        comes while something is under way is better sent together. Where the log grows several times between two
        reports it returns nothing, too: that is sent together once all of it has come.
        """
        size = limit_offset - self.next_offset
        if not pace.grows_slowly or self.next_offset != pace.reported_offset or not 0 < size <= self.group_size_bytes:
            return []
        return self.plan(limit_offset, now) if self.next_offset >= min_offset else []

    def take_back(self, frames: list[Transfer]) -> None:
        """Nothing of `frames`, which `plan` has just returned, was sent: the next `plan` returns them again."""
        assert self.next_offset == frames[-1].offset + frames[-1].size, "only the last plan can be taken back"
        self.next_offset = frames[0].offset
        self._taken_at = float("inf")

    def taken(self, now: float) -> None:
        """Some of what `plan` returned has been handed to the socket."""
        self._taken_at = now

    def sent(self, now: float) -> None:
        """All that `plan` returned has been handed to the socket."""
        self.last_write = now
        self._taken_at = float("inf")

    def check_taken(self, now: float) -> None:
        """Raise `SlaveStuck` once the socket has taken nothing for too long: waiting bytes keep deleted files alive."""
        if now >= self._taken_at + self.housekeeping_interval_s:
            raise SlaveStuck(f"the slave has taken nothing for {now - self._taken_at:g} s")

    @property
    def wake_at(self) -> float:
        """When the next heartbeat is due if nothing else is sent."""
        return self.last_write + self.heartbeat_interval_s


def first_offset(requested: int, min_offset: int, last_file_offset: int | None = None) -> int:
    """Where to start for a slave that reports `requested`: a new slave (0) gets everything that there is.

    RocketMQ 4.9 starts a new slave at its last file, so the older history never arrives (#3661). With
    `last_file_offset` (syncFromLastFile) so does this master.
    """
    return requested or (min_offset if last_file_offset is None else max(min_offset, last_file_offset))
