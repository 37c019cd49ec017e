"""What a name server answers: the words of a Java one, and a clear text for whatever cannot be done."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from rmq_actors.namesrv.config import NamesrvConfig
from rmq_actors.namesrv.default_request_processor import DefaultRequestProcessor
from rmq_actors.namesrv.kv_config import KVConfigManager
from rmq_actors.namesrv.namesrv_configuration import Configuration
from rmq_actors.namesrv.route_table import RouteInfoManager, RouteTableLimits
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable, RequestPool
from rmq_actors.store.files.json_file import ConfigFile, JsonFile
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.register_broker import RegisterBrokerBody, body_crc32
from rmq_actors.wire.bodies.routes import KVTable, TopicList, TopicRouteData
from rmq_actors.wire.bodies.topic_configs import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rmq_actors.wire.frame_reader import FrameReader
from rmq_actors.wire.headers import encode_header
from rmq_actors.wire.headers.namesrv import RegisterBrokerRequestHeader, UnRegisterBrokerRequestHeader
from rmq_actors.wire.remoting_command import ONEWAY_FLAG, RemotingCommand, encode_command
from rmq_actors.wire.request_code import RequestCode as Code
from rmq_actors.wire.response_code import ResponseCode
from tests.worlds.faulty_disk import FaultyDisk
from tests.worlds.fed_frames import feed
from tests.worlds.recording import new_recorder

STREAMS = Path(__file__).parents[1] / "golden" / "remoting" / "streams"
WRAPPER = TopicConfigSerializeWrapper(
    data_version=DataVersion(counter=1, timestamp=1),
    topic_config_table={
        "T": TopicConfig(topic_name="T", topic_sys_flag=1),
        "U": TopicConfig(topic_name="U", topic_sys_flag=2),
    },
)
CLUSTER_INFO = (
    b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"h:1"},"brokerName":"broker-a","cluster":"c"}},'
    b'"clusterAddrTable":{"c":["broker-a"]}}'
)
MASTER = {"brokerName": "broker-a", "brokerAddr": "h:1", "clusterName": "c", "brokerId": "0"}


@attrs.define(eq=False)
class Peer:
    """A connection that keeps what it is sent."""

    conn_id: int
    remote_address: str = "10.0.0.9:33333"
    hooks: tuple[()] = ()
    sent: list[RemotingCommand] = attrs.field(factory=list)

    def send(self, command: RemotingCommand) -> None:
        self.sent.append(command)


@attrs.define(eq=False)
class NameServer:
    """The processor, without a network."""

    root: Path
    config: NamesrvConfig = attrs.field(factory=NamesrvConfig)
    disk: FaultyDisk = attrs.field(init=False)
    kv_config: KVConfigManager = attrs.field(init=False)
    routes: RouteInfoManager = attrs.field(init=False)
    processors: ProcessorTable = attrs.field(init=False)
    pool: RequestPool = attrs.field(init=False)
    peers: dict[int, Peer] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.disk = FaultyDisk(self.root)
        recorder = new_recorder()
        tracer = recorder.tracer("namesrv")
        self.kv_config = KVConfigManager(JsonFile(self.disk, self.config.kv_config_path, 1000))
        configuration = Configuration(
            self.config, ConfigFile(self.disk, self.config.config_store_path), {"serverWorkerThreads": "8"}
        )
        self.processors = ProcessorTable(tracer)
        self.pool = RequestPool("pool", 1, 10, None, tracer)
        self.routes = RouteInfoManager(120.0, self.config.routes)
        DefaultRequestProcessor(self.routes, self.kv_config, configuration, tracer).register(self.processors, self.pool)

    async def ask(self, command: RemotingCommand, conn_id: int = 1) -> RemotingCommand | None:
        peer: Any = self.peers.setdefault(conn_id, Peer(conn_id))
        request = RemotingRequest(peer, command, trio.current_time())
        self.processors.process(request)
        while not request.is_answered:
            await trio.lowlevel.checkpoint()
        return peer.sent.pop() if peer.sent else None

    async def answer(
        self,
        code: int,
        ext_fields: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        version: int = 407,
        conn_id: int = 1,
    ) -> RemotingCommand:
        response = await self.ask(RemotingCommand(code, dict(ext_fields or {}), version=version, body=body), conn_id)
        assert response is not None
        return response

    async def register(
        self, wrapper: TopicConfigSerializeWrapper = WRAPPER, *, compressed: bool = False, **fields: str
    ) -> RemotingCommand:
        body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode(compressed=compressed)
        values = {**MASTER, "haServerAddr": "h:2", "compressed": str(compressed).lower(), **fields}
        return await self.answer(Code.REGISTER_BROKER, values, body)


def served(test: Callable[[NameServer], Any]) -> Callable[[Path], None]:
    """An async test of a name server in a fresh directory."""

    @functools.wraps(test)
    def run(tmp_path: Path) -> None:
        async def main() -> None:
            server = NameServer(tmp_path)
            async with trio.open_nursery() as nursery:
                await nursery.start(server.pool.run)
                await test(server)
                nursery.cancel_scope.cancel()

        trio.run(main)

    del run.__wrapped__  # pytest would ask for the fixture `server`
    return run


# --- what Java processes said to a Java name server -------------------------------------------------------------------


def commands_of(stream: str) -> list[RemotingCommand]:
    reader, commands = FrameReader(), []
    feed(reader, (STREAMS / f"{stream}.bin").read_bytes())
    while found := reader.commands():
        commands += found
    return commands


@attrs.define
class Conversation:
    """One connection's requests, in order, with the answers that the Java name server gave."""

    conn_id: int
    requests: list[RemotingCommand]
    answers: dict[int, RemotingCommand]

    @classmethod
    def of(cls, conn_id: int, stream: str) -> Conversation:
        answers = {answer.opaque: answer for answer in commands_of(f"{stream}.s2c")}
        return cls(conn_id, commands_of(f"{stream}.c2s"), answers)

    async def go_on(self, server: NameServer) -> None:
        request = self.requests.pop(0)
        expected = None if request.is_oneway else self.answers[request.opaque]
        given = await server.ask(request, self.conn_id)
        if expected is None:
            assert given is None
        else:
            assert given is not None
            given.language = "JAVA"
            assert encode_command(given) == encode_command(expected)


