"""BrokerOuterAPI: the requests are those that RocketMQ 4.9.7 was seen to make, and each answer means what it says."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from rmq_actors.broker import broker_outer_api
from rmq_actors.broker.broker_outer_api import (
    BrokerIdentity,
    BrokerOuterAPI,
    MQBrokerError,
    TopicTableTooLong,
    register_broker_body,
    register_broker_request,
)
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.register_broker import RegisterBrokerBody
from rmq_actors.wire.bodies.routes import KVTable
from rmq_actors.wire.bodies.topic_configs import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rmq_actors.wire.remoting_command import RemotingCommand, RemotingCommandError, decode_command
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.worlds.golden_capture import GOLDEN

SLAVE = BrokerIdentity("DefaultCluster", "broker-a", 1, "127.0.0.1:11911", "127.0.0.1:11912")
VERSION = DataVersion(counter=3, timestamp=1_700_000_000_000)


def golden(name: str) -> RemotingCommand:
    return decode_command((GOLDEN / "remoting" / "frames" / name).read_bytes()[4:])


@attrs.define
class Client:
    """Answers each request with the same command, and keeps the request."""

    answer: RemotingCommand
    asked: list[tuple[str, RemotingCommand, int]] = attrs.field(factory=list)

    async def invoke(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        self.asked.append((address, command, timeout_ms))
        return self.answer


def api(answer: RemotingCommand) -> tuple[BrokerOuterAPI, Client]:
    client: Any = Client(answer)
    return BrokerOuterAPI(SLAVE, client), client


def test_a_registration_is_rocketmqs_byte_for_byte() -> None:
    seen = golden("103_req.bin")
    wrapper = RegisterBrokerBody.decode(seen.body, compressed=False).topic_config_serialize_wrapper
    body = register_broker_body(wrapper, compressed=False)
    request = register_broker_request(SLAVE, body, compressed=False)
    assert body == seen.body
    assert (request.code, request.ext_fields, request.version) == (seen.code, seen.ext_fields, seen.version)


@pytest.mark.trio
async def test_the_end_of_a_registration_is_rocketmqs() -> None:
    seen = golden("104_req.bin")
    outer, client = api(golden("104_resp_0.bin"))
    await outer.unregister_broker("ns:9876")
    ((address, request, timeout_ms),) = client.asked
    assert (request.code, request.ext_fields, request.body) == (seen.code, seen.ext_fields, seen.body)
    assert (address, timeout_ms) == ("ns:9876", 3000)


@pytest.mark.trio
async def test_the_answer_to_a_slave() -> None:
    outer, _ = api(golden("103_resp_0.bin"))
    result = await outer.register_broker("ns:9876", b"", 6000, compressed=False)
    assert (result.master_addr, result.ha_server_addr) == ("127.0.0.1:10911", "127.0.0.1:10912")
    assert result.order_topics is None


@pytest.mark.trio
async def test_ordered_topics_come_as_the_body() -> None:
    outer, _ = api(RemotingCommand(0, body=encode_body(KVTable(table={"T": "broker-a:4"}))))
    result = await outer.register_broker("ns:9876", b"", 6000, compressed=False)
    assert result.order_topics == {"T": "broker-a:4"}
    assert result.master_addr is None


@pytest.mark.trio
async def test_a_refusal_is_an_error_with_its_code() -> None:
    outer, _ = api(RemotingCommand(ResponseCode.SYSTEM_BUSY, remark="later"))
    with pytest.raises(MQBrokerError, match="ns:9876: request 103 is answered 2: later") as raised:
        await outer.register_broker("ns:9876", b"", 6000, compressed=False)
    assert raised.value.code == ResponseCode.SYSTEM_BUSY


@pytest.mark.trio
@pytest.mark.parametrize("body", [b"{", b'{"table":3}', b"\xff"])
async def test_an_answer_without_sense_is_the_name_servers_mistake(body: bytes) -> None:
    outer, _ = api(RemotingCommand(0, body=body))
    with pytest.raises(RemotingCommandError, match="KVTable"):
        await outer.register_broker("ns:9876", b"", 6000, compressed=False)


@pytest.mark.trio
@pytest.mark.parametrize(
    ("changed", "body", "needed"),
    [
        ("true", VERSION, True),
        ("false", VERSION, False),
        ("true", None, True),
        ("false", None, False),
        ("false", DataVersion(counter=3, timestamp=1), True),
    ],
)
async def test_whether_it_has_to_register(changed: str, body: DataVersion | None, needed: bool) -> None:
    outer, client = api(RemotingCommand(0, {"changed": changed}, body=b"" if body is None else encode_body(body)))
    assert await outer.need_register("ns:9876", VERSION, 6000) is needed
    ((_, request, _),) = client.asked
    assert request.code == RequestCode.QUERY_DATA_VERSION
    assert request.body == b'{"counter":3,"timestamp":1700000000000}'
    assert request.ext_fields == {
        "brokerName": "broker-a",
        "brokerAddr": "127.0.0.1:11911",
        "clusterName": "DefaultCluster",
        "brokerId": "1",
    }


def test_a_table_that_no_request_can_carry_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_outer_api, "FRAME_MAX_LENGTH_BYTES", 64 * 1024 + 1000)
    table = {f"T{number}": TopicConfig(topic_name=f"T{number}") for number in range(10)}
    wrapper = TopicConfigSerializeWrapper(data_version=VERSION, topic_config_table=table)
    with pytest.raises(TopicTableTooLong, match=r"10 topics are \d+ bytes, a request takes 1000; compressedRegister"):
        register_broker_body(wrapper, compressed=False)
    assert len(register_broker_body(wrapper, compressed=True)) < 1000
