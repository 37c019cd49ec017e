"""Async tests inside a world: `@pytest.mark.trio(run=sim_run(seed=1))`, for pytest-trio.

The test and its async fixtures run on a node, so sockets, names and the node's disk work at once. Other nodes are made
through `current_world`. What the test raises comes out as it is, so skips and expected failures stay what they are.

pytest-trio keeps the fixtures of a test, and the events by which they wait for each other, in sets ordered by address;
here they get an order that is the same in every process. That and the shape of what it runs (a `functools.partial` with
the test's arguments) are private facts, with a guard test. Neither pytest nor pytest-trio is imported.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from zlib import crc32

import trio

from sim_net.node import NodeFailed, find_exit
from sim_net.world import World, WorldConfig

if TYPE_CHECKING:
    from sim_net.faults.schedule import Schedule
    from sim_net.node import Node

T = TypeVar("T")

_DEFAULT: Final = WorldConfig()


class TrioRun(Protocol):
    """What pytest-trio takes as `run`: like `trio.run`."""

    def __call__(
        self,
        async_fn: Callable[..., Awaitable[T]],
        *args: object,
        clock: trio.abc.Clock | None = None,
        instruments: Iterable[trio.abc.Instrument] = (),
    ) -> T:
        """Run `async_fn(*args)` and return what it returns."""
        ...


def sim_run(
    *,
    seed: int,
    config: WorldConfig = _DEFAULT,
    node: str = "test",
    nodes: Iterable[str] = (),
    schedule: Schedule | None = None,
    guard_packages: Sequence[str] = (),
) -> TrioRun:
    """A replacement of `trio.run` that runs in a world of its own each time.

    The world has the node `node`, on which the function runs, and `nodes`; `schedule` is applied. The run raises what
    the function raises, what `World.run` raises, `NodeFailed` if the node was killed or stopped under it, and
    `ValueError` if it is given a clock.
    """
    names = (node, *nodes)

    def run(
        async_fn: Callable[..., Awaitable[T]],
        *args: object,
        clock: trio.abc.Clock | None = None,
        instruments: Iterable[trio.abc.Instrument] = (),
    ) -> T:
        if clock is not None:
            raise ValueError(f"a world has a clock of its own: the test may not use {type(clock).__name__}")
        world = World(seed, config, guard_packages=guard_packages)
        for name in names:
            world.node(name)
        if schedule is not None:
            world.start_schedule(schedule)

        async def main(world: World) -> T:
            for instrument in instruments:
                trio.lowlevel.add_instrument(instrument)
            return await _run_on(world.nodes[node], async_fn, *args)

        with _ordered_fixtures(getattr(async_fn, "keywords", {})):
            return world.run(main)

    return run


async def _run_on(node: Node, async_fn: Callable[..., Awaitable[T]], *args: object) -> T:
    """The function's result or error, from a process of the node."""
    results: list[T] = []
    errors: list[BaseException] = []

    async def program(_: Node) -> None:
        try:
            results.append(await async_fn(*args))
        except trio.Cancelled:
            raise
        except BaseException as error:
            if find_exit(error) is not None:
                raise  # the node's failure, by name: a search or a test must not end well by it
            errors.append(error)  # raised by the harness, as it is

    node.boot(program)
    await node.wait_down()
    if errors:
        raise errors[0]
    if not results:
        raise NodeFailed(f"node {node.name} went down with the test on it")
    return results[0]


class _Ordered:
    """As much of a set as pytest-trio needs, in order of addition."""

    def __init__(self) -> None:
        self._members: dict[object, None] = {}
        self.add = self._members.setdefault

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[object]:
        return iter(self._members)


@contextmanager
def _ordered_fixtures(arguments: dict[str, Any]) -> Iterator[None]:
    """Let pytest-trio go through the fixtures among `arguments`, and theirs, in an order that is always the same."""
    fixtures: dict[int, Any] = {}
    _collect_fixtures(arguments, fixtures)
    kinds = {type(fixture): type(fixture).__hash__ for fixture in fixtures.values()}
    for fixture in fixtures.values():
        fixture.user_done_events = _Ordered()
    for kind in kinds:
        kind.__hash__ = _hash_of_name  # type: ignore[assignment]
    try:
        yield
    finally:
        for kind, before in kinds.items():
            kind.__hash__ = before


def _hash_of_name(fixture: Any) -> int:
    return crc32(fixture.name.encode())


def _collect_fixtures(arguments: dict[str, Any], found: dict[int, Any]) -> None:
    for value in arguments.values():
        if hasattr(value, "user_done_events") and id(value) not in found:
            found[id(value)] = value
            _collect_fixtures(value._pytest_kwargs, found)
