"""Whatever the network does short of breaking a connection, a stream of bytes arrives whole and in order."""

from __future__ import annotations

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from sim_net import (
    Bandwidth,
    Delay,
    Fault,
    Hold,
    LinkConfig,
    Loss,
    Node,
    Partition,
    Schedule,
    ShortIO,
    Stall,
    World,
    WorldConfig,
)

PORT = 7000
NAMES = ("sender", "receiver")

at = st.sampled_from([0.0, 1.0, 1.0005, 1.001, 1.01, 1.5])
lasts = st.sampled_from([0.0003, 0.002, 0.3, 5.0])
ends = st.sampled_from([NAMES, NAMES[::-1]])
faults: st.SearchStrategy[Fault] = st.one_of(
    st.builds(
        lambda at_s, s, ab, extra, both: Delay(at_s, s, ab[0], ab[1], extra, both), at, lasts, ends, at, st.booleans()
    ),
    st.builds(lambda at_s, s, ab, both: Partition(at_s, s, ab[0], ab[1], both), at, lasts, ends, st.booleans()),
    st.builds(lambda at_s, s, ab, both: Hold(at_s, s, ab[0], ab[1], both), at, lasts, ends, st.booleans()),
    st.builds(lambda at_s, s, ab, p: Loss(at_s, s, ab[0], ab[1], p), at, lasts, ends, st.sampled_from([0.1, 0.5, 1.0])),
    st.builds(
        lambda at_s, s, ab, rate: Bandwidth(at_s, s, ab[0], ab[1], rate), at, lasts, ends, st.sampled_from([10.0, 1e5])
    ),
    st.builds(lambda at_s, s, ab: Stall(at_s, s, ab[0], ab[1]), at, lasts, ends),
    st.builds(ShortIO, at, lasts, st.sampled_from(NAMES), st.integers(1, 5)),
)
configs = st.builds(
    lambda latency, segment, send, receive: WorldConfig(
        link=LinkConfig(latency[0], latency[1], segment_bytes=segment),
        send_buffer_bytes=send,
        receive_buffer_bytes=receive,
        connect_timeout_s=60.0,
    ),
    st.sampled_from([(0.0, 0.0), (0.0, 0.02), (0.001, 0.001), (0.0001, 0.3)]),
    st.sampled_from([1, 3, 100, 65_536]),
    st.sampled_from([1, 7, 1000, 65_536]),
    st.sampled_from([1, 7, 1000, 65_536]),
)


def transfer(
    seed: int, config: WorldConfig, schedule: Schedule, payload: bytes, write: int, read: int
) -> tuple[bytes, bytes]:
    """Send `payload` there and back at once, in pieces of `write` and `read` bytes; what each end received."""
    received: dict[str, bytearray] = {name: bytearray() for name in NAMES}

    async def both_ways(node: Node, sock: trio.socket.SocketType) -> None:
        async def send() -> None:
            rest = memoryview(payload)
            while rest:
                sent = await sock.sendmsg([rest[: write // 2], rest[write // 2 : write]])
                assert 0 < sent <= min(write, len(rest))
                rest = rest[sent:]
            sock.shutdown(trio.socket.SHUT_WR)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            buffer = bytearray(read)
            while size := await sock.recv_into(buffer):
                received[node.name] += buffer[:size]

    async def receiver(node: Node) -> None:
        with trio.socket.socket() as listener:
            await listener.bind((node.address, PORT))
            listener.listen()
            sock, _ = await listener.accept()
            with sock:
                await both_ways(node, sock)

    async def sender(node: Node) -> None:
        with trio.socket.socket() as sock:
            await sock.connect(("receiver", PORT))
            await both_ways(node, sock)

    async def main(world: World) -> None:
        nodes = [world.node(name) for name in NAMES]
        world.start_schedule(schedule)
        nodes[1].boot(receiver)
        await trio.sleep(1)
        nodes[0].boot(sender)
        for node in nodes:
            await node.wait_down()

    World(seed, config).run(main)
    return bytes(received["sender"]), bytes(received["receiver"])


@settings(max_examples=150)
@given(
    st.integers(0, 1 << 32),
    configs,
    st.lists(faults, max_size=5).map(lambda each: Schedule(tuple(each))),
    st.binary(min_size=1, max_size=300),
    st.sampled_from([1, 2, 50, 300]),
    st.sampled_from([1, 3, 300]),
)
def test_bytes_arrive_whole_and_in_order(
    seed: int, config: WorldConfig, schedule: Schedule, payload: bytes, write: int, read: int
) -> None:
    assert transfer(seed, config, schedule, payload, max(2, write), read) == (payload, payload)
