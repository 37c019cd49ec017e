"""A broker with aclEnable: both its ports check requests, by files that may change while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence

import attrs
import pytest
import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.ports.environment import Environment
from rmq_actors.remoting.acl import AclClientRpcHook
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingClientConfig, RemotingServerConfig
from rmq_actors.remoting.hooks import RpcHook
from rmq_actors.remoting.plain_acl_file import PlainAclError
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.testing.thin_client import Prepared, ThinClient, send_request
from rmq_actors.tracing.event import Event, RunInfo
from rmq_actors.wire.acl_signature import SessionCredentials
from rmq_actors.wire.dispatch_request import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from rmq_actors.wire.record import Message
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import OwnRequestCode, RequestCode, RequestCode5
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Node, World

LISTEN_PORT, FAST_PORT = 10911, 10909
ALICE, BOB = SessionCredentials("alice-key", "alice-secret"), SessionCredentials("bob-key", "bob-secret")
#: A request that no broker knows: who may ask is all that is told by its answer.
ASKED = 9_999
ACL, NO_PERM = "org.apache.rocketmq.acl.common.AclException", "No default permission for "
SHOWN = Message("Shown", b"at offset 0")
#: What is asked for: `call(port, credentials)` gives the code of the answer.
Call = Callable[[int, SessionCredentials | None], Awaitable[int]]


def write_accounts(
    node: Node, path: str, *accounts: SessionCredentials, admins: Sequence[SessionCredentials] = ()
) -> None:
    lines = [
        f"- {{accessKey: {one.access_key}, secretKey: {one.secret_key}, admin: {str(one in admins).lower()}}}"
        for one in (*accounts, *admins)
    ]
    text = "\n".join(["accounts:", *lines])
    with contextlib.suppress(FileNotFoundError):
        node.disk.remove(path)
    with contextlib.closing(node.disk.open(path, allocate_bytes=len(text))) as file:
        file.write_at(0, text.encode())


class BrokerWorld:
    """One broker on the node "broker", which is asked from the node "client"."""

    def __init__(self, first: Message = SHOWN, **settings: object) -> None:
        #: What is at offset 0 of the log.
        self.first = first
        self.world = World(1, guard_packages=("rmq_actors",))
        self.recorder = open_sim_recorder(self.world, RunInfo("test", "acl", 1))
        self.broker, self.client = self.world.node("broker"), self.world.node("client")
        remoting = RemotingServerConfig(self.broker.address, LISTEN_PORT)
        self.config = BrokerConfig("broker-a", remoting=remoting, **settings)  # type: ignore[arg-type]

    def run(self, use: Callable[[Call], Awaitable[None]]) -> None:
        async def serve(node: Node) -> None:
            environment = Environment(node.disk, node.wall_clock, node.entropy)
            async with open_broker(self.config, environment, self.recorder.tracer("broker")) as broker:
                register_asked(broker, self.first)
                ready.set()
                await trio.sleep_forever()

        async def ask(node: Node) -> None:
            await use(self.call)
            done.set()

        async def main(world: World) -> None:
            self.broker.boot(serve)
            await ready.wait()
            self.client.boot(ask)
            await done.wait()

        ready, done = trio.Event(), trio.Event()
        self.world.run(main)

    async def call(
        self,
        port: int,
        credentials: SessionCredentials | None,
        code: int = ASKED,
        body: bytes = b"",
        **fields: str,
    ) -> int:
        return (await self.ask(port, credentials, code, body, **fields)).code

    async def ask(
        self,
        port: int,
        credentials: SessionCredentials | None,
        code: int = ASKED,
        body: bytes = b"",
        **fields: str,
    ) -> RemotingCommand:
        hooks: list[RpcHook] = [] if credentials is None else [AclClientRpcHook(credentials)]
        tracer, entropy = self.recorder.tracer("client"), self.client.entropy
        async with open_actor_system("client", tracer, entropy=entropy) as system:
            client = RemotingClient(RemotingClientConfig(), entropy, tracer, ProcessorTable(tracer), hooks=hooks)
            await system.start(client)
            request = RemotingCommand(code, {"offset": "0", **fields}, body=body)
            return await client.invoke(f"{self.broker.address}:{port}", request, 3000)


def register_asked(broker: BrokerController, first: Message) -> None:
    assert broker.remoting is not None
    broker.async_put_message(first)
    broker.remoting.processors.register([ASKED], lambda request: request.command.response(ResponseCode.QUERY_NOT_FOUND))


def test_both_ports_ask_for_an_account() -> None:
    acl = BrokerWorld(acl_enable=True)
    write_accounts(acl.broker, "conf/plain_acl.yml", ALICE)

    async def use(call: Call) -> None:
        for port in (LISTEN_PORT, FAST_PORT):
            assert await call(port, ALICE) == ResponseCode.QUERY_NOT_FOUND
            assert await call(port, BOB) == ResponseCode.SYSTEM_ERROR
            assert await call(port, None) == ResponseCode.SYSTEM_ERROR

    acl.run(use)


def test_accounts_come_and_go_while_it_runs() -> None:
    acl = BrokerWorld(acl_enable=True, rocketmq_home="/opt/rocketmq/")
    write_accounts(acl.broker, "opt/rocketmq/conf/acl/team.yml", ALICE)

    async def use(call: Call) -> None:
        assert await call(LISTEN_PORT, ALICE) == ResponseCode.QUERY_NOT_FOUND
        write_accounts(acl.broker, "opt/rocketmq/conf/acl/team.yml", BOB)
        await trio.sleep(5.1)
        assert await call(LISTEN_PORT, ALICE) == ResponseCode.SYSTEM_ERROR
        assert await call(FAST_PORT, BOB) == ResponseCode.QUERY_NOT_FOUND

    acl.run(use)


LOOKED_AT: tuple[int, ...] = (
    RequestCode.GET_BROKER_CONFIG,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode5.GET_BROKER_HA_STATUS,
    OwnRequestCode.GET_REPLICATION_STATE,
    OwnRequestCode.GET_EXCHANGE,
    OwnRequestCode.GET_BROKER_CENSUS,
)
CHANGED_BY: tuple[int, ...] = (
    RequestCode.UPDATE_BROKER_CONFIG,
    OwnRequestCode.TRUNCATE_LOG,
    OwnRequestCode.BEGIN_EXCHANGE,
    OwnRequestCode.PREPARE_EXCHANGE,
    OwnRequestCode.PROMOTE_EXCHANGE,
    OwnRequestCode.FOLLOW_AGAIN,
)


def test_operators_need_an_account_to_look_and_an_admins_to_change() -> None:
    """As in RocketMQ; the codes from 30000 on are not its own."""
    acl = BrokerWorld(acl_enable=True)
    write_accounts(acl.broker, "conf/plain_acl.yml", ALICE, admins=[BOB])
    refused = ResponseCode.SYSTEM_ERROR
    change = b"haTruncateOnDivergence=true\n"

    async def use(_: Call) -> None:
        for port in (LISTEN_PORT, FAST_PORT):
            for code in LOOKED_AT:
                assert await acl.call(port, None, code) == refused
                assert await acl.call(port, ALICE, code) == ResponseCode.SUCCESS
            for code in CHANGED_BY:
                assert await acl.call(port, None, code, change) == refused
                assert await acl.call(port, ALICE, code, change) == refused
        assert len(denied()) == 2 * (len(LOOKED_AT) + 2 * len(CHANGED_BY))
        assert await acl.call(LISTEN_PORT, BOB, RequestCode.UPDATE_BROKER_CONFIG, change) == ResponseCode.SUCCESS
        # A master has nothing to cut, and follows nobody: it was asked, and said so.
        assert await acl.call(LISTEN_PORT, BOB, OwnRequestCode.TRUNCATE_LOG) == refused
        assert await acl.call(LISTEN_PORT, BOB, OwnRequestCode.FOLLOW_AGAIN) == refused
        assert len(denied()) == 2 * (len(LOOKED_AT) + 2 * len(CHANGED_BY))

    def denied() -> list[Event]:
        return [event for event in acl.recorder.events if event.kind == "remoting.denied"]

    acl.run(use)


def test_a_transaction_is_ended_by_those_who_may_send_to_its_topic() -> None:
    acl = BrokerWorld(acl_enable=True)
    text = "accounts:\n" + "".join(
        f"- {{accessKey: {one.access_key}, secretKey: {one.secret_key}, topicPerms: [{topic}=PUB]}}\n"
        for one, topic in ((ALICE, "TopicA"), (BOB, "TopicB"))
    )
    with contextlib.closing(acl.broker.disk.open("conf/plain_acl.yml", allocate_bytes=len(text))) as file:
        file.write_at(0, text.encode())

    async def as_account(credentials: SessionCredentials, use: Callable[[ThinClient], Awaitable[None]]) -> None:
        tracer, entropy = acl.recorder.tracer("client"), acl.client.entropy
        async with open_actor_system("client", tracer, entropy=entropy) as system:
            hooks: list[RpcHook] = [AclClientRpcHook(credentials)]
            client = RemotingClient(RemotingClientConfig(), entropy, tracer, ProcessorTable(tracer), hooks=hooks)
            await system.start(client)
            address = f"{acl.broker.address}:{LISTEN_PORT}"
            await use(ThinClient(lambda request: client.invoke(address, request, 3_000)))

    async def use(_: Call) -> None:
        prepared: list[Prepared] = []

        async def prepare(client: ThinClient) -> None:
            code, half = await client.prepare("TopicA", b"x")
            assert isinstance(half, Prepared), (code, half)
            prepared.append(half)

        async def refused(client: ThinClient) -> None:
            answer = await client.end(prepared[0], 8)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "No default permission for topic:TopicA" in (answer.remark or "")
            resume = RemotingCommand(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": "0" * 32})
            assert "Need admin permission" in ((await client.ask(resume)).remark or "")

        async def commit(client: ThinClient) -> None:
            assert (await client.end(prepared[0], 8)).code == ResponseCode.SUCCESS

        await as_account(ALICE, prepare)
        await as_account(BOB, refused)
        await as_account(ALICE, commit)

    acl.run(use)


def test_without_acl_enable_nobody_is_asked_and_no_file_is_read() -> None:
    acl = BrokerWorld()
    write_accounts(acl.broker, "conf/plain_acl.yml", SessionCredentials("bad", ""))

    async def use(call: Call) -> None:
        assert await call(LISTEN_PORT, None) == ResponseCode.QUERY_NOT_FOUND
        assert await call(FAST_PORT, BOB) == ResponseCode.QUERY_NOT_FOUND

    acl.run(use)


@pytest.mark.parametrize("account", [None, SessionCredentials("short", "x")])
def test_a_broker_whose_accounts_cannot_be_used_does_not_start(account: SessionCredentials | None) -> None:
    acl = BrokerWorld(acl_enable=True)
    if account is not None:
        write_accounts(acl.broker, "conf/plain_acl.yml", account)
    refused: list[PlainAclError] = []

    async def start(node: Node) -> None:
        try:
            async with open_broker(
                acl.config, Environment(node.disk, node.wall_clock, node.entropy), acl.recorder.tracer("broker")
            ):
                pass
        except PlainAclError as error:
            refused.append(error)

    async def main(world: World) -> None:
        acl.broker.boot(start)
        await acl.broker.wait_down()

    acl.world.run(main)
    assert len(refused) == 1
    assert "conf/plain_acl.yml" in str(refused[0])


@pytest.mark.parametrize(
    "first",
    [
        SHOWN,
        # A consumer that sends a message on sends its properties, too.
        attrs.evolve(SHOWN, properties={"REAL_TOPIC": "Other", "REAL_QID": "0"}),
        attrs.evolve(SHOWN, delay_time_level=1),
        *(
            Message(topic, b"x", properties={"REAL_TOPIC": "Shown", "REAL_QID": "0"})
            for topic in (HALF_TOPIC, CHECK_MAX_TIME_TOPIC)
        ),
    ],
    ids=["plain", "sent on", "delayed", "half", "given up"],
)
def test_a_message_is_shown_by_its_id_to_who_may_use_its_topic_alone(first: Message) -> None:
    acl = BrokerWorld(first, acl_enable=True)
    text = (
        "accounts:\n- {accessKey: alice-key, secretKey: alice-secret, topicPerms: [Other=SUB]}\n"
        "- {accessKey: bob-key, secretKey: bob-secret, topicPerms: [Shown=PUB]}\n"
    )
    with contextlib.closing(acl.broker.disk.open("conf/plain_acl.yml", allocate_bytes=len(text))) as file:
        file.write_at(0, text.encode())

    async def use(_: Call) -> None:
        assert await acl.call(LISTEN_PORT, ALICE, RequestCode.VIEW_MESSAGE_BY_ID) == ResponseCode.SYSTEM_ERROR
        assert await acl.call(LISTEN_PORT, BOB, RequestCode.VIEW_MESSAGE_BY_ID) == ResponseCode.SUCCESS

    acl.run(use)


def test_a_group_sends_back_messages_of_topics_that_it_may_receive_alone() -> None:
    """The request names an offset of the log; what is there would come to the group's topic of retries."""
    acl = BrokerWorld(acl_enable=True)
    text = "accounts:\n" + "".join(
        f"- {{accessKey: {one.access_key}, secretKey: {one.secret_key}, topicPerms: [{topic}=SUB], "
        f"groupPerms: [{group}=SUB]}}\n"
        for one, topic, group in ((ALICE, "Other", "GroupA"), (BOB, "Shown", "GroupB"))
    )
    with contextlib.closing(acl.broker.disk.open("conf/plain_acl.yml", allocate_bytes=len(text))) as file:
        file.write_at(0, text.encode())
    code = RequestCode.CONSUMER_SEND_MSG_BACK

    async def use(_: Call) -> None:
        refused = await acl.call(LISTEN_PORT, ALICE, code, group="GroupA", delayLevel="1")
        assert refused == ResponseCode.SYSTEM_ERROR
        assert await acl.call(LISTEN_PORT, BOB, code, group="GroupB", delayLevel="1") == ResponseCode.SUCCESS

    acl.run(use)


