"""A recorder on a simulated world: broker events enter the world's digest, the world's events enter the trace."""

from __future__ import annotations

import marshal

from rmq_actors.tracing.event import Event, RunInfo
from rmq_actors.tracing.recorder import Recorder
from sim_net import World
from sim_net.journal import JournalEntry
from sim_net.nemesis import Announce

_COLUMNS = frozenset({"status", "size", "fault_id"})


def open_sim_recorder(world: World, run: RunInfo) -> Recorder:
    """The recorder of one run in `world`. Wall times are virtual too: the world's epoch and its virtual time."""
    epoch_ns = world.config.epoch_ms * 1_000_000
    kernel, add_to_digest, dumps = world.kernel, world.kernel.digest.add, marshal.dumps

    def now() -> tuple[int, int]:
        now_ns = round(kernel.now_s * 1e9)
        return now_ns, epoch_ns + now_ns

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
            # Far cheaper than `repr`, and says where it ends; version 2 knows no references between objects.
            add_to_digest(dumps(event[:], 2))  # type: ignore[arg-type]  # every Mapping there is a dict

    def announce_events(announce: Announce) -> None:
        def tell(event: Event) -> None:
            if event.actor != "sim_net":
                announce(event.node, event.kind)

        recorder.subscribe(tell)

    recorder.subscribe(mix)
    world.journal.subscribe(take)
    world.trace_source(announce_events)
    return recorder