@served
async def test_a_golden_conversation_gets_the_answers_of_a_java_name_server(server: NameServer) -> None:
    """A master, its slave and a client: 3 streams, and of one it is known only what must have come before what."""
    master, slave = Conversation.of(1, "mreg.0"), Conversation.of(2, "cns.0")
    client = Conversation.of(3, "cns.1")
    await master.go_on(server)
    await slave.go_on(server)
    while client.requests:
        asked = client.requests[0]
        while client.answers[asked.opaque].code == ResponseCode.SUCCESS and not await knows(server, asked):
            await master.go_on(server)
        await client.go_on(server)
    while len(slave.requests) > 1:
        await slave.go_on(server)
    while len(master.requests) > 1:
        await master.go_on(server)
    await slave.go_on(server)
    await master.go_on(server)
    assert decode_body(TopicList, (await server.answer(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).body).topic_list == []


async def knows(server: NameServer, asked: RemotingCommand) -> bool:
    return (await server.answer(asked.code, asked.ext_fields)).code == ResponseCode.SUCCESS


# --- brokers ----------------------------------------------------------------------------------------------------------


@served
async def test_a_slave_is_told_of_its_master(server: NameServer) -> None:
    assert (await server.register()).ext_fields == {}
    answer = await server.register(brokerId="1", brokerAddr="h:3")
    assert (answer.code, answer.remark, answer.ext_fields) == (0, None, {"haServerAddr": "h:2", "masterAddr": "h:1"})


@served
async def test_filter_servers_stay_when_a_broker_of_old_registers(server: NameServer) -> None:
    body = RegisterBrokerBody(filter_server_list=["f:1"], topic_config_serialize_wrapper=WRAPPER)
    fields = {**MASTER, "haServerAddr": "h:2"}
    for version, data, expected in (
        (407, body.encode(compressed=False), {"h:1": ["f:1"]}),
        (36, encode_body(WRAPPER), {"h:1": ["f:1"]}),
        (407, b"", {}),
    ):
        await server.answer(Code.REGISTER_BROKER, fields, data, version=version)
        route = decode_body(TopicRouteData, (await server.answer(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})).body)
        assert route.filter_server_table == expected


@served
async def test_a_broker_that_asks_by_an_older_connection_is_not_heard_of_by_it(server: NameServer) -> None:
    await server.register(brokerId="1")
    for conn_id in (3, 2):
        known = encode_body(WRAPPER.data_version)
        await server.answer(Code.QUERY_DATA_VERSION, {**MASTER, "brokerId": "1"}, known, conn_id=conn_id)
    assert server.routes.is_used(3)
    assert not server.routes.is_used(2)


