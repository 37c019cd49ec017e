"""A recorder on a simulated world: broker events enter the world's digest, the world's events enter the trace."""

from __future__ import annotations

import marshal

from rmq_actors.tracing.event import Event, RunInfo, event_of, values_of
from rmq_actors.tracing.recorder import Recorder
from sim_net import World
from sim_net.faults.nemesis import Announce
from sim_net.kernel.journal import JournalEntry

_WORLD = "sim_net"


def open_sim_recorder(world: World, run: RunInfo) -> Recorder:
    """The recorder of one run in `world`. Wall times are virtual too: the world's epoch and its virtual time."""
    epoch_ns = world.config.epoch_ms * 1_000_000
    kernel, add_to_digest, dumps = world.kernel, world.kernel.digest.add, marshal.dumps

    def now() -> tuple[int, int]:
        now_ns = round(kernel.now_s * 1e9)
        return now_ns, epoch_ns + now_ns

    recorder = Recorder(run, now)

    def take(entry: JournalEntry) -> None:
        recorder.record(event_of(entry.kind, entry.attributes), entry.node, _WORLD)

    def mix(event: Event) -> None:
        if event.actor != _WORLD:
            # Far cheaper than `repr`, and says where it ends; version 2 knows no references between objects.
            add_to_digest(dumps((event.kind, values_of(event)), 2))

    def announce_events(announce: Announce) -> None:
        def tell(event: Event) -> None:
            if event.actor != _WORLD:
                announce(event.node, event.kind)

        recorder.subscribe(tell)

    recorder.subscribe(mix)
    world.journal.subscribe(take)
    world.trace_source(announce_events)
    return recorder
