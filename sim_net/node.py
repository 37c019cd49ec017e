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

from sim_net.disk import SimDisk
from sim_net.entropy import SimEntropy, derive
from sim_net.identity import current_incarnation
from sim_net.kernel import SimulationError
from sim_net.network import Ports
from sim_net.wall_clock import SimWallClock

if TYPE_CHECKING:
    from sim_net.socket import SimSocket
    from sim_net.world import World

Args = TypeVarTuple("Args")
NodeMain = Callable[["Node"], Awaitable[None]]


class NodeFailed(SimulationError):
    """A node's program raised while the node was up; the cause is what it raised."""


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
        #: The node is down again, although tasks of a killed process may still be cleaning up.
        self.over = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._context: contextvars.Context | None = None
        self._waiting: list[Callable[[], Awaitable[object]]] = []

    async def run(self, main: NodeMain) -> None:
        """Run the process to its end, in a task of its own."""
        current_incarnation.set(self)
        with self.scope:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._context = contextvars.copy_context()
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
        self.disk = SimDisk(world.kernel, world.seed, name, world.config.disk)
        self.wall_clock = SimWallClock(world.kernel, world.config.epoch_ms)
        self.entropy = SimEntropy(world.seed, name)
        self.ports = Ports()
        self.short_io = ShortIO(world.seed, name)
        #: How often the node was started; 0 before the first boot.
        self.incarnation = 0
        self._world = world
        self._main: NodeMain | None = None
        self._current: Incarnation | None = None

    def __repr__(self) -> str:
        """Name, address, and whether it runs."""
        return f"<Node {self.name} {self.address} {'up' if self.is_up else 'down'}, incarnation {self.incarnation}>"

    @property
    def is_up(self) -> bool:
        """Whether the node's process runs (or is about to, or has not finished stopping)."""
        return self._current is not None

    def boot(self, main: NodeMain) -> None:
        """Start `main(node)` as the node's process. RuntimeError if one runs."""
        self._main = main
        self._start()

    def restart(self) -> None:
        """Start the same program again, as the next incarnation. RuntimeError if it runs or never did."""
        if self._main is None:
            raise RuntimeError(f"node {self.name} was never booted")
        self._start()

    def kill(self) -> None:
        """Kill the process, as `kill -9` does: peers see resets, the page cache survives. Nothing, if it is down."""
        incarnation = self._current
        if incarnation is None:
            return
        self._current = None
        incarnation.fenced = True
        incarnation.over.set()
        self._world.kernel.woken = True
        for callback in incarnation.fence_callbacks:
            callback()
        self._world.journal.record(self.name, "node.kill")
        sockets = list(incarnation.sockets.values())
        for socket in sockets:
            socket.fence()
        self.ports.clear()
        incarnation.scope.cancel()
        for socket in sockets:
            socket.wake_waiters()

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

    def listener_at(self, host: str, port: int) -> SimSocket | None:
        """The socket that takes connections to `host`:`port`."""
        return self.ports.listener(host, port)

    def _start(self) -> None:
        if self._current is not None:
            raise RuntimeError(f"node {self.name} is up")
        assert self._main is not None
        self.incarnation += 1
        self._current = Incarnation(self, self.incarnation)
        self._world.journal.record(self.name, "node.boot")
        self._world.spawn_incarnation(self._current, partial(self._live, self._current, self._main))

    async def _live(self, incarnation: Incarnation, main: NodeMain) -> None:
        """The root task of one incarnation. It never raises: a failure fails the world, or is journaled if too late."""
        error: BaseException | None = None
        try:
            await incarnation.run(main)
        except BaseException as raised:  # noqa: BLE001 - reported as the run's failure
            error = _unwrapped(raised)
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
            if isinstance(leaf, KeyboardInterrupt | SystemExit):
                self._world.fail(leaf)  # meant for the process that simulates, whichever task it has hit
                return
        if incarnation.fenced:
            names = ", ".join(type(leaf).__name__ for leaf in leaves)
            self._world.journal.record(self.name, "node.late_error", status=names)
            return
        where = f"node {self.name} (incarnation {incarnation.number}) failed at {self._world.now_s} s"
        what = "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves)
        failure = NodeFailed(f"{where}: {what}")
        failure.__cause__ = error
        self._world.fail(failure)


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
