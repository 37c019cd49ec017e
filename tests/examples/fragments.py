"""What the fragments of code in the documents need around them to run.

A block that is no whole program is found here by its page and its first line. The function runs it in the current
directory, with the names of the example that the page points to, or with names of its own.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import trio

from rmq_actors.embedding.broker import load_broker_config, open_configured_broker
from rmq_actors.embedding.cluster import open_cluster
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import BrokerRole
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.heartbeat import HeartbeatData
from rmq_actors.wire.bodies.routes import TopicList
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from sim_net import Node, World
from tests.examples.blocks import PROJECT
from tests.worlds.server_process import free_broker_port

Names = dict[str, Any]


def example(name: str) -> Names:
    """All names of an example."""
    return runpy.run_path(str(PROJECT / "examples" / f"{name}.py"), run_name=name)


async def run_block(text: str, names: Names) -> Names:
    """Run a block that may await; the names afterwards."""
    code = compile(text, "<block>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    running = eval(code, names)
    if inspect.iscoroutine(running):
        await running
    return names


def embed_in_asyncio(text: str) -> None:
    names = asyncio.run(run_block(text, example("asyncio_app")))
    assert names["result"].status is PutStatus.PUT_OK


def ask_a_name_server(text: str) -> None:
    async def main() -> None:
        async with open_cluster(Path("brokers"), name_server=True) as cluster:
            assert cluster.name_server_address is not None
            here = text.replace("127.0.0.1:9876", cluster.name_server_address)
            assert here != text
            names = await run_block(here, example("remoting_client"))
            assert names["answer"].code == 0

    trio.run(main)


def open_a_store(text: str) -> None:
    names = trio.run(run_block, text, example("message_store"))
    assert len(names["found"].messages) == 1


def tell_and_ask(text: str) -> None:
    trio.run(run_block, text, example("actors_hello"))


def simulate(text: str) -> None:
    names = example("simulated_echo")
    names["main"] = wait_for_the_client
    exec(text, names)
    assert names["world"].now_s > 5


async def wait_for_the_client(world: World) -> None:
    await world.nodes["client"].wait_down()


def run_a_master(text: str) -> None:
    """The page's program instead of `rmq-actors broker -c a.conf`, and its slave."""
    port, slave_port = free_broker_port(), free_broker_port()
    for name, lines in {
        "a": f"brokerRole=SYNC_MASTER\nlistenPort={port}\n",
        "b": f"brokerRole=SLAVE\nbrokerId=1\nlistenPort={slave_port}\nhaMasterAddress=127.0.0.1:{port + 1}\n",
    }.items():
        Path(f"{name}.conf").write_text(
            f"storePathRootDir={Path.cwd() / name}\nmappedFileSizeCommitLog=1048576\n{lines}"
        )

    async def follow() -> None:
        async with open_configured_broker(load_broker_config(Path("b.conf"))):
            await trio.sleep_forever()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            names = await run_block(text, {})
            assert names["result"].status is PutStatus.PUT_OK
            nursery.cancel_scope.cancel()

    trio.run(main)


def change_roles(text: str) -> None:
    async def main() -> None:
        async with open_cluster(Path("brokers"), slaves=1, name_server=True) as cluster:
            (slave,), remoting = cluster.slaves, cluster.master.remoting
            assert remoting is not None
            here = text.replace("10.0.0.1:10912", cluster.master.ha_address)
            here = here.replace("10.0.0.1:10911", remoting.broker_addr)
            await run_block(here, {"broker": slave, "BrokerRole": BrokerRole})
            assert slave.config.store.broker_role is BrokerRole.SLAVE

    trio.run(main)


def exchange_bodies(text: str) -> None:
    names: Names = {each.__name__: each for each in (HeartbeatData, TopicList, decode_body, encode_body)}
    names["command"] = RemotingCommand(RequestCode.HEART_BEAT, body=encode_body(HeartbeatData(client_id="me")))
    names["request"] = RemotingCommand(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    exec(text, names)
    assert names["heartbeat"].client_id == "me"
    assert b'"T"' in names["request"].body


def write_to_a_disk(text: str) -> None:
    """As a program of a node."""
    ran: list[Names] = []

    async def program(node: Node) -> None:
        ran.append(await run_block(text, {"node": node}))

    async def main(world: World) -> None:
        world.node("server").boot(program)
        await world.nodes["server"].wait_down()

    World(seed=1).run(main)
    assert ran


#: By page, and how the block begins.
FRAGMENTS: Mapping[tuple[str, str], Callable[[str], None]] = {
    ("README.md", "async with open_remoting_client() as client:"): ask_a_name_server,
    ("README.md", 'async with open_message_store(Path("store"), MessageStoreCon'): open_a_store,
    ("README.md", "async with open_trio_guest() as trio_guest, trio_guest.enter"): embed_in_asyncio,
    ("README.md", 'async with open_actor_system("bank") as system:'): tell_and_ask,
    ("README.md", "world = World(seed=1)"): simulate,
    ("docs/operating.md", "from pathlib import Path"): run_a_master,
    ("docs/remoting-bodies.md", "heartbeat = decode_body(HeartbeatData, command.body)  # Remo"): exchange_bodies,
    ("docs/roles.md", "await broker.change_role(BrokerRole.SYNC_MASTER)  # changeTo"): change_roles,
    ("docs/sim-net.md", 'file = node.disk.open("store/log", allocate_bytes=0)  # made'): write_to_a_disk,
}

#: What stands before a block that is a test.
BEFORE_TESTS: Mapping[tuple[str, str], str] = {
    ("docs/sim-net.md", '@pytest.mark.trio(run=sim_run(seed=1, nodes=("server",), sch'): """
import pytest
from sim_net import Kill, Schedule, current_world, sim_run


@pytest.fixture
async def served():
    yield


""",
    ("docs/sim-net.md", "def test_a_put_may_be_cancelled_anywhere() -> None:"): """
import sim_net
import trio
from sim_net import CancelInjection, World, cancel_at_every_checkpoint


class Store:
    async def put(self, value):
        for _ in range(20):
            await trio.lowlevel.checkpoint()

    async def check(self):
        await trio.lowlevel.checkpoint()


store = Store()


""",
}
