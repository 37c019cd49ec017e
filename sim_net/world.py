"""A world: nodes, the network between them, one clock, and one seed that everything random comes from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import attrs
import trio
from attrs import validators

from sim_net import determinism
from sim_net.disk import DiskConfig
from sim_net.guard import Guard
from sim_net.journal import Journal
from sim_net.kernel import Kernel, TasksIgnoreCancellation
from sim_net.nemesis import Nemesis
from sim_net.network import LinkConfig, Network
from sim_net.node import Incarnation, Node

if TYPE_CHECKING:
    from sim_net.faults import Fault
    from sim_net.schedule import Schedule

T = TypeVar("T")

_FIRST_ADDRESS: Final = 10 << 24


@attrs.frozen
class WorldConfig:
    """What a world is like while no fault is at work, and when a run has gone on for too long."""

    link: LinkConfig = attrs.field(factory=LinkConfig)
    disk: DiskConfig = attrs.field(factory=DiskConfig)
    send_buffer_bytes: int = attrs.field(default=65_536, validator=validators.ge(1))
    receive_buffer_bytes: int = attrs.field(default=65_536, validator=validators.ge(1))
    connect_timeout_s: float = attrs.field(default=7.0, validator=validators.gt(0.0))
    steps_max: int = attrs.field(default=20_000_000, validator=validators.ge(1))
    steps_at_one_instant_max: int = attrs.field(default=100_000, validator=validators.ge(1))
    virtual_time_max_s: float = attrs.field(default=7 * 86_400.0, validator=validators.gt(0.0))
    #: The wall clocks' time at the start of a run, in ms since the Unix epoch: 2024-01-01.
    epoch_ms: int = 1_704_067_200_000
    journal_keep: bool = True
    journal_entries_max: int = attrs.field(default=100_000, validator=validators.ge(1))


_DEFAULT: Final = WorldConfig()


class World:
    """One simulated world, for one run. `guard_packages` name the packages that must not touch the real one."""

    def __init__(self, seed: int, config: WorldConfig = _DEFAULT, *, guard_packages: tuple[str, ...] = ()) -> None:
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
        self._guard = Guard(guard_packages, self.kernel.fail, lambda: config.epoch_ms / 1000 + self.kernel.now_s)
        self._nemesis = Nemesis(self)
        self._main_scope = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._incarnations: dict[Incarnation, None] = {}
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

        Raises what `main` raises; `NodeFailed` when a node's program does; `Deadlock`, `Livelock`, `StepsExceeded` or
        `VirtualTimeExceeded`; whatever a callback of the world raised. Not to be called from within Trio; once only.
        """
        if self._state != "new":
            raise RuntimeError("a world runs once: make another for another run")
        self._state = "running"
        outcome: list[T] = []
        try:
            with self._guard.watching(), determinism.deterministic_trio(self.seed, self._guard.refuse):
                trio.run(self._root, main, outcome, clock=self.kernel, instruments=[self.kernel])
        except trio.TrioInternalError as error:
            if not isinstance(error.__cause__, TasksIgnoreCancellation) or self.kernel.failure is None:
                raise
            self.kernel.failure.add_note("some tasks did not end when the failed run was cancelled, and were abandoned")
        finally:
            self._state = "over"
        if self.kernel.failure is not None:
            raise self.kernel.failure
        return outcome[0]

    def at(self, time_s: float, callback: Callable[[], object]) -> None:
        """Call `callback` at virtual time `time_s` since the start (now if that is past), outside any task.

        It may boot, kill, set events and cancel scopes, but not await. What it raises fails the run.
        """

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

    def fail(self, error: BaseException) -> None:
        """End the run: cancel everything, and let `run` raise `error`. The first failure wins."""
        self.kernel.fail(error)

    # --- for its parts ----------------------------------------------------------------------------------------------

    def spawn_incarnation(self, incarnation: Incarnation, live: Callable[[], Awaitable[None]]) -> None:
        """Start the root task of a node's process. RuntimeError when the world does not run."""
        if self._nursery is None:
            raise RuntimeError("nodes boot within World.run")
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
        determinism.leave_io_alone(self._guard.refuse)
        self.kernel.run_sync_soon_queues = determinism.run_sync_soon_queues()
        trio.socket.set_custom_socket_factory(self.network)
        trio.socket.set_custom_hostname_resolver(self.network)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                with self._main_scope:
                    outcome.append(await main(self))
            except BaseException as error:  # noqa: BLE001 - reported as the run's failure
                self.kernel.fail(error)
            self._cancel_everything()

    def _cancel_everything(self) -> None:
        self._state = "closing"
        self.kernel.woken = True
        self._main_scope.cancel()
        for incarnation in list(self._incarnations):
            incarnation.scope.cancel()
