"""One seed, one run: the same digest in this process, in others, under other hash seeds, and with or without
hypothesis."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio
from trio._core import _run as run
from trio._core import _thread_cache as threads

from sim_net import Node, Schedule, World, current_world, many_runs
from sim_net.faults.faults import FAULT_TYPES
from sim_net.faults.sampling import sample_schedule

PORT = 7000
NAMES = ("a", "b", "c")
PROJECT = Path(__file__).parents[2]


def chaos_schedule(seed: int) -> Schedule:
    """Faults of every kind, at their times or set off by the network and the nodes."""
    choose = random.Random(f"chaos {seed}").choice
    return sample_schedule(choose, NAMES, events=("node.boot", "net.connect", "net.reset"), faults_max=25)


async def serve_from_disk(node: Node, stream: trio.SocketStream) -> None:
    """Echo, after it is on disk."""
    with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
        file = node.disk.open("log", allocate_bytes=4096)
        async for data in stream:
            current_world().journal.mix(bytes(file.map()[:512]))
            file.write_at(0, data[:4096])
            await file.sync()
            await stream.send_all(data)
        node.disk.rename("log", f"log.{node.entropy.token_bytes(1).hex()}")
        await node.disk.sync_directory("")


async def gossip(node: Node) -> None:
    """Datagrams to everybody, now and then."""

    async def listen() -> None:
        while True:
            with suppress(OSError):
                current_world().journal.mix((await socket.recvfrom(100))[0])

    socket = trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_DGRAM)
    await socket.bind(("", PORT))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        while True:
            for other in NAMES:
                with suppress(OSError):
                    await socket.sendto(node.entropy.token_bytes(20), (other, PORT))
            await trio.sleep(node.entropy.random())


async def talk(node: Node, other: str) -> None:
    """Ask for echoes for ever, come what may."""
    while True:
        with suppress(OSError, trio.BrokenResourceError, trio.TooSlowError):
            with trio.fail_after(2 + node.entropy.random()):
                async with await trio.open_tcp_stream(other, PORT) as stream:
                    for _ in range(10):
                        sent = node.entropy.token_bytes(1 + int(node.entropy.random() * 200))
                        got = b""
                        async with trio.open_nursery() as nursery:
                            nursery.start_soon(stream.send_all, sent)
                            while len(got) < len(sent):
                                data = await stream.receive_some()
                                if not data:
                                    nursery.cancel_scope.cancel()
                                    break
                                got += data
                        await trio.sleep(node.entropy.random() * 0.2)
        await trio.sleep(0.1)


async def chatter(node: Node) -> None:
    """Serve echo, write what comes to disk, and talk to the other nodes."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_tcp, partial(serve_from_disk, node), PORT)
        nursery.start_soon(gossip, node)
        for other in NAMES:
            if other != node.name:
                nursery.start_soon(talk, node, other)


def run_chaos(seed: int) -> World:
    world = World(seed)

    async def main(world: World) -> None:
        for name in NAMES:
            world.node(name)
        world.start_schedule(chaos_schedule(seed))
        for node in world.nodes.values():
            node.boot(resilient)
        await trio.sleep(20)

    world.run(main)
    return world


async def resilient(node: Node) -> None:
    """`chatter`, restarted when the weather is too rough for its simple-minded error handling."""
    while True:
        try:
            await chatter(node)
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            await trio.sleep(0.5)


def print_digests(*seeds: int) -> None:
    for seed in seeds:
        world = run_chaos(seed)
        sys.stdout.write(f"{seed} {world.digest} {world.steps} {world.events} {len(world.journal)}\n")


def digests_elsewhere(hash_seed: int, seeds: range, *options: str, before: str = "") -> list[str]:
    """The digests as another process sees them."""
    code = f"{before}\nfrom tests.simulation.test_sim_determinism import print_digests\nprint_digests(*{seeds!r})"
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        env=environment,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_same_seed_gives_the_same_digest_here_and_other_seeds_others() -> None:
    first = [run_chaos(seed).digest for seed in range(4)]
    junk = [[object() for _ in range(seed)] for seed in range(1000)]  # other addresses
    second = [run_chaos(seed).digest for seed in range(4)]
    assert junk
    assert first == second
    assert len(set(first)) == 4


def test_other_processes_agree() -> None:
    seeds = range(5)
    plain = digests_elsewhere(1, seeds)
    assert len({line.split()[1] for line in plain}) == len(seeds)
    developer = digests_elsewhere(4242, seeds, "-X", "dev", before="import hypothesis")
    assert developer == plain
    here = [run_chaos(seed) for seed in seeds[:2]]
    assert [world.digest for world in here] == [line.split()[1] for line in plain[:2]]


