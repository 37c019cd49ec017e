"""Nodes: boot, kill, restart, stop, and what survives."""

from __future__ import annotations

import errno
import sys
from typing import NoReturn

import pytest
import trio

from sim_net import Kill, Node, NodeExited, NodeFailed, On, Partition, Schedule, World

PORT = 7000


def kinds(world: World) -> list[str]:
    return [f"{entry.node} {entry.kind}" for entry in world.journal.entries]


async def echo_server(node: Node) -> None:
    async def echo(stream: trio.SocketStream) -> None:
        async for data in stream:
            await stream.send_all(data)

    await trio.serve_tcp(echo, PORT, host=node.address)


async def sleep_for_ever(node: Node) -> None:
    await trio.sleep_forever()


def test_a_kill_resets_peers_and_a_restart_serves_again() -> None:
    seen: list[str] = []

    async def client(node: Node) -> None:
        sock = trio.socket.socket()
        await sock.connect(("server", PORT))
        with pytest.raises(ConnectionResetError):
            await sock.recv(1)
        seen.append(f"reset at {trio.current_time():.1f}")
        with pytest.raises(ConnectionRefusedError):
            await trio.socket.socket().connect(("server", PORT))
        await trio.sleep_until(6)
        stream = await trio.open_tcp_stream("server", PORT)
        await stream.send_all(b"again")
        assert await stream.receive_some() == b"again"
        seen.append("served again")

    async def main(world: World) -> None:
        server = world.node("server")
        server.boot(echo_server)
        await trio.sleep(1)
        node = world.node("client")
        node.boot(client)
        world.at(3.0, server.kill)
        world.at(5.0, server.restart)
        await node.wait_down()
        assert server.incarnation == 2
        assert server.is_up

    world = World(1)
    world.run(main)
    assert seen == ["reset at 3.0", "served again"]
    assert [each for each in kinds(world) if "node." in each] == [
        "server node.boot", "client node.boot", "server node.kill", "server node.boot",
        "client node.stop", "server node.stop",
    ]  # fmt: skip


def test_after_the_fence_everything_fails_with_ebadf() -> None:
    late: list[int | None] = []

    async def stubborn(node: Node) -> None:
        listener = trio.socket.socket()
        await listener.bind((node.address, PORT))
        listener.listen()
        file = node.disk.open("file", allocate_bytes=10)
        try:
            await trio.sleep_forever()
        finally:
            for call in (
                trio.socket.socket,
                listener.listen,
                lambda: file.write_at(0, b"late"),
                lambda: node.disk.open("file"),
                lambda: node.disk.remove("file"),
            ):
                with pytest.raises(OSError, match="Bad file descriptor") as info:
                    call()
                late.append(info.value.errno)
            with trio.CancelScope(shield=True):
                with pytest.raises(OSError, match="Bad file descriptor") as info:
                    await listener.accept()
                late.append(info.value.errno)
                with pytest.raises(OSError, match="Bad file descriptor") as info:
                    await file.sync()
                late.append(info.value.errno)

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(stubborn)
        await trio.sleep(1)
        node.kill()
        await trio.sleep(1)
        assert bytes(node.disk.open("file").map()) == bytes(10)

    World(1).run(main)
    assert late == [errno.EBADF] * 7


def test_a_shielded_waiter_of_a_dead_process_is_woken() -> None:
    woken: list[float] = []

    async def stubborn(node: Node) -> None:
        listener = trio.socket.socket()
        await listener.bind((node.address, PORT))
        listener.listen()
        with trio.CancelScope(shield=True), pytest.raises(OSError, match="Bad file descriptor"):
            await listener.accept()
        woken.append(trio.current_time())

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(stubborn)
        await trio.sleep(1)
        node.kill()
        await trio.sleep(1)

    World(1).run(main)
    assert woken == [1.0]


