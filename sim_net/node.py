"""A node: an address with power, a disk, a wall clock, and a program that runs, dies and starts again.

A kill fences first: every socket and disk operation of the old incarnation fails with EBADF from then on. Only then
are its tasks cancelled, because Trio runs `finally` blocks on cancellation and a dead process does not. What they
raise is journaled and dropped.
"""

from __future__ import annotations

import contextvars
import errno
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVarTuple

import trio

from sim_net.disk.disk import SimDisk
from sim_net.kernel.entropy import SimEntropy, derive
from sim_net.kernel.identity import current_incarnation
from sim_net.kernel.kernel import SimulationError
from sim_net.kernel.wall_clock import SimWallClock
from sim_net.net.network import Ports
from sim_net.net.socket import SimSocket

if TYPE_CHECKING:
    from sim_net.faults.nemesis import Announce
    from sim_net.world import World

Args = TypeVarTuple("Args")
NodeMain = Callable[["Node"], Awaitable[None]]


class NodeFailed(SimulationError):
    """A node's program raised while the node was up; the cause is what it raised."""


class NodeExited(NodeFailed):
    """A node's program called `sys.exit`, whichever task did: that ends a process, and a run fails by it, also by 0."""

    def __init__(self, node: str, incarnation: int, time_s: float, code: object) -> None:
        #: The exit code that the process would have: 1 for a text, which Python prints.
        self.code = code if isinstance(code, int) else int(code is not None)
        self.node = node
        words = f": {code}" if code is not None and not isinstance(code, int) else ""
        super().__init__(f"node {node} (incarnation {incarnation}) exited at {time_s} s: exit code {self.code}{words}")


class ShortIO:
    """How many bytes a socket call of a node may move at once, while a fault limits it."""

    def __init__(self, seed: int, node: str) -> None:
        self._random = derive(seed, f"short_io/{node}")
        self._limits: list[int] = []

    def begin(self, bytes_max: int) -> None:
        """Limit each call to a random 1 to `bytes_max` bytes; of several limits the least counts."""
        self._limits.append(bytes_max)

    def end(self, bytes_max: int) -> None:
        """Undo one `begin`."""
        self._limits.remove(bytes_max)

    def cut(self, size: int) -> int:
        """How many of `size` bytes a call moves now."""
        if not self._limits or size <= 1:
            return size
        return min(size, self._random.randint(1, min(self._limits)))


class Incarnation:
    """One life of a node's process: its tasks, its sockets, and whether it is dead to the world."""

    def __init__(self, node: Node, number: int) -> None:
        self.node = node
        self.number = number
        self.fenced = False
        self.scope = trio.CancelScope()
        self.sockets: dict[int, SimSocket] = {}
        self.fence_callbacks: list[Callable[[], object]] = []
        #: How many pauses are not yet undone.
        self.pauses = 0
        #: The node is down again, although tasks of a killed process may still be cleaning up.
        self.over = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._context: contextvars.Context | None = None
        self._waiting: list[Callable[[], Awaitable[object]]] = []

    async def run(self, main: NodeMain) -> None:
        """Run the process to its end, in a task of its own."""
        with self.scope:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._context = contextvars.copy_context()
                await trio.lowlevel.checkpoint_if_cancelled()  # nothing runs of a process that is killed at its birth
                for task in self._waiting:
                    nursery.start_soon(task)
                await main(self.node)

    def start_soon(self, task: Callable[[], Awaitable[object]]) -> None:
        """Run a task in the process, with its identity; a process that has not begun begins with it."""
        if self._nursery is None or self._context is None:
            self._waiting.append(task)
        else:
            self._context.run(self._nursery.start_soon, task)

    def check(self) -> None:
        """OSError EBADF when the process was killed."""
        if self.fenced:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))


