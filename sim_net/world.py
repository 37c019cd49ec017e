"""A world: nodes, the network between them, one clock, and one seed that everything random comes from."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, TypeVar

import attrs
import trio
from attrs import validators

from sim_net.disk.disk import DiskConfig
from sim_net.faults.nemesis import Nemesis
from sim_net.field_checks import check_count, check_flag, check_positive, check_whole
from sim_net.kernel import determinism
from sim_net.kernel.guard import Guard
from sim_net.kernel.journal import Journal
from sim_net.kernel.kernel import Kernel, TasksIgnoreCancellation
from sim_net.kernel.pausing import Pauses
from sim_net.kernel.usage import Usage, counting
from sim_net.net.link import LinkConfig
from sim_net.net.network import Network
from sim_net.node import Incarnation, Node

if TYPE_CHECKING:
    from sim_net.faults.fault import Fault
    from sim_net.faults.nemesis import Announce, AppliedFault
    from sim_net.faults.schedule import Schedule

T = TypeVar("T")

_FIRST_ADDRESS: Final = 10 << 24
_current: Final[trio.lowlevel.RunVar[World]] = trio.lowlevel.RunVar("sim_net.current_world")


@attrs.frozen
class WorldConfig:
    """What a world is like while no fault is at work, and when a run has gone on for too long."""

    #: Every link between two nodes.
    link: LinkConfig = attrs.field(factory=LinkConfig, validator=validators.instance_of(LinkConfig))
    #: Every node's disk.
    disk: DiskConfig = attrs.field(factory=DiskConfig, validator=validators.instance_of(DiskConfig))
    #: How much a socket takes before a sender waits. Small buffers show what a program does when only a part is taken.
    send_buffer_bytes: int = attrs.field(default=65_536, validator=check_count)
    #: How much the other side holds for a receiver that does not read: the window that it opens.
    receive_buffer_bytes: int = attrs.field(default=65_536, validator=check_count)
    #: How long a connection attempt lasts that nobody answers, before ETIMEDOUT.
    connect_timeout_s: float = attrs.field(default=7.0, validator=check_positive)
    #: A run that takes more task steps fails with `StepsExceeded`: raise it for long runs.
    steps_max: int = attrs.field(default=20_000_000, validator=check_count)
    #: So many task steps, or kernel events, without any progress of time are a `Livelock`: a program that spins is
    #: found, and so is one with that much honest work at one instant.
    steps_at_one_instant_max: int = attrs.field(default=100_000, validator=check_count)
    #: A run that goes past this time fails with `VirtualTimeExceeded`: a program that only sleeps and never ends is
    #: found.
    virtual_time_max_s: float = attrs.field(default=7 * 86_400.0, validator=check_positive)
    #: The wall clocks' time at the start of a run, in ms since the Unix epoch; 2024-01-01. Another one moves every time
    #: stamp, and so a run's digest.
    epoch_ms: int = attrs.field(default=1_704_067_200_000, validator=check_whole)
    #: Whether `Journal.entries` keeps the entries for a test to look at. Off, long runs take less memory; subscribers
    #: and the digest have each entry all the same.
    journal_keep: bool = attrs.field(default=True, validator=check_flag)
    #: How many it keeps; the oldest go first.
    journal_entries_max: int = attrs.field(default=100_000, validator=check_count)


_DEFAULT: Final = WorldConfig()


def current_world() -> World:
    """The world that the current task, or callback of the world, is in. RuntimeError outside of one."""
    try:
        return _current.get()
    except LookupError:
        raise RuntimeError("this Trio run is not in a simulated world") from None


def run(
    main: Callable[[World], Awaitable[T]],
    *,
    seed: int,
    config: WorldConfig = _DEFAULT,
    nodes: Iterable[str] = (),
    schedule: Schedule | None = None,
    guard_packages: Sequence[str] = (),
) -> T:
    """Make a world with `nodes`, run `main(world)` in it under the faults of `schedule`, and return its result.

    Raises what `World.run` does, and `ValueError` if a fault is of a node that is not in `nodes`.
    """
    world = World(seed, config, guard_packages=guard_packages)
    for name in nodes:
        world.node(name)
    if schedule is not None:
        world.start_schedule(schedule)
    return world.run(main)


class World:
    """One simulated world, for one run. `guard_packages` name the packages that must not touch the real one."""

    def __init__(self, seed: int, config: WorldConfig = _DEFAULT, *, guard_packages: Sequence[str] = ()) -> None:
        if isinstance(guard_packages, str):
            raise TypeError(f"guard_packages must be a sequence of names, not {guard_packages!r}")
        self.seed = seed
        self.config = config
        self.kernel = Kernel(
            steps_max=config.steps_max,
            steps_at_one_instant_max=config.steps_at_one_instant_max,
            virtual_time_max_s=config.virtual_time_max_s,
        )
        self.kernel.on_failure = self._cancel_everything
        self.journal = Journal(self.kernel, keep=config.journal_keep, entries_max=config.journal_entries_max)
        self.network = Network(
            self.kernel,
            self.journal,
            seed,
            config.link,
            send_buffer_bytes=config.send_buffer_bytes,
            receive_buffer_bytes=config.receive_buffer_bytes,
            connect_timeout_s=config.connect_timeout_s,
        )
        #: The nodes by name, in the order in which they were made.
        self.nodes: dict[str, Node] = {}
        self._guard = Guard(tuple(guard_packages), self.kernel.fail, lambda: config.epoch_ms / 1000 + self.kernel.now_s)
        self.pauses = Pauses()
        self._nemesis = Nemesis(self)
        self._main_scope = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._incarnations: dict[Incarnation, None] = {}
        self._boot_first: dict[Node, None] = {}
        self._state = "new"

    # --- what it tells ----------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """Virtual time since the start of the run, in seconds."""
        return self.kernel.now_s

    @property
    def now_ns(self) -> int:
        """Virtual time since the start of the run, in ns."""
        return self.kernel.now_ns

    @property
    def steps(self) -> int:
        """Task steps so far."""
        return self.kernel.steps

    @property
    def events(self) -> int:
        """Kernel events so far: arrivals, disk completions, timers."""
        return self.kernel.events

    @property
    def digest(self) -> str:
        """32 hex digits over every task step, kernel network event, journal entry and `Journal.mix` so far."""
        return self.kernel.digest.hexdigest()

    @property
    def is_closing(self) -> bool:
        """Whether the harness has returned or the run has failed: what still runs is being stopped."""
        return self._state in ("closing", "over")

    @property
    def faults(self) -> Sequence[AppliedFault]:
        """Every fault that was applied, and how far each has come: not all begin, if they wait for an event."""
        return self._nemesis.faults

    @property
    def faults_end_s(self) -> float:
        """When the last fault is over, in virtual seconds; one whose event has not come yet does not count."""
        return max((each.ends_s for each in self.faults if each.ends_s is not None), default=0.0)

    def leaks(self) -> list[str]:
        """What is left of processes that should be over, for an end of a run at which no node runs.

        What they had not closed when they ended (`Node.left_open`), their tasks, ports, and ends of connections, on
        either side.
        """
        found = [what for node in self.nodes.values() for what in node.left_open]
        found += [f"{each.node.name}: process {each.number} has not ended" for each in self._incarnations]
        found += [f"{node.name}: port {port}" for node in self.nodes.values() for port in node.ports.taken]
        return found + self.network.open_ends()

    def usage(self) -> AbstractContextManager[Usage]:
        """Count within a block what nodes do: `with world.usage() as usage: ...`. It changes nothing of the run."""
        return counting({name: node.disk for name, node in self.nodes.items()})

    def task_number(self) -> int:
        """The current task's number, in order of spawning; RuntimeError outside a task of this world."""
        return self.kernel.task_number(trio.lowlevel.current_task())

    # --- what it does -----------------------------------------------------------------------------------------------

    def node(self, name: str, address: str | None = None) -> Node:
        """Make a node. Its name resolves to its address, which is the next of 10.0.0.1, 10.0.0.2, ... if not given."""
        if not name or name in self.nodes or name.lower() == "localhost":
            raise ValueError(f"a node must have a name of its own, not {name!r}")
        node = Node(
            self, name, address or trio.socket.inet_ntoa((_FIRST_ADDRESS + len(self.nodes) + 1).to_bytes(4, "big"))
        )
        self.network.add_node(node)
        self.nodes[name] = node
        return node

    def run(self, main: Callable[[World], Awaitable[T]]) -> T:
        """Run `main(world)` as the harness; when it returns, every node is stopped and its result is returned.

        Raises what `main` raises; `NodeFailed` when a node's program does (`NodeExited` if by `sys.exit`); `Deadlock`,
        `Livelock`, `StepsExceeded` or `VirtualTimeExceeded`; whatever a callback of the world raised; each with a note
        of the seed and the virtual time. Not to be called from within Trio; once only.
        """
        if self._state != "new":
            raise RuntimeError("a world runs once: make another for another run")
        self._state = "running"
        try:
            return self._run(main)
        except BaseException as error:
            error.add_note(f"in a simulated world with seed {self.seed}, at {self.now_s} s")
            raise

    def _run(self, main: Callable[[World], Awaitable[T]]) -> T:
        outcome: list[T] = []
        try:
            with (
                self._guard.watching(),
                determinism.deterministic_trio(self.seed, self._guard.refuse, self.kernel.take_batch),
            ):
                trio.run(self._root, main, outcome, clock=self.kernel, instruments=[self.kernel])
        except trio.TrioInternalError as error:
            if not isinstance(error.__cause__, TasksIgnoreCancellation) or self.kernel.failure is None:
                raise
            self.kernel.failure.add_note("some tasks did not end when the failed run was cancelled, and were abandoned")
        finally:
            self._state = "over"
            self._nursery = None
        if self.kernel.failure is not None:
            raise self.kernel.failure
        return outcome[0]

    def at(self, time_s: float, callback: Callable[[], object]) -> None:
        """Call `callback` at virtual time `time_s` since the start (now if that is past), outside any task.

        It may boot, kill, set events and cancel scopes, but not await. What it raises fails the run. ValueError for a
        time that is not finite.
        """
        if not math.isfinite(time_s):
            raise ValueError(f"time_s must be a finite number, not {time_s}")

        def call() -> None:
            self.kernel.woken = True
            callback()

        self.kernel.call_at(time_s, call)

    def apply(self, fault: Fault, fault_id: int) -> None:
        """Let `fault` begin at its `at_s` (now if that is past) and end in its time. ValueError if it names no node."""
        self._nemesis.apply(fault, fault_id)

    def start_schedule(self, schedule: Schedule) -> None:
        """Apply every fault of a schedule; its place in it is its `fault_id`. Times count from the start of the run."""
        self._nemesis.start(schedule)

    def trace_source(self, start: Callable[[Announce], object]) -> None:
        """Let a program's own trace set faults off: `start(announce)` is called once a fault waits for an event.

        `announce(node, kind)` is to be called after each event. A fault that follows its event by 0 s begins within
        the call, so a process dies right there.
        """
        self._nemesis.trace_source(start)

    def stop_waiting(self) -> None:
        """Call off every fault whose event has not come yet."""
        self._nemesis.stop_waiting()

    def fail(self, error: BaseException) -> None:
        """End the run: cancel everything, and let `run` raise `error`. The first failure wins."""
        self.kernel.fail(error)

    # --- for its parts ----------------------------------------------------------------------------------------------

    def boots_first(self, node: Node) -> bool:
        """Before the run: let `node` boot when that begins. RuntimeError if it does so already. False later on."""
        if self._state != "new":
            return False
        if node in self._boot_first:
            raise RuntimeError(f"node {node.name} boots when the run begins already")
        self._boot_first[node] = None
        return True

    def check_running(self, node: Node) -> None:
        """RuntimeError when no process of `node` can start: the world does not run."""
        if self._nursery is None:
            why = "has no process before the run begins" if self._state == "new" else "boots no more: the run is over"
            raise RuntimeError(f"node {node.name} {why}")

    def spawn_incarnation(self, incarnation: Incarnation, live: Callable[[], Awaitable[None]]) -> None:
        """Start the root task of a node's process, while the world runs."""
        assert self._nursery is not None
        self._incarnations[incarnation] = None
        self.kernel.woken = True
        if self._state == "closing":
            incarnation.scope.cancel()

        async def run() -> None:
            try:
                await live()
            finally:
                del self._incarnations[incarnation]

        self._nursery.start_soon(run, name=f"node {incarnation.node.name} #{incarnation.number}")

    async def _root(self, main: Callable[[World], Awaitable[T]], outcome: list[T]) -> None:
        _current.set(self)
        determinism.leave_io_alone(self._guard.refuse)
        self.kernel.run_sync_soon_queues = determinism.run_sync_soon_queues()
        self.kernel.waiting_for_idle = determinism.waiting_for_idle()
        trio.socket.set_custom_socket_factory(self.network)
        trio.socket.set_custom_hostname_resolver(self.network)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                for node in self._boot_first:
                    node.restart()
                with self._main_scope:
                    outcome.append(await main(self))
            except BaseException as error:  # noqa: BLE001 - reported as the run's failure
                self.kernel.fail(error)
            self._cancel_everything()

    def _cancel_everything(self) -> None:
        self._state = "closing"
        self.kernel.woken = True
        self.pauses.end_all()
        for node in self.nodes.values():
            node.disk.end_faults()
        self._main_scope.cancel()
        for incarnation in list(self._incarnations):
            incarnation.scope.cancel()