@served
async def test_the_compressed_form_is_read(server: NameServer) -> None:
    assert (await server.register(compressed=True)).code == ResponseCode.SUCCESS
    assert (await server.answer(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})).code == ResponseCode.SUCCESS


@served
async def test_a_body_is_checked_where_a_checksum_says_so(server: NameServer) -> None:
    body = RegisterBrokerBody(topic_config_serialize_wrapper=WRAPPER).encode(compressed=False)
    assert (await server.register(bodyCrc32=str(body_crc32(body)))).code == ResponseCode.SUCCESS
    answer = await server.register(bodyCrc32=str(body_crc32(body) ^ 1))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")


@served
async def test_a_broker_of_old_sends_its_topics_as_the_whole_body(server: NameServer) -> None:
    fields = {**MASTER, "haServerAddr": "h:2"}
    for version, topic in ((36, "T"), (37, None)):
        await server.answer(Code.REGISTER_BROKER, fields, encode_body(WRAPPER), version=version)
        answer = await server.answer(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
        assert answer.code == (ResponseCode.SUCCESS if topic else ResponseCode.TOPIC_NOT_EXIST)
        await server.answer(Code.UNREGISTER_BROKER, MASTER)


@served
async def test_a_registration_without_a_body_has_no_topics(server: NameServer) -> None:
    for version in (36, 407):
        answer = await server.answer(Code.REGISTER_BROKER, {**MASTER, "haServerAddr": "h:2"}, version=version)
        assert answer.code == ResponseCode.SUCCESS
    assert decode_body(TopicList, (await server.answer(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).body).topic_list == []


@served
async def test_a_registration_is_answered_with_the_order_of_topics(server: NameServer) -> None:
    assert (await server.register()).body == b""
    await put(server, "ORDER_TOPIC_CONFIG", "T", "broker-a:4")
    assert (await server.register()).body == b'{"table":{"T":"broker-a:4"}}'


@served
async def test_what_a_broker_may_not_register_is_named(server: NameServer) -> None:
    server.processors = NameServer(server.root, NamesrvConfig(routes=RouteTableLimits(topics_max=1))).processors
    answer = await server.register()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "broker-a has 2 new topics: at most 1 are kept"
    answer = await server.register(brokerId="x")
    assert answer.remark is not None
    assert "RegisterBrokerRequestHeader.brokerId is no number: 'x'" in answer.remark
    answer = await server.answer(Code.REGISTER_BROKER, {**MASTER, "haServerAddr": "h:2"}, b"[")
    assert answer.remark is not None
    assert "RegisterBrokerBody" in answer.remark


@served
async def test_an_unregistered_broker_is_gone_and_says_so_as_often_as_it_likes(server: NameServer) -> None:
    await server.register()
    for _ in range(2):
        answer = await server.answer(Code.UNREGISTER_BROKER, MASTER)
        assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, None)
    assert (await server.answer(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})).code == ResponseCode.TOPIC_NOT_EXIST


@served
async def test_a_late_unregister_over_an_older_connection_is_answered_and_changes_nothing(server: NameServer) -> None:
    header = RegisterBrokerRequestHeader("broker-a", "h:1", "c", "h:2", 0)
    body = RegisterBrokerBody(topic_config_serialize_wrapper=WRAPPER).encode(compressed=False)
    await server.answer(Code.REGISTER_BROKER, encode_header(header), body, conn_id=5)
    bye = encode_header(UnRegisterBrokerRequestHeader("broker-a", "h:1", "c", 0))
    assert (await server.answer(Code.UNREGISTER_BROKER, bye, conn_id=4)).code == ResponseCode.SUCCESS
    assert (await server.answer(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})).code == ResponseCode.SUCCESS


@served
async def test_a_broker_asks_whether_it_need_register(server: NameServer) -> None:
    async def ask(body: bytes) -> tuple[str, bytes]:
        answer = await server.answer(Code.QUERY_DATA_VERSION, {**MASTER, "brokerId": "1"}, body)
        assert answer.ext_fields is not None
        return answer.ext_fields["changed"], answer.body

    known = encode_body(WRAPPER.data_version)
    assert await ask(known) == ("true", b"")
    await server.register(brokerId="1")
    assert await ask(known) == ("false", b'{"counter":1,"timestamp":1}')
    assert await ask(b'{"counter":2,"timestamp":1}') == ("true", known)
    assert await ask(b"") == ("true", known)


# --- clients ----------------------------------------------------------------------------------------------------------