def replication_digests(hash_seed: int, seeds: range, *options: str) -> list[str]:
    """The digests of the replication scenario as another process sees them."""
    chosen = f"{seeds.start}:{seeds.stop}"
    done = subprocess.run(
        [sys.executable, *options, "-m", "rmq_actors.cli.entry", "chaos", "run", "--seeds", chosen, "--digest"],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("digests", [digests_elsewhere, replication_digests])
def test_two_hundred_seeds_are_the_same_in_other_processes(digests: Callable[..., list[str]]) -> None:
    for first in range(0, 200, 25):
        seeds = range(first, first + 25)
        plain = digests(1, seeds)
        assert len({line.split()[1] for line in plain}) == len(seeds)
        assert digests(4242, seeds, "-X", "dev") == plain


def test_the_chaos_is_real() -> None:
    """Else equal digests would mean little."""
    kinds: set[str] = set()
    faults: set[str] = set()
    for seed in range(20):
        world = run_chaos(seed)
        assert world.steps > 1000
        kinds |= {entry.kind for entry in world.journal.entries}
        faults |= {str(entry.attributes.get("fault.kind")) for entry in world.journal.entries}
    assert kinds >= {"net.reset", "net.held", "net.partial_read", "net.partial_write", "node.kill", "net.connect"}
    assert faults > set(FAULT_TYPES)


def test_steps_names_and_times_enter_the_digest() -> None:
    def digest(*, steps: int, name: str, sleep_s: float) -> str:
        async def child() -> None:
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            await trio.sleep(sleep_s)

        async def main(world: World) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(child, name=name)

        world = World(1)
        world.run(main)
        return world.digest

    digests = [
        digest(steps=3, name="child", sleep_s=1.0),
        digest(steps=4, name="child", sleep_s=1.0),
        digest(steps=3, name="other", sleep_s=1.0),
        digest(steps=3, name="child", sleep_s=1.5),
    ]
    assert len(set(digests)) == 4
    assert digest(steps=3, name="child", sleep_s=1.0) == digests[0]


def test_the_seed_decides_who_goes_first() -> None:
    """Of the tasks that can run; each order comes up, else bugs of ordering would stay hidden."""

    def order(seed: int) -> str:
        ran: list[str] = []

        async def child(name: str) -> None:
            ran.append(name)

        async def main(world: World) -> None:
            async with trio.open_nursery() as nursery:
                for name in "abc":
                    nursery.start_soon(child, name)

        World(seed).run(main)
        return "".join(ran)

    orders = [order(seed) for seed in range(60)]
    assert set(orders) == {"abc", "acb", "bac", "bca", "cab", "cba"}
    assert [order(seed) for seed in range(60)] == orders


def test_names_with_addresses_do_not_enter_the_digest() -> None:
    class Program:
        async def __call__(self) -> None:
            await trio.sleep(1)

    def digest() -> str:
        async def main(world: World) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(Program())

        world = World(1)
        world.run(main)
        return world.digest

    first = digest()
    junk = [Program() for _ in range(1000)]  # the next one lives elsewhere
    assert junk
    assert digest() == first


@pytest.mark.parametrize("mixed", [b"", b"x"])
def test_a_programs_own_trace_enters_the_digest(mixed: bytes) -> None:
    def digest(data: bytes) -> str:
        async def mixing(world: World) -> None:
            world.journal.mix(data)

        world = World(1)
        world.run(mixing)
        return world.digest

    assert len(digest(mixed)) == 32
    assert digest(mixed) != digest(mixed + b"y")
    assert digest(mixed) == digest(mixed)


def test_everything_is_put_back_after_a_run() -> None:
    assert gc.isenabled()
    before = (
        run._ALLOW_DETERMINISTIC_SCHEDULING,
        run._r.getstate(),
        random.getstate(),
        threads.THREAD_CACHE,
        time.time,
    )

    async def fail(world: World) -> None:
        assert not gc.isenabled()
        random.seed(99)
        raise LookupError

    with pytest.raises(LookupError):
        World(1).run(fail)
    after = (run._ALLOW_DETERMINISTIC_SCHEDULING, run._r.getstate(), random.getstate(), threads.THREAD_CACHE, time.time)
    assert after == before
    assert gc.isenabled()
    assert trio.run(trio.to_thread.run_sync, lambda: "threads work again") == "threads work again"


def test_an_abandoned_async_generator_is_finalized_at_the_same_step() -> None:
    """It goes through `run_sync_soon`, the one way into a run that the operating system has a part in."""
    closed: list[float] = []

    async def numbers() -> object:
        try:
            yield 1
            yield 2
        finally:
            closed.append(trio.current_time())

    async def main(world: World) -> None:
        await trio.sleep(1)
        async for _ in numbers():  # type: ignore[attr-defined]
            break
        await trio.sleep(1)

    digests = set()
    for _ in range(3):
        closed.clear()
        world = World(1)
        with pytest.warns(ResourceWarning, match="Async generator"):
            world.run(main)
        assert closed == [1.0]
        digests.add(world.digest)
    assert len(digests) == 1


def test_a_block_of_many_runs_leaves_the_collector_as_it_was_and_changes_no_digest() -> None:
    async def main(world: World) -> None:
        world.node("a").boot(lambda node: trio.sleep(node.entropy.random()))
        await world.nodes["a"].wait_down()

    def digest() -> str:
        world = World(7)
        world.run(main)
        return world.digest

    alone = digest()
    assert gc.isenabled()
    with many_runs():
        assert not gc.isenabled()
        with many_runs():
            assert {digest() for _ in range(5)} == {alone}
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_a_block_of_many_runs_does_not_let_garbage_pile_up() -> None:
    class Knot:
        def __init__(self) -> None:
            self.itself = self

    async def main(_: World) -> None:
        tied.append(weakref.ref(Knot()))

    tied: list[weakref.ref[Knot]] = []
    with many_runs():
        for seed in range(20):
            World(seed).run(main)
        assert sum(knot() is not None for knot in tied) <= 4
