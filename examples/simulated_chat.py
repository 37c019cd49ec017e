"""Find the bug of `chat_server.py`: the same server, in a world where clients stall, networks split and machines die.

Run it: pip install rmq-actors, then python examples/simulated_chat.py [--fixed] [--runs N] [--replay CASE]

One integer settles a run: which faults happen, and when everything moves. The first run in which somebody is
cut off or misses a line is made smaller and told; the command at the end replays it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shlex
import sys
from functools import partial

import trio
from chat_server import PORT, ChatServer, FixedChatServer

from sim_net import Delay, Kill, Node, Partition, Reset, Schedule, ShortIO, Stall, World, WorldConfig, fault_to_dict
from sim_net.search.search import Case, find, shrink

NAMES = ("alice", "bob", "carol")
LINES = 8
#: Buffers of a few lines, as if the clients were slow for long.
CONFIG = WorldConfig(send_buffer_bytes=32, receive_buffer_bytes=32)


def random_case(seed: int) -> Case:
    """A world of its own, and up to six faults while the three talk."""
    rng = random.Random(seed)
    faults = []
    for _ in range(rng.randint(1, 6)):
        at_s, duration_s, name = round(rng.uniform(0, 5), 1), rng.choice((0.2, 1.0, 4.0)), rng.choice(NAMES)
        fault = rng.choice(
            (
                Delay(at_s=at_s, duration_s=duration_s, a="server", b=name, extra_s=0.3),
                Partition(at_s=at_s, duration_s=duration_s, a="server", b=name),
                Stall(at_s=at_s, duration_s=duration_s, a="server", b=name),
                ShortIO(at_s=at_s, duration_s=duration_s, node="server", bytes_max=3),
                Reset(at_s=at_s, a="server", b=name),
                Kill(at_s=at_s, node=name, down_s=3600.0),
            )
        )
        faults.append(fault)
    return Case(seed, Schedule(faults))


async def talk(world: World, all_are_here: trio.Event, node: Node) -> None:
    """A client: when all are here, say a line every half second."""
    try:
        stream = await trio.open_tcp_stream("server", PORT)
    except OSError:
        return  # the network was down for too long: there will be no talk
    try:
        async with stream, trio.open_nursery() as nursery:
            nursery.start_soon(listen, world, node, stream)
            await all_are_here.wait()
            for number in range(LINES):
                world.journal.record(node.name, "says", line=f"{node.name} {number}")
                await stream.send_all(f"{node.name} {number}\n".encode())
                await trio.sleep(0.5)
    except* trio.BrokenResourceError:
        world.journal.record(node.name, "is cut off")


async def listen(world: World, node: Node, stream: trio.SocketStream) -> None:
    """Note what the others say."""
    rest = b""
    async for data in stream:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            world.journal.record(node.name, "hears", line=line.decode())
    world.journal.record(node.name, "is cut off")


def play(case: Case, server: ChatServer) -> World:
    """Run the server and three clients through the faults of a case; what each says and hears is journaled."""
    world = World(case.seed, CONFIG)

    async def serve(node: Node) -> None:
        await trio.serve_tcp(server.handle, PORT, host=node.address)

    async def harness(world: World) -> None:
        all_are_here = trio.Event()
        world.node("server").boot(serve)
        for name in NAMES:
            world.node(name).boot(partial(talk, world, all_are_here))
        world.start_schedule(case.schedule)
        while trio.current_time() < 60:
            if len(server.clients) == len(NAMES):
                all_are_here.set()
            await trio.sleep(0.1)

    world.run(harness)
    return world


def complaint(case: Case, world: World) -> str | None:
    """What is wrong, or None. Who was reset or killed by a fault may be cut off and miss lines; nobody else may."""
    unlucky = {fault.b for fault in case.schedule.faults if isinstance(fault, Reset)}
    unlucky |= {fault.node for fault in case.schedule.faults if isinstance(fault, Kill)}
    lucky = [name for name in NAMES if name not in unlucky]
    happened = [(entry.node, entry.kind, entry.attributes.get("line", "")) for entry in world.journal.entries]
    for name in lucky:
        if (name, "is cut off", "") in happened:
            return f"{name} was cut off by the server, for no reason"
    for listener, speaker in itertools.permutations(lucky, 2):
        said = [line for node, kind, line in happened if (node, kind) == (speaker, "says")]
        heard = [line for node, kind, line in happened if (node, kind) == (listener, "hears") and line in said]
        if heard != said:
            return f"{listener} heard {heard} of {speaker}, who said {said}"
    return None


def tell(case: Case, world: World) -> None:
    """Print the faults of a run, and what happened from a second before the last of them on."""
    for fault in case.schedule.faults:
        (_, kind), *fields = fault_to_dict(fault).items()
        print(f"  {kind}", *(f"{name}={value}" for name, value in fields))
    start_ns = (max((fault.at_s for fault in case.schedule.faults), default=1.0) - 1) * 1e9
    for entry in world.journal.entries:
        if entry.time_ns >= start_ns:
            print(f"  {entry.time_ns / 1e9:7.3f} s  {entry.node:6} {entry.kind}", *entry.attributes.values())


def main() -> int:
    """Search, shrink, tell; or replay one case. 1 if a run fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fixed", action="store_true", help="run the server without the bug")
    parser.add_argument("--runs", type=int, default=300, help="how many runs to try")
    parser.add_argument("--replay", metavar="CASE", help="a case in JSON: run it alone")
    arguments = parser.parse_args()
    server_type = FixedChatServer if arguments.fixed else ChatServer

    def failure(case: Case) -> str | None:
        return complaint(case, play(case, server_type()))

    if arguments.replay:
        case = Case.from_json(arguments.replay)
    else:
        found = find(failure, random_case, range(arguments.runs), runs_max=arguments.runs)
        if found is None:
            print(f"{arguments.runs} runs: all is well")
            return 0
        print(f"run {found.runs} fails, with {len(found.case.schedule)} faults: {found.failure}")
        case = shrink(found.case, failure, runs_max=500)
    world = play(case, server_type())
    why = complaint(case, world)
    print(f"with {len(case.schedule)} faults (digest {world.digest}): {why or 'all is well'}")
    tell(case, world)
    if not arguments.replay:
        compact = json.dumps(json.loads(case.to_json()))
        print(f"replay it: python examples/simulated_chat.py --replay {shlex.quote(compact)}")
    return 1 if why else 0


if __name__ == "__main__":
    sys.exit(main())
