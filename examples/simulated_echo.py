"""A stock Trio echo server and client in a simulated world, with a partition between them: no line of them knows of it.

Run it: pip install rmq-actors, then python examples/simulated_echo.py
"""

from __future__ import annotations

import trio

from sim_net import Node, Partition, Schedule, World

PORT = 7


async def serve(node: Node) -> None:
    """An echo server, as in Trio's tutorial."""

    async def echo(stream: trio.SocketStream) -> None:
        async for data in stream:
            await stream.send_all(data)

    await trio.serve_tcp(echo, PORT, host=node.address)


async def talk(_: Node) -> None:
    """Send a line each second and say when its echo came."""
    stream = await trio.open_tcp_stream("server", PORT)
    for number in range(5):
        sent_s = trio.current_time()
        await stream.send_all(b"line %d" % number)
        answer = await stream.receive_some()
        print(f"{trio.current_time():6.3f} s: {answer.decode()} came back after {trio.current_time() - sent_s:.3f} s")
        await trio.sleep(1)


def main() -> None:
    """Run it twice: the same seed gives the same world."""
    digests = []
    for _ in range(2):
        world = World(seed=1)
        server, client = world.node("server"), world.node("client")
        world.start_schedule(Schedule((Partition(at_s=1.5, duration_s=5.0, a="client", b="server"),)))

        async def harness(_: World, server: Node = server, client: Node = client) -> None:
            server.boot(serve)
            await trio.sleep(0.1)
            client.boot(talk)
            await client.wait_down()

        world.run(harness)
        digests.append(world.digest)
    assert digests[0] == digests[1]
    print(f"both runs: digest {digests[0]}")


if __name__ == "__main__":
    main()
