"""A recorder on a simulated world: broker events enter the world's digest, the world's events enter the trace."""

from __future__ import annotations

from rmq_actors.tracing.event import Event, RunInfo
from rmq_actors.tracing.recorder import Recorder
from sim_net import World
from sim_net.journal import JournalEntry

_COLUMNS = frozenset({"status", "size", "fault_id"})


def open_sim_recorder(world: World, run: RunInfo) -> Recorder:
    """The recorder of one run in `world`. Wall times are virtual too: the world's epoch and its virtual time."""
    epoch_ns = world.config.epoch_ms * 1_000_000

    def now() -> tuple[int, int]:
        return world.now_ns, epoch_ns + world.now_ns

    recorder = Recorder(run, now)

    def take(entry: JournalEntry) -> None:
        attributes = {name: str(value) for name, value in entry.attributes.items() if name not in _COLUMNS}
        status, size, fault_id = (entry.attributes.get(name) for name in ("status", "size", "fault_id"))
        recorder.record(
            entry.node,
            "sim_net",
            entry.kind,
            status=None if status is None else str(status),
            size=None if size is None else int(size),
            fault_id=None if fault_id is None else int(fault_id),
            attributes=attributes,
        )

    def mix(event: Event) -> None:
        if event.actor != "sim_net":
            world.journal.mix(repr(event).encode())

    recorder.subscribe(mix)
    world.journal.subscribe(take)
    return recorder
