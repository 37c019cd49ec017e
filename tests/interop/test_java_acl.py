"""Access control beside the real one: the test data are what it says, and its clients' signatures are ours."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_actors.actors.system import open_actor_system
from rmq_actors.real_io.entropy import SystemEntropy
from rmq_actors.remoting.acl import AclClientRpcHook, AclServerRpcHook
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingClientConfig
from rmq_actors.remoting.hooks import RpcRefused
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.wire.acl_signature import SIGNATURE, SessionCredentials, sign_command
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.interop.acl_vectors import PLAIN_ACL, VECTORS, as_text, ask
from tests.interop.conftest import MakeJavaBroker
from tests.interop.java_gateway import JavaGateway
from tests.interop.remoting_calls import TIMEOUT_MS
from tests.worlds.acl_test_data import rules
from tests.worlds.recording import new_tracer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

# py4j cannot carry surrogates that stand alone.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def test_the_test_data_are_what_java_says(java_gateway: JavaGateway, tmp_path: Path) -> None:
    assert as_text(ask(java_gateway, tmp_path)) == VECTORS.read_text()


def test_a_java_broker_takes_our_signatures_and_refuses_as_this_one_does(make_java_broker: MakeJavaBroker) -> None:
    broker = make_java_broker("guarded", aclEnable="true")
    (broker.directory / "conf").mkdir(parents=True, exist_ok=True)
    shutil.copy(PLAIN_ACL, broker.directory / "conf")
    broker.start()
    fields = {
        "topic": "TopicTest",
        "defaultTopic": "TBW102",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    create = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    send = RemotingCommand(RequestCode.SEND_MESSAGE_V2, {"b": "topicA", "a": "PID"})

    async def answers(credentials: SessionCredentials | None, command: RemotingCommand) -> RemotingCommand:
        hooks = [] if credentials is None else [AclClientRpcHook(credentials)]
        tracer = new_tracer()
        async with open_actor_system("client", tracer, entropy=SystemEntropy()) as system:
            client = RemotingClient(RemotingClientConfig(), SystemEntropy(), tracer, ProcessorTable(tracer), hooks)
            await system.start(client)
            return await client.invoke(broker.address, copy.deepcopy(command), TIMEOUT_MS)

    assert trio.run(answers, SessionCredentials("rocketmq2", "abcdefgh"), create).code == ResponseCode.SUCCESS
    for credentials, command in (
        (None, create),
        (SessionCredentials("RocketMQ", "12345678"), create),
        (SessionCredentials("rocketmq2", "wrong-secret"), create),
        (SessionCredentials("stranger", "wrong-secret"), create),
        (SessionCredentials("RocketMQ", "12345678"), send),
    ):
        theirs = trio.run(answers, credentials, command)
        ours = copy.deepcopy(command)
        if credentials is not None:
            sign_command(ours, credentials)
        with pytest.raises(RpcRefused) as refused:
            AclServerRpcHook(rules, new_tracer()).before_request("127.0.0.1:1", ours)
        assert refused.value.code == theirs.code
        # After a comma there is a line of its own source.
        assert theirs.remark is not None
        assert theirs.remark.startswith(f"{refused.value.remark}, org.apache.rocketmq.acl.plain.PlainPermissionManager")


@settings(max_examples=200)
@given(
    fields=st.dictionaries(TEXTS, TEXTS, max_size=8),
    body=st.binary(max_size=64),
    secret_key=TEXTS.filter(bool),
    token=st.none() | TEXTS,
)
def test_any_request_is_signed_as_java_signs_it(
    java_gateway: JavaGateway, fields: dict[str, str], body: bytes, secret_key: str, token: str | None
) -> None:
    java = java_gateway.jvm.org.apache.rocketmq
    theirs = java.remoting.protocol.RemotingCommand.createRequestCommand(310, None)
    for name, value in fields.items():
        theirs.addExtField(name, value)
    theirs.setBody(bytearray(body))
    credentials = java.acl.common.SessionCredentials("RocketMQ", secret_key, token)
    java.acl.common.AclClientRPCHook(credentials).doBeforeRequest("", theirs)
    ours = RemotingCommand(310, dict(fields), body=body)
    sign_command(ours, SessionCredentials("RocketMQ", secret_key, token))
    assert ours.ext_fields is not None
    assert ours.ext_fields[SIGNATURE] == str(theirs.getExtFields().get(SIGNATURE))
