"""The safe exchange of a master and its slave: over the brokers' own requests, in a simulated world."""

from __future__ import annotations

import attrs
import pytest
import trio

from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import BrokerRole, FlushDiskType
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.role_exchange import BeginExchangeBody, ExchangeInfo
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import OwnRequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.simulation.role_world import RoleWorld, queue_bodies

ASYNC_MASTER, SYNC_MASTER, SLAVE = BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER, BrokerRole.SLAVE


@attrs.define(eq=False, repr=False)
class ExchangeWorld(RoleWorld):
    """A pair whose roles are exchanged."""

    async def begin(self, master: str = "a-0", slave: str = "a-1", limit_s: float = 30.0) -> RemotingCommand:
        body = BeginExchangeBody(limit_ms=int(1000 * limit_s), slave_addr=self.brokers[slave].address)
        return await self.ask_broker(master, RemotingCommand(OwnRequestCode.BEGIN_EXCHANGE, body=encode_body(body)))

    async def info(self, master: str = "a-0") -> ExchangeInfo:
        answer = await self.ask_broker(master, RemotingCommand(OwnRequestCode.GET_EXCHANGE))
        assert answer.code == ResponseCode.SUCCESS
        return decode_body(ExchangeInfo, answer.body)

    async def exchange(self, master: str = "a-0", slave: str = "a-1") -> ExchangeInfo:
        """Begin, and return when it has ended."""
        answer = await self.begin(master, slave)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return await self.ended(master)

    async def ended(self, master: str = "a-0") -> ExchangeInfo:
        with trio.fail_after(120):
            while not (info := await self.info(master)).ended:
                await trio.sleep(0.05)
        return info

    def roles(self) -> list[BrokerRole]:
        return [self.controller(name).config.store.broker_role for name in ("a-0", "a-1")]


@pytest.mark.parametrize("role", [ASYNC_MASTER, SYNC_MASTER])
@pytest.mark.parametrize("flush", FlushDiskType)
def test_roles_are_exchanged_under_load_and_nothing_is_lost(role: BrokerRole, flush: FlushDiskType) -> None:
    servers = ExchangeWorld.of(broker_role=role, flush_disk_type=flush)
    acked: list[bytes] = []
    statuses: set[PutStatus] = set()

    async def produce() -> None:
        number = 0
        while True:
            for name in ("a-0", "a-1"):
                if not servers.controller(name).config.is_slave:
                    body, number = b"%d" % number, number + 1
                    result = await servers.put(name, body)
                    statuses.add(result.status)
                    if result.status is PutStatus.PUT_OK:
                        acked.append(body)
            await trio.sleep(0.003)

    async def make_topic(name: str) -> None:
        remoting = servers.controller("a-0").remoting
        assert remoting is not None
        await remoting.metadata.topics.update_topic_config(TopicConfig(topic_name=name))

    async def use() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            await trio.sleep(1)
            await servers.on_node("a-0", lambda: make_topic("JustMade"))
            before = len(acked)
            info = await servers.exchange()
            assert info.exchanged, info
            during = len(acked)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        assert servers.roles() == [SLAVE, role]
        assert len(acked) > during + 20 > before + 20
        assert PutStatus.SERVICE_NOT_AVAILABLE in statuses
        await servers.wait_replicated("a-0", master="a-1")
        for name in ("a-0", "a-1"):
            broker = servers.controller(name)
            assert set(acked) <= set(queue_bodies(broker)), name
            assert broker.remoting is not None
            assert broker.remoting.metadata.topics.select_topic_config("JustMade") is not None
        assert servers.controller("a-1").term.leads
        assert servers.controller("a-1").term.number == 2
        assert not servers.events("ha.client.halt")

    servers.run_well(use)