def test_what_a_dead_process_raises_is_journaled_and_dropped() -> None:
    async def clumsy(node: Node) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise LookupError("too late")

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(clumsy)
        await trio.sleep(1)
        node.kill()
        await trio.sleep(1)

    world = World(1)
    world.run(main)
    late = [entry for entry in world.journal.entries if entry.kind == "node.late_error"]
    assert [(entry.node, entry.attributes) for entry in late] == [("a", {"status": "LookupError"})]


def test_what_a_stopping_process_raises_fails_the_run() -> None:
    async def clumsy(node: Node) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise LookupError("in time")

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(clumsy)
        await trio.sleep(1)
        node.stop()
        await node.wait_down()
        await trio.sleep(1)

    with pytest.raises(NodeFailed, match="node a"):
        World(1).run(main)


def test_an_interrupt_is_not_the_nodes_failure() -> None:
    async def interrupted(node: Node) -> None:
        try:
            await trio.sleep(1)
        finally:
            raise KeyboardInterrupt

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(interrupted)
        await trio.sleep(0.5)
        node.kill()
        await trio.sleep(5)

    with pytest.raises(KeyboardInterrupt):
        World(1).run(main)


@pytest.mark.parametrize(
    ("argument", "code", "words"),
    [(0, 0, "exit code 0"), (None, 0, "exit code 0"), (3, 3, "exit code 3"), ("no port", 1, "exit code 1: no port")],
)
def test_a_program_that_exits_fails_the_run_by_name(argument: object, code: int, words: str) -> None:
    async def leaves(node: Node) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await trio.sleep(2)
            sys.exit(argument)  # type: ignore[arg-type]

    async def main(world: World) -> None:
        world.node("a").boot(leaves)
        await trio.sleep(5)

    with pytest.raises(NodeExited) as raised:
        World(1).run(main)
    assert str(raised.value) == f"node a (incarnation 1) exited at 2.0 s: {words}"
    assert isinstance(raised.value, NodeFailed)
    assert (raised.value.node, raised.value.code) == ("a", code)


def test_a_dead_program_that_exits_is_journaled_and_an_interrupt_goes_first() -> None:
    async def exits_late(node: Node) -> None:
        try:
            await trio.sleep(1)
        finally:
            sys.exit(0)

    async def interrupted(node: Node) -> None:
        await trio.sleep(1)
        raise BaseExceptionGroup("both", [SystemExit(0), KeyboardInterrupt()])

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(exits_late)
        await trio.sleep(0.5)
        node.kill()
        await trio.sleep(5)
        assert [entry.attributes for entry in world.journal.entries if entry.kind == "node.late_error"] == [
            {"status": "SystemExit"}
        ]
        node.boot(interrupted)
        await trio.sleep(5)

    with pytest.raises(KeyboardInterrupt):
        World(1).run(main)


def test_the_page_cache_survives_a_kill() -> None:
    async def writer(node: Node) -> None:
        file = node.disk.open("dir/file", allocate_bytes=8)
        if node.incarnation == 1:
            file.write_at(2, b"kept")
        else:
            assert bytes(file.map()) == b"\0\0kept\0\0"
        await trio.sleep_forever()

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(writer)
        await trio.sleep(1)
        node.kill()
        node.restart()
        await trio.sleep(1)

    World(1).run(main)


def test_fence_callbacks_run_before_the_kill_is_journaled() -> None:
    order: list[str] = []

    async def main(world: World) -> None:
        node = world.node("a")
        with pytest.raises(RuntimeError, match="node a is down"):
            node.on_fence(lambda: None)
        node.boot(sleep_for_ever)
        node.on_fence(lambda: order.append("fenced"))
        world.journal.subscribe(lambda entry: order.append(entry.kind))
        await trio.sleep(1)
        node.kill()
        node.restart()
        node.kill()

    World(1).run(main)
    assert order == ["fenced", "node.kill", "node.boot", "node.kill"]