def test_a_message_enters_queues_of_topics_that_its_producer_may_send_to_alone() -> None:
    store = MessageStoreConfig(enable_multi_dispatch=True, enable_lmq=True)
    acl = BrokerWorld(acl_enable=True, store=store)
    text = "accounts:\n" + "".join(
        f"- {{accessKey: {one.access_key}, secretKey: {one.secret_key}, topicPerms: [{topics}]}}\n"
        for one, topics in ((ALICE, "BenchmarkTest=PUB"), (BOB, "BenchmarkTest=PUB, DefaultCluster=PUB"))
    )
    with contextlib.closing(acl.broker.disk.open("conf/plain_acl.yml", allocate_bytes=len(text))) as file:
        file.write_at(0, text.encode())

    def fields(properties: str) -> dict[str, str]:
        return send_request("BenchmarkTest", b"").ext_fields | {"i": properties}  # type: ignore[operator]

    async def use(_: Call) -> None:
        code, sent = RequestCode.SEND_MESSAGE_V2, fields("INNER_MULTI_DISPATCH\1DefaultCluster,%LMQ%a")
        refused = await acl.ask(LISTEN_PORT, ALICE, code, b"x", **sent)
        assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, f"{ACL}: {NO_PERM}topic:DefaultCluster")
        assert await acl.call(LISTEN_PORT, BOB, code, b"x", **sent) == ResponseCode.SUCCESS
        assert await acl.call(LISTEN_PORT, ALICE, code, b"x", **fields("KEYS\1k")) == ResponseCode.SUCCESS

    acl.run(use)