@served
async def test_a_route_is_standard_json_for_those_who_read_nothing_else(server: NameServer) -> None:
    await server.register()
    for version, fields, standard in (
        (400, {}, False),
        (401, {}, True),
        (400, {"acceptStandardJsonOnly": "true"}, True),
        (400, {"acceptStandardJsonOnly": "false"}, False),
    ):
        answer = await server.answer(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T", **fields}, version=version)
        assert (b'{"0":"h:1"}' in answer.body, b'{0:"h:1"}' in answer.body) == (standard, not standard)


@served
async def test_a_topic_without_a_route_is_named(server: NameServer) -> None:
    answer = await server.answer(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "nowhere"})
    assert (answer.code, answer.ext_fields, answer.body) == (ResponseCode.TOPIC_NOT_EXIST, None, b"")
    assert answer.remark == (
        "No topic route info in name server for the topic: nowhere\n"
        "See http://rocketmq.apache.org/docs/faq/ for further details."
    )


@served
async def test_the_order_of_a_topic_is_told_when_orderMessageEnable_is_set(server: NameServer) -> None:  # noqa: N802
    async def order() -> str | None:
        answer = await server.answer(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
        return decode_body(TopicRouteData, answer.body).order_topic_conf

    await server.register()
    await put(server, "ORDER_TOPIC_CONFIG", "T", "broker-a:4")
    assert await order() is None
    await server.answer(Code.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true\n")
    assert await order() == "broker-a:4"


# --- operators --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "fields", "body"),
    [
        (Code.GET_BROKER_CLUSTER_INFO, {}, CLUSTER_INFO),
        (Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}, b'{"topicList":["T","U"]}'),
        (Code.GET_TOPICS_BY_CLUSTER, {"cluster": "c"}, b'{"topicList":["T","U"]}'),
        (Code.GET_TOPICS_BY_CLUSTER, {"cluster": "d"}, b'{"topicList":[]}'),
        (Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, {}, b'{"brokerAddr":"h:1","topicList":["broker-a","c"]}'),
        (Code.GET_UNIT_TOPIC_LIST, {}, b'{"topicList":["T"]}'),
        (Code.GET_HAS_UNIT_SUB_TOPIC_LIST, {}, b'{"topicList":["U"]}'),
        (Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, {}, b'{"topicList":["U"]}'),
    ],
)
def test_lists(tmp_path: Path, code: Code, fields: dict[str, str], body: bytes) -> None:
    @served
    async def ask(server: NameServer) -> None:
        await server.register()
        answer = await server.answer(code, fields)
        assert (answer.code, answer.remark, answer.ext_fields) == (ResponseCode.SUCCESS, None, None)
        assert answer.body == body

    ask(tmp_path)


@served
async def test_write_permission(server: NameServer) -> None:
    await server.register()
    for code, name, count in (
        (Code.WIPE_WRITE_PERM_OF_BROKER, "wipeTopicCount", "2"),
        (Code.ADD_WRITE_PERM_OF_BROKER, "addTopicCount", "2"),
    ):
        assert (await server.answer(code, {"brokerName": "broker-a"})).ext_fields == {name: count}
        assert (await server.answer(code, {"brokerName": "nobody"})).ext_fields == {name: "0"}


@served
async def test_a_topic_is_deleted(server: NameServer) -> None:
    async def topics() -> list[str]:
        answer = await server.answer(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return decode_body(TopicList, answer.body).topic_list

    await server.register()
    await server.answer(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "T", "clusterName": "other"})
    assert await topics() == ["T", "U"]
    await server.answer(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "T", "clusterName": "c"})
    assert await topics() == ["U"]
    await server.answer(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "U", "clusterName": ""})
    assert await topics() == []


async def put(server: NameServer, namespace: str, key: str, value: str) -> RemotingCommand:
    return await server.answer(Code.PUT_KV_CONFIG, {"namespace": namespace, "key": key, "value": value})