def test_tasks_started_from_outside_live_and_die_with_the_node() -> None:
    ended: list[str] = []

    async def visitor(node: Node, name: str) -> None:
        assert trio.socket.socket().fileno() > 0  # it has the node's identity
        try:
            await trio.sleep_forever()
        finally:
            ended.append(name)

    async def main(world: World) -> None:
        node = world.node("a")
        with pytest.raises(RuntimeError, match="node a is down"):
            node.start_soon(visitor, node, "early")
        node.boot(sleep_for_ever)
        node.start_soon(visitor, node, "first")
        await trio.sleep(1)
        node.start_soon(visitor, node, "second")
        await trio.sleep(1)
        node.kill()
        await trio.sleep(1)
        assert sorted(ended) == ["first", "second"]

    World(1).run(main)


def test_a_failing_visitor_is_the_nodes_failure() -> None:
    async def visitor() -> NoReturn:
        raise LookupError("visitor")

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(sleep_for_ever)
        await trio.sleep(1)
        node.start_soon(visitor)
        await trio.sleep(1)

    with pytest.raises(NodeFailed) as info:
        World(1).run(main)
    assert isinstance(info.value.__cause__, LookupError)


def test_a_kill_behind_a_partition_leaves_the_peer_half_open_until_it_sends() -> None:
    async def client(node: Node) -> None:
        sock = trio.socket.socket()
        await sock.connect(("server", PORT))
        with trio.CancelScope(deadline=10) as scope:
            await sock.recv(1)
        assert scope.cancelled_caught, "the reset was lost: nothing is to be seen"
        await sock.send(b"anybody there?")
        with pytest.raises(ConnectionResetError):
            await sock.recv(1)

    async def main(world: World) -> None:
        server, node = world.node("server"), world.node("client")
        server.boot(echo_server)
        await trio.sleep(1)
        node.boot(client)
        world.apply(Partition(at_s=2.0, duration_s=2.0, a="server", b="client"), 0)
        world.at(3.0, server.kill)
        await node.wait_down()

    World(1).run(main)


