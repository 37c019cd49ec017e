"""What a long run keeps in memory: cyclic garbage is collected within the run, at the same steps in every process."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref

import pytest
import trio

from sim_net import Node, World, many_runs
from sim_net.kernel import determinism, kernel

STEPS = 20_000
#: What may be left between two collections, one cycle a step.
CYCLES_MAX = 10_000


class Request:
    """What a server makes for each request: objects that refer to each other."""

    def __init__(self, world: World | None = None, number: int = 0) -> None:
        self.connection = self
        self.world = world
        self.number = number

    def __del__(self) -> None:
        if self.world is not None:
            self.world.journal.mix(b"%d" % self.number)


def run_server(*, finalizers: bool = False, keep: int = 0) -> tuple[int, str]:
    """Make a cycle at each step: the most that were alive at once, and the digest. The last `keep` stay in use."""
    alive: weakref.WeakSet[Request] = weakref.WeakSet()
    most = 0

    async def serve(node: Node) -> None:
        nonlocal most
        in_use: list[Request] = []
        for number in range(STEPS):
            request = Request(world if finalizers else None, number)
            alive.add(request)
            in_use.append(request)
            del in_use[: len(in_use) - keep], request
            if not number % 100:
                most = max(most, len(alive))
            await trio.sleep(0.001)

    async def main(world: World) -> None:
        node = world.node("server")
        node.boot(serve)
        await node.wait_down()

    world = World(seed=1)
    world.run(main)
    digest = world.digest
    alive.clear()
    return most, digest


def test_cyclic_garbage_does_not_pile_up_within_a_run() -> None:
    most, _ = run_server()
    assert most < CYCLES_MAX


def test_what_was_in_use_at_a_collection_is_collected_by_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_STEPS_A_COLLECTION", 256)
    most, _ = run_server(keep=500)  # so every one is in use at some collection
    assert most < CYCLES_MAX


def test_runs_among_many_collect_too() -> None:
    with many_runs():
        most, _ = run_server()
    assert most < CYCLES_MAX


def test_a_collector_that_somebody_has_turned_off_stays_off() -> None:
    gc.disable()
    try:
        most, _ = run_server()
        assert not gc.isenabled()
    finally:
        gc.enable()
        gc.collect()
    assert most > CYCLES_MAX


def test_a_run_collects_what_it_made_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(determinism, "_RUNS_A_COLLECTION", 10_000_000)  # nothing is collected just before the run
    finalized: list[str] = []
    running = False

    class Older:
        def __init__(self) -> None:
            self.cycle = self

        def __del__(self) -> None:
            finalized.append("within the run" if running else "outside")

    async def main(world: World) -> None:
        nonlocal running
        running = True
        assert finalized == []
        for _ in range(STEPS):
            await trio.sleep(0.001)
        running = False

    frozen, thresholds = gc.get_freeze_count(), gc.get_threshold()
    gc.set_threshold(10_000_000)
    try:
        gc.collect()
        Older()
        World(seed=1).run(main)
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert finalized == ["outside"]
    assert gc.get_freeze_count() == frozen


@pytest.mark.parametrize("hash_seed", ["4242"])
def test_finalizers_run_at_the_same_steps_in_every_process(hash_seed: str) -> None:
    code = f"from {__name__} import run_server; print(run_server(finalizers=True, keep=7)[1])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stdout.strip() == run_server(finalizers=True, keep=7)[1]
