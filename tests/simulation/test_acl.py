"""Access control on a running server: who is answered what, and what its processors never see."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import attrs
import pytest
import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.protocols.plain_access import Permission, PlainAccessResource, PlainAccessRules
from rmq_actors.protocols.remote_address import remote_address_strategy
from rmq_actors.remoting.acl import AclClientRpcHook, AclServerRpcHook
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingClientConfig, RemotingServerConfig
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.hooks import RpcHook
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.remoting.server import RemotingServer
from rmq_actors.tracing.events.remoting import RemotingDenied, RemotingOpen
from rmq_actors.wire.acl_signature import SessionCredentials
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Node, World
from tests.worlds.remoting_world import PORT, RemotingWorld

ALICE = SessionCredentials("alice-key", "alice-secret")
IMPOSTOR = SessionCredentials("alice-key", "guessed-it")
SEND, DELETE = RequestCode.SEND_MESSAGE_V2, RequestCode.DELETE_TOPIC_IN_BROKER
ASK_CLIENT = RequestCode.GET_CONSUMER_RUNNING_INFO
REFUSED = "org.apache.rocketmq.acl.common.AclException: "


@attrs.define(eq=False)
class Guarded:
    """A server with access control on one node; calls are made on the other."""

    remoting: RemotingWorld = attrs.field(factory=RemotingWorld)
    rules: PlainAccessRules = attrs.field(init=False)
    processed: list[RemotingCommand] = attrs.field(factory=list, init=False)
    server: RemotingServer = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.allow(PlainAccessResource(ALICE.access_key, ALICE.secret_key, resource_perms={"topicA": Permission.PUB}))

    def allow(self, account: PlainAccessResource) -> None:
        self.rules = PlainAccessRules({account.access_key: account})

    def process(self, request: RemotingRequest) -> RemotingCommand:
        self.processed.append(request.command)
        return request.command.response(ResponseCode.SUCCESS)

    async def serve(self, node: Node) -> None:
        tracer = self.remoting.recorder.tracer(node.name)
        processors = ProcessorTable(tracer)
        processors.register([SEND, DELETE], self.process)
        hook: RpcHook = AclServerRpcHook(lambda: self.rules, tracer)
        async with open_actor_system(node.name, tracer, entropy=node.entropy) as system:
            config = RemotingServerConfig(node.address, PORT)
            self.server = RemotingServer(config, processors, tracer, hooks=[hook])
            await system.start(self.server)
            await trio.sleep_forever()

    @contextlib.asynccontextmanager
    async def client(self, credentials: SessionCredentials | None) -> AsyncIterator[RemotingClient]:
        node = self.remoting.client_node
        tracer = self.remoting.recorder.tracer(node.name)
        hooks: list[RpcHook] = [AclClientRpcHook(credentials)] if credentials is not None else []
        processors = ProcessorTable(tracer)
        processors.register([ASK_CLIENT], lambda request: request.command.response(0, remark="as you wish"))
        async with open_actor_system(node.name, tracer, entropy=node.entropy) as system:
            client = RemotingClient(RemotingClientConfig(), node.entropy, tracer, processors, hooks=hooks)
            await system.start(client)
            yield client

    def run(self, calls: Callable[[], Awaitable[None]]) -> None:
        async def call(node: Node) -> None:
            await calls()
            done.set()

        async def main(world: World) -> None:
            self.remoting.server_node.boot(self.serve)
            await trio.sleep(0.01)
            self.remoting.client_node.boot(call)
            await done.wait()

        done = trio.Event()
        self.remoting.world.run(main)


def send(topic: str) -> RemotingCommand:
    return RemotingCommand(SEND, {"b": topic, "a": "PID"}, body=b"a message")


@pytest.mark.parametrize(
    ("credentials", "command", "remark"),
    [
        (ALICE, send("topicA"), None),
        (ALICE, send("topicB"), f"{REFUSED}No default permission for topic:topicB"),
        (
            ALICE,
            RemotingCommand(DELETE, {"topic": "topicA"}),
            f"{REFUSED}Need admin permission for request code=215, but accessKey=alice-key is not",
        ),
        (IMPOSTOR, send("topicA"), f"{REFUSED}Check signature failed for accessKey=alice-key"),
        (SessionCredentials("bob", "bob-secret"), send("topicA"), f"{REFUSED}No acl config for bob"),
        (None, send("topicA"), f"{REFUSED}No accessKey is configured"),
        (None, RemotingCommand(SEND), f"{REFUSED}No accessKey is configured"),
    ],
)
def test_who_may_not_is_told_why_and_nothing_is_processed(
    credentials: SessionCredentials | None, command: RemotingCommand, remark: str | None
) -> None:
    guarded = Guarded()

    async def calls() -> None:
        async with guarded.client(credentials) as client:
            answer = await client.invoke(guarded.remoting.address, copy.deepcopy(command), 3000)
        expected = ResponseCode.SUCCESS if remark is None else ResponseCode.SYSTEM_ERROR
        assert (answer.code, answer.remark) == (expected, remark)

    guarded.run(calls)
    assert len(guarded.processed) == (remark is None)
    denied = guarded.remoting.events(RemotingDenied)
    assert len(denied) == (remark is not None)
    for event in denied:
        assert event.code == int(command.code)
        assert f"{REFUSED}{event.detail}" == remark


def test_a_one_way_request_that_may_not_be_is_dropped() -> None:
    guarded = Guarded()

    async def calls() -> None:
        async with guarded.client(IMPOSTOR) as client:
            await client.invoke_oneway(guarded.remoting.address, send("topicA"), 3000)
            await trio.sleep(1)
        async with guarded.client(ALICE) as client:
            await client.invoke_oneway(guarded.remoting.address, send("topicA"), 3000)
            await trio.sleep(1)

    guarded.run(calls)
    assert len(guarded.processed) == 1
    assert len(guarded.remoting.events(RemotingDenied)) == 1


def test_a_connection_goes_on_after_a_refusal_and_new_rules_hold_at_once() -> None:
    guarded = Guarded()

    async def calls() -> None:
        async with guarded.client(ALICE) as client:

            async def code_of(topic: str) -> int:
                return (await client.invoke(guarded.remoting.address, send(topic), 3000)).code

            assert await code_of("topicB") == ResponseCode.SYSTEM_ERROR
            assert await code_of("topicA") == ResponseCode.SUCCESS
            guarded.allow(
                PlainAccessResource(ALICE.access_key, ALICE.secret_key, resource_perms={"topicB": Permission.PUB})
            )
            assert await code_of("topicB") == ResponseCode.SUCCESS
            assert await code_of("topicA") == ResponseCode.SYSTEM_ERROR
            guarded.rules = PlainAccessRules()
            assert await code_of("topicB") == ResponseCode.SYSTEM_ERROR

    guarded.run(calls)
    assert len(guarded.remoting.events(RemotingOpen)) == 1


def test_a_peer_on_the_white_list_needs_no_account() -> None:
    guarded = Guarded()
    address = guarded.remoting.client_node.address
    strategy = remote_address_strategy(address)
    assert strategy is not None
    guarded.rules = PlainAccessRules({}, [strategy])

    async def calls() -> None:
        async with guarded.client(None) as client:
            assert (await client.invoke(guarded.remoting.address, send("topicA"), 3000)).code == 0
            near = remote_address_strategy(f"{address}0")
            assert near is not None
            guarded.rules = PlainAccessRules({}, [near])
            assert (await client.invoke(guarded.remoting.address, send("topicA"), 3000)).code == 1

    guarded.run(calls)


def test_a_broker_may_ask_its_clients_without_an_account() -> None:
    """Its hook judges what arrives, not what it sends (CHECK_TRANSACTION_STATE, NOTIFY_CONSUMER_IDS_CHANGED, ...)."""
    guarded = Guarded()

    async def calls() -> None:
        async with guarded.client(ALICE) as client:
            await client.invoke(guarded.remoting.address, send("topicA"), 3000)
            (connection,) = guarded.server.connections.values()
            answer = await connection.invoke(RemotingCommand(ASK_CLIENT), 3000)
            assert answer.remark == "as you wish"
            connection.invoke_oneway(RemotingCommand(ASK_CLIENT))

    guarded.run(calls)
    assert not guarded.remoting.events(RemotingDenied)


def test_no_secret_is_logged_or_traced(caplog: pytest.LogCaptureFixture) -> None:
    guarded = Guarded()

    async def calls() -> None:
        for credentials in (ALICE, IMPOSTOR):
            async with guarded.client(credentials) as client:
                await client.invoke(guarded.remoting.address, send("topicB"), 3000)

    with caplog.at_level(logging.DEBUG):
        guarded.run(calls)
    assert caplog.records
    for secret in (ALICE.secret_key, IMPOSTOR.secret_key):
        assert secret not in caplog.text
        assert secret not in repr(guarded.remoting.recorder.events)