def test_names_and_addresses() -> None:
    world = World(1)
    assert [world.node(name).address for name in "abc"] == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    assert world.node("d", "192.168.0.9").address == "192.168.0.9"
    with pytest.raises(ValueError, match="'a'"):
        world.node("a")
    with pytest.raises(ValueError, match="A and a"):
        world.node("A")
    with pytest.raises(ValueError, match=r"10\.0\.0\.1 of node e is taken by node a"):
        world.node("e", "10.0.0.1")
    for address in ("127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "10.0.0", "::1"):
        with pytest.raises(ValueError, match=f"address of node f.*'{address}'"):
            world.node("f", address)
    assert list(world.nodes) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "of its own"),
        ("localhost", "of its own"),
        ("a.", r"'a\.' ends with a dot"),
        ("a..b", "1 to 63 characters"),
        ("a" * 64, "1 to 63 characters"),
        ("ä" * 60, "cannot be looked up"),
        ("é_1", "cannot be looked up"),
        ("10.0.0.7", "is an address"),
        ("7", "is an address"),
        ("::1", "is an address"),
        ("a b", "cannot be looked up"),
        ("a\0b", "cannot be looked up"),
    ],
)
def test_a_name_that_nobody_could_look_up_is_refused(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        World(1).node(name)


def test_names_resolve_with_a_final_dot_and_without_ascii() -> None:
    found: dict[str, str] = {}
    names = ("server", "server.", "SERVER", "bücher.example", "BÜCHER.example.", "xn--bcher-kva.example", "localhost.")

    async def program(node: Node) -> None:
        for name in names:
            found[name] = str((await trio.socket.getaddrinfo(name, 80))[0][4][0])
        for unknown in ("nobody.", "bücher", b"\xff"):
            with pytest.raises(trio.socket.gaierror):
                await trio.socket.getaddrinfo(unknown, 80)

    async def main(world: World) -> None:
        world.node("server")
        node = world.node("Bücher.example")
        with pytest.raises(ValueError, match=r"differ in more than case: BÜCHER\.example and Bücher\.example"):
            world.node("BÜCHER.example")
        node.boot(program)
        await node.wait_down()

    World(1).run(main)
    addresses = ["10.0.0.1"] * 3 + ["10.0.0.2"] * 3 + ["127.0.0.1"]
    assert found == dict(zip(names, addresses, strict=True))


def test_a_node_may_boot_before_the_run() -> None:
    booted = []

    async def program(node: Node) -> None:
        booted.append((node.name, node.incarnation))
        await trio.sleep_forever()

    async def main(world: World) -> None:
        assert [node.is_up for node in (first, second)] == [True, True]
        with pytest.raises(RuntimeError, match="node first is up"):
            first.boot(sleep_for_ever)
        await trio.sleep(1)
        assert sorted(booted) == [("first", 1), ("first", 2), ("second", 1)]
        await trio.sleep(1)
        assert [node.is_up for node in (first, second)] == [True, False]

    world = World(1)
    first, second = world.node("first"), world.node("second")
    first.boot(program)
    second.boot(program)
    assert not first.is_up
    assert not world.journal.entries
    with pytest.raises(RuntimeError, match="node first boots when the run begins"):
        first.boot(sleep_for_ever)
    world.start_schedule(
        Schedule((Kill(0.0, "first", down_s=0.5, on=On("node.boot", "first")), Kill(1.0, "second", 9.0)))
    )
    world.run(main)
    with pytest.raises(RuntimeError, match="node first boots no more: the run is over"):
        first.restart()
    assert not first.is_up


def test_a_world_of_nodes_that_booted_before_is_the_same_as_one_whose_harness_boots_them() -> None:
    async def program(node: Node) -> None:
        await trio.sleep(node.entropy.token_bytes(1)[0] / 100)

    def digest(*, before: bool) -> str:
        async def main(world: World) -> None:
            if not before:
                node.boot(program)
            await trio.sleep(5)

        world = World(1)
        node = world.node("a")
        if before:
            node.boot(program)
        world.run(main)
        return world.digest

    assert digest(before=True) == digest(before=False)


def test_a_process_that_is_killed_at_its_birth_does_nothing() -> None:
    done: list[str] = []

    async def program(node: Node) -> None:
        done.append(node.name)

    async def extra() -> None:
        done.append("extra")

    async def main(world: World) -> None:
        node = world.node("a")
        for end in (node.kill, node.power_loss):
            node.boot(program)
            node.start_soon(extra)
            end()
        await trio.sleep(1)

    World(1).run(main)
    assert done == []


def test_a_node_boots_once_at_a_time() -> None:
    async def main(world: World) -> None:
        node = world.node("a")
        with pytest.raises(RuntimeError, match="never booted"):
            node.restart()
        node.boot(sleep_for_ever)
        with pytest.raises(RuntimeError, match="node a is up"):
            node.boot(sleep_for_ever)
        with pytest.raises(RuntimeError, match="node a is up"):
            node.restart()

    World(1).run(main)


def test_entropy_and_wall_clock_are_each_nodes_own() -> None:
    async def main(world: World) -> None:
        a, b = world.node("a"), world.node("b")
        assert a.entropy.token_bytes(8) != b.entropy.token_bytes(8)
        assert 0 <= a.entropy.random() < 1
        b.wall_clock.skew_ms = -500
        await trio.sleep(1.25)
        assert a.wall_clock.now_ms() - world.config.epoch_ms == 1250
        assert b.wall_clock.now_ms() - world.config.epoch_ms == 750

    World(1).run(main)
    assert World(1).node("a").entropy.token_bytes(8) == World(1).node("a").entropy.token_bytes(8)
    assert World(1).node("a").entropy.token_bytes(8) != World(2).node("a").entropy.token_bytes(8)