@served
async def test_kv_config_requests(server: NameServer) -> None:
    item = {"namespace": "N", "key": "k"}
    missing = await server.answer(Code.GET_KV_CONFIG, item)
    assert (missing.code, missing.ext_fields) == (ResponseCode.QUERY_NOT_FOUND, {})
    assert missing.remark == "No config item, Namespace: N Key: k"
    no_list = await server.answer(Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"})
    assert (no_list.code, no_list.remark) == (ResponseCode.QUERY_NOT_FOUND, "No config item, Namespace: N")
    assert (await put(server, "N", "k", "v")).code == ResponseCode.SUCCESS
    assert (await server.answer(Code.GET_KV_CONFIG, item)).ext_fields == {"value": "v"}
    listed = await server.answer(Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"})
    assert decode_body(KVTable, listed.body).table == {"k": "v"}
    assert (await server.answer(Code.DELETE_KV_CONFIG, item)).code == ResponseCode.SUCCESS
    assert (await server.answer(Code.GET_KV_CONFIG, item)).code == ResponseCode.QUERY_NOT_FOUND


@served
async def test_a_kv_config_that_cannot_be_kept_is_not_answered_as_kept(server: NameServer) -> None:
    await put(server, "N", "k", "v")
    server.disk.failing_syncs = 1
    answer = await put(server, "N", "k", "w")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    answer = await put(server, "N", "long", "x" * 1000)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "at most 1000 could be read again" in answer.remark
    assert server.kv_config.get("N", "k") == "v"
    assert server.kv_config.get("N", "long") is None


@served
async def test_settings_are_shown_changed_and_kept(server: NameServer) -> None:
    async def shown() -> list[str]:
        return (await server.answer(Code.GET_NAMESRV_CONFIG)).body.decode().splitlines()

    assert "orderMessageEnable=false" in await shown()
    assert "serverWorkerThreads=8" in await shown()  # of the file, though it has no effect
    new = ["orderMessageEnable=true", "serverWorkerThreads=4", "serverSelectorThreads=2", "listenPort=19876"]
    answer = await server.answer(Code.UPDATE_NAMESRV_CONFIG, body="\n".join(new).encode())
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    assert set(new) <= set(await shown())
    kept = (server.root / server.config.config_store_path).read_text().splitlines()
    assert kept == await shown()
    assert (await server.answer(Code.UPDATE_NAMESRV_CONFIG)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        *(
            (f"{key}=/etc/passwd\n", ResponseCode.NO_PERMISSION, "Can not update config in black list.")
            for key in ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome", "tls.server.mode")
        ),
        ("listenPort=many\n", ResponseCode.SYSTEM_ERROR, "the request, line 1: listenPort=many: it is an integer"),
        ("\nlistenPrt=1\n", ResponseCode.SYSTEM_ERROR, "the request, line 2: listenPrt is unknown"),
        (
            "listenPort=\\u00zz\n",
            ResponseCode.SYSTEM_ERROR,
            "the request, line 1: Invalid \\u escape sequence: \\u00zz",
        ),
    ],
)
def test_settings_that_cannot_be_taken_change_nothing(tmp_path: Path, body: str, code: int, remark: str) -> None:
    @served
    async def ask(server: NameServer) -> None:
        before = (await server.answer(Code.GET_NAMESRV_CONFIG)).body
        answer = await server.answer(Code.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true\n" + body.encode())
        assert answer.code == code
        assert answer.remark is not None
        assert answer.remark.replace("line 2", "line 1").replace("line 3", "line 2") == remark
        assert (await server.answer(Code.GET_NAMESRV_CONFIG)).body == before
        assert not (tmp_path / server.config.config_store_path).exists()

    ask(tmp_path)


@served
async def test_settings_that_are_no_text_are_refused(server: NameServer) -> None:
    assert (await server.answer(Code.UPDATE_NAMESRV_CONFIG, body=b"\xff")).code == ResponseCode.SYSTEM_ERROR


@served
async def test_every_other_code_is_answered_that_it_is_not_supported(server: NameServer) -> None:
    for code in (Code.SEND_MESSAGE, Code.REGISTER_FILTER_SERVER, 904):
        answer = await server.answer(code)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == f" request type {int(code)} not supported"


@served
async def test_a_missing_field_is_named_whatever_the_request(server: NameServer) -> None:
    asked = 0
    for code in itertools.chain(Code):
        answer = await server.answer(code)
        if answer.code == ResponseCode.SYSTEM_ERROR:
            assert answer.remark is not None
            assert answer.remark.endswith(" is missing")
            asked += 1
        else:
            assert answer.code in {ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
    assert asked == 12


@served
async def test_a_one_way_request_is_done_and_not_answered(server: NameServer) -> None:
    body = RegisterBrokerBody(topic_config_serialize_wrapper=WRAPPER).encode(compressed=False)
    fields = {**MASTER, "haServerAddr": "h:2"}
    assert await server.ask(RemotingCommand(Code.REGISTER_BROKER, fields, ONEWAY_FLAG, body=body)) is None
    assert (await server.answer(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})).code == ResponseCode.SUCCESS
