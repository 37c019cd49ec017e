"""What a real RocketMQ 4.9.7 broker with access control lets this project's client do: only what is signed."""

from __future__ import annotations

import pytest

from rmq_actors.remoting.acl import AclClientRpcHook
from rmq_actors.wire.acl_signature import SessionCredentials
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.interop.conftest import MakeTracer
from tests.interop.remoting_calls import Asking, open_client, send_header
from tests.interop.servers import Servers
from tests.worlds.java_broker import JavaBroker

pytestmark = [pytest.mark.interop, pytest.mark.trio, pytest.mark.timeout(600)]

PLAIN_ACL = """
accounts:
- accessKey: interopUser
  secretKey: "öffne dich, 1"
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - TopicOpen=PUB|SUB
"""
USER = SessionCredentials("interopUser", "öffne dich, 1")


@pytest.fixture(scope="module")
def broker(module_servers: Servers) -> JavaBroker:
    broker = module_servers.java_broker("guarded", aclEnable="true")
    (broker.directory / "conf").mkdir()
    (broker.directory / "conf" / "plain_acl.yml").write_text(PLAIN_ACL)
    broker.start()
    return broker


async def test_what_is_signed_and_allowed_is_done(broker: JavaBroker, make_tracer: MakeTracer) -> None:
    async with open_client(make_tracer("client"), hooks=[AclClientRpcHook(USER)]) as client:
        asking = Asking(client, broker.address)
        assert (await asking.send("TopicOpen", bytes(range(256)), KEYS="schlüssel")).queue_offset == 0
        assert (await asking.pull("TopicOpen", 0)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("credentials", "topic", "reason"),
    [
        (None, "TopicOpen", "No accessKey is configured"),
        (SessionCredentials("interopUser", "another secret"), "TopicOpen", "Check signature failed"),
        (SessionCredentials("stranger", "öffne dich, 1"), "TopicOpen", "No acl config for stranger"),
        (USER, "TopicClosed", "No default permission for topic:TopicClosed"),
    ],
    ids=["unsigned", "wrongly signed", "unknown", "not allowed"],
)
async def test_what_is_not_is_refused(
    broker: JavaBroker, make_tracer: MakeTracer, credentials: SessionCredentials | None, topic: str, reason: str
) -> None:
    hooks = [] if credentials is None else [AclClientRpcHook(credentials)]
    async with open_client(make_tracer("client"), hooks=hooks) as client:
        asking = Asking(client, broker.address)
        response: RemotingCommand = await asking.ask(RequestCode.SEND_MESSAGE_V2, send_header(topic, 0, ""), b"body")
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert response.remark is not None
        assert response.remark.startswith("org.apache.rocketmq.acl.common.AclException")
        assert reason in response.remark
