"""Which actors live in a broker and who is connected, in one answer (GET_BROKER_CENSUS)."""

from __future__ import annotations

from rmq_actors.wire.bodies.broker_census import BrokerCensus
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import OwnRequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.worlds.role_world import RoleWorld


async def census_of(servers: RoleWorld, node: str) -> BrokerCensus:
    answer = await servers.ask_broker(node, RemotingCommand(OwnRequestCode.GET_BROKER_CENSUS))
    assert answer.code == ResponseCode.SUCCESS
    return decode_body(BrokerCensus, answer.body)


def test_actors_and_pools_are_told_with_their_mailboxes() -> None:
    servers = RoleWorld.of()

    async def use() -> None:
        master = servers.controller("a-0")
        told = await census_of(servers, "a-0")
        actors = {each.path: each for each in told.actors}
        assert [*actors] == master.system.census().paths
        pool = actors["BrokerTablePool"]
        assert (pool.state, pool.restarts, pool.mailbox, pool.mailbox_max) == ("running", 0, 0, 10_000)
        assert any(each.kind == "actor" and each.mailbox_max > 0 for each in told.actors)
        assert master.remoting is not None
        assert told.connections == len(master.remoting.remoting_server.connections) >= 1
        assert (told.producers, told.consumers, told.held_pulls, told.dead_letters) == (0, 0, 0, 0)
        following = {each.path or "" for each in (await census_of(servers, "a-1")).actors}
        assert any(path.endswith("HAClient") for path in following)

    servers.run_well(use)
