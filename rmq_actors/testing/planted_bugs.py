# ruff: noqa: SLF001  # the bugs are in the machines' insides
"""Wrong variants of the pure machines, each with a known fault. A chaos pipeline that cannot find them sees nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import attrs

from rmq_actors.broker.store_host import Machines
from rmq_actors.ha.config import HaConfig
from rmq_actors.ha.ha_client import MakeSlave, make_ha_slave
from rmq_actors.protocols.group_transfer import GroupTransfer, ReplicationState
from rmq_actors.protocols.ha_slave import Append, HaSlave


@attrs.frozen
class PlantedBug:
    """A bug: its name, what is wrong, and the machines that have it (made again for each node)."""

    name: str
    description: str
    make_machines: Callable[[], Machines]


def _stale_frame() -> Machines:
    previous: list[HaSlave] = []

    def make(max_offset: int, now: float, config: HaConfig) -> HaSlave:
        slave = make_ha_slave(max_offset, now, config)
        if previous:
            old = previous.pop()
            rest = bytes(memoryview(old._buffer)[old._begin : old._end])  # the bug is in its insides
            slave._buffer[: len(rest)] = rest
            slave._end = len(rest)
        previous.append(slave)
        return slave

    return Machines(make_slave=make)


class _AckOfHeader(HaSlave):
    """Counts a frame as received once its header is."""

    def received(self, size: int, now: float) -> Iterator[Append]:
        yield from super().received(size, now)
        if self._end - self._begin >= 12:
            header = memoryview(self._buffer)[self._begin : self._begin + 12]
            self.promised = int.from_bytes(header[:8], "big") + int.from_bytes(header[8:], "big")

    promised = 0

    def report(self, log_offset: int, now: float) -> bytes | None:
        return super().report(max(log_offset, self.promised), now)


def _ack_of_header() -> Machines:
    def make(max_offset: int, now: float, config: HaConfig) -> HaSlave:
        return _AckOfHeader(
            max_offset, now, config.heartbeat_interval_s, config.housekeeping_interval_s, config.read_buffer_bytes
        )

    make_slave: MakeSlave = make
    return Machines(make_slave=make_slave)


class _AnyAck(GroupTransfer):
    """Takes every connected slave for one that has everything."""

    def state(self) -> ReplicationState:
        state = super().state()
        return ReplicationState(state.live_slaves, 1 << 62 if state.live_slaves else 0)


#: Every planted bug by name.
PLANTED_BUGS: Mapping[str, PlantedBug] = {
    bug.name: bug
    for bug in (
        PlantedBug(
            "stale_frame",
            "a slave keeps half a frame of a broken connection and reads the next connection's bytes after it",
            _stale_frame,
        ),
        PlantedBug("ack_of_header", "a slave acknowledges a frame when it has only its header", _ack_of_header),
        PlantedBug(
            "any_ack",
            "the master takes a connected slave for a replicated one",
            lambda: Machines(make_group_transfer=_AnyAck),
        ),
    )
}