class Node:
    """A machine of the world; made by `World.node`."""

    def __init__(self, world: World, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.disk = SimDisk(world.kernel, world.journal, world.seed, name, world.config.disk)
        self.wall_clock = SimWallClock(world.kernel, world.config.epoch_ms)
        self.entropy = SimEntropy(world.seed, name)
        self.ports = Ports()
        self.short_io = ShortIO(world.seed, name)
        #: How often the node was started; 0 before the first boot.
        self.incarnation = 0
        #: Whether the machine is on, which it is before the first boot too.
        self.has_power = True
        #: What processes that ended by themselves had not closed: sockets, files, locks. A killed process closes
        #: nothing.
        self.left_open: list[str] = []
        self._world = world
        self._main: NodeMain | None = None
        self._current: Incarnation | None = None
        self._outages = 0
        self._restart_due = False
        world.trace_source(self._announce_disk_operations)

    def __repr__(self) -> str:
        """Name, address, and whether it runs."""
        state = "paused" if self.is_paused else "up" if self.is_up else "down" if self.has_power else "without power"
        return f"<Node {self.name} {self.address} {state}, incarnation {self.incarnation}>"

    @property
    def is_up(self) -> bool:
        """Whether the node's process runs (or is about to, or has not finished stopping)."""
        return self._current is not None

    def boot(self, main: NodeMain) -> None:
        """Start `main(node)` as the node's process; before the run, when that begins. RuntimeError if one runs."""
        if self._world.boots_first(self):
            self._main = main
        else:
            self._start(main)

    def restart(self) -> None:
        """Start the same program again, as the next incarnation. RuntimeError if it runs or never did."""
        if self._main is None:
            raise RuntimeError(f"node {self.name} was never booted")
        self._start(self._main)

    def kill(self) -> None:
        """Kill the process, as `kill -9` does: peers see resets, the page cache survives. Nothing, if it is down."""
        incarnation = self._current
        if incarnation is not None:
            self._fence(incarnation)
            self._world.journal.record(self.name, "node.kill")
            self._end(incarnation, SimSocket.fence)

    def power_loss(self) -> None:
        """Cut the power: no peer hears of it, and the disk loses what was not synced. The next boot puts it back on.

        The wall clock runs on, on its battery. A node that is down loses its page cache too; one without power nothing.
        """
        if not self.has_power:
            return
        self.has_power = False
        incarnation = self._current
        if incarnation is not None:
            self._fence(incarnation)
        self._world.journal.record(self.name, "node.power_loss")
        self.disk.power_off()
        self._world.network.power_off(self)
        if incarnation is not None:
            self._end(incarnation, SimSocket.vanish)

    @property
    def is_paused(self) -> bool:
        """Whether the node's process takes no steps at present."""
        return self._current is not None and self._current in self._world.pauses

    def pause(self) -> None:
        """Let no task of the process take a step until `resume`, as a long garbage collection does.

        Its kernel goes on: connections are accepted and buffers fill. Pauses nest; a kill ends them, and so does the
        end of the run. Nothing happens if the node is down.
        """
        incarnation = self._current
        if incarnation is None or self._world.is_closing:
            return
        incarnation.pauses += 1
        if incarnation.pauses == 1:
            self._world.journal.record(self.name, "node.pause")
            self._world.pauses.begin(incarnation)

    def resume(self) -> None:
        """Undo one `pause`; after the last, whatever became runnable runs. RuntimeError if the node is not paused."""
        incarnation = self._current
        if incarnation is None or incarnation not in self._world.pauses:
            raise RuntimeError(f"node {self.name} is not paused")
        incarnation.pauses -= 1
        if not incarnation.pauses:
            self._world.journal.record(self.name, "node.resume")
            self._world.kernel.woken = True
            self._world.pauses.end(incarnation)

    def begin_outage(self, *, restart: bool) -> Callable[[], None]:
        """Keep the ends of other outages from starting the node; what is returned ends this one.

        The last to end puts the power back on, and restarts the node if one of them asked for it and it is down.
        """
        self._outages += 1
        self._restart_due = self._restart_due or restart

        def end() -> None:
            self._outages -= 1
            if self._outages or self._world.is_closing:
                return
            self._power_on()
            if self._restart_due and self._current is None:
                self.restart()
            self._restart_due = False

        return end

    def stop(self) -> None:
        """Cancel the process and let it clean up; the node is down once it has. Nothing happens if it is down."""
        if self._current is not None:
            self._world.kernel.woken = True
            self._current.scope.cancel()

    async def wait_down(self) -> None:
        """Return when the node is down. A checkpoint."""
        await trio.lowlevel.checkpoint()
        while self._current is not None:
            await self._current.over.wait()

    def start_soon(self, async_fn: Callable[[*Args], Awaitable[object]], *args: *Args) -> None:
        """Run a task in the node's process: it dies with it, and its failure is the node's. RuntimeError if down."""
        incarnation = self._current
        if incarnation is None:
            raise RuntimeError(f"node {self.name} is down")
        incarnation.start_soon(partial(async_fn, *args))

    def on_fence(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the present process is killed, after it is fenced and before anybody hears of it."""
        if self._current is None:
            raise RuntimeError(f"node {self.name} is down")
        self._current.fence_callbacks.append(callback)

    def _start(self, main: NodeMain) -> None:
        if self._current is not None:
            raise RuntimeError(f"node {self.name} is up")
        self._world.check_running(self)
        self._main = main
        self._power_on()
        self.incarnation += 1
        incarnation = self._current = Incarnation(self, self.incarnation)
        self._world.journal.record(self.name, "node.boot")
        context = contextvars.copy_context()
        context.run(current_incarnation.set, incarnation)
        context.run(self._world.spawn_incarnation, incarnation, partial(self._live, incarnation, main))

    def _power_on(self) -> None:
        if not self.has_power:
            self.has_power = True
            self._world.network.power_on(self)

    def _announce_disk_operations(self, announce: Announce) -> None:
        self.disk.announce = partial(announce, self.name)

    def _fence(self, incarnation: Incarnation) -> None:
        """Make the process dead to the world, before anybody can hear of it."""
        self._current = None
        incarnation.fenced = True
        incarnation.over.set()
        self._world.kernel.woken = True
        for callback in incarnation.fence_callbacks:
            callback()

    def _end(self, incarnation: Incarnation, end_socket: Callable[[SimSocket], None]) -> None:
        """Take a fenced process's sockets and ports away, and cancel its tasks."""
        sockets = list(incarnation.sockets.values())
        for socket in sockets:
            end_socket(socket)
        self.ports.clear()
        self._world.pauses.end(incarnation)
        incarnation.scope.cancel()
        for socket in sockets:
            socket.wake_waiters()

    async def _live(self, incarnation: Incarnation, main: NodeMain) -> None:
        """The root task of one incarnation. It never raises: a failure fails the world, or is journaled if too late."""
        error: BaseException | None = None
        try:
            await incarnation.run(main)
        except BaseException as raised:  # noqa: BLE001 - reported as the run's failure
            error = _unwrapped(raised)
        if not incarnation.fenced:
            self.left_open += [f"{self.name}: {socket!r}" for socket in incarnation.sockets.values()]
            self.left_open += [f"{self.name}: {what}" for what in self.disk.held_by(incarnation)]
        for socket in list(incarnation.sockets.values()):
            socket.close()
        if self._current is incarnation:
            self._current = None
            self._world.journal.record(self.name, "node.stop")
        incarnation.over.set()
        if error is not None:
            self._report(incarnation, error)

    def _report(self, incarnation: Incarnation, error: BaseException) -> None:
        leaves = _leaves(error)
        for leaf in leaves:
            if isinstance(leaf, KeyboardInterrupt):
                self._world.fail(leaf)  # meant for the process that simulates, whichever task it has hit
                return
        if incarnation.fenced:
            names = ", ".join(type(leaf).__name__ for leaf in leaves)
            self._world.journal.record(self.name, "node.late_error", status=names)
            return
        exited = find_exit(error)
        if exited is not None:
            failure: NodeFailed = NodeExited(self.name, incarnation.number, self._world.now_s, exited.code)
        else:
            where = f"node {self.name} (incarnation {incarnation.number}) failed at {self._world.now_s} s"
            what = "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves)
            failure = NodeFailed(f"{where}: {what}")
        failure.__cause__ = error
        self._world.fail(failure)


def find_exit(error: BaseException) -> SystemExit | None:
    """The first call of `sys.exit` in an error, which may be a group."""
    return next((leaf for leaf in _leaves(error) if isinstance(leaf, SystemExit)), None)


def _unwrapped(error: BaseException) -> BaseException:
    """Without the group that the incarnation's own nursery has put around a single error."""
    if isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        inner: BaseException = error.exceptions[0]
        return inner
    return error


def _leaves(error: BaseException) -> list[BaseException]:
    """The errors at the bottom of a group, in order; of a single error, itself."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
