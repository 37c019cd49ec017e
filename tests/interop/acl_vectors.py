"""What the real access control says to many requests: the test data below `tests/golden/acl`, and how it is made.

    python -m tests.interop.acl_vectors

asks the classes of rocketmq-acl (AclClientRPCHook, PlainAccessValidator, RemoteAddressStrategyFactory) in a Java
process, and writes `vectors.json`. The requests are fixed.
"""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

from rmq_actors.wire.request_code import RequestCode
from tests.interop.java_gateway import JavaGateway, open_java_gateway
from tests.worlds.java_process import JavaRuntime
from tests.worlds.java_tools import java_command, rocketmq_classpath

DIRECTORY = Path(__file__).parents[1] / "golden" / "acl"
VECTORS = DIRECTORY / "vectors.json"
PLAIN_ACL = DIRECTORY / "plain_acl.yml"

#: The accounts of `plain_acl.yml`, and one that it does not have.
SECRET_KEYS = {
    "RocketMQ": "12345678",
    "rocketmq2": "abcdefgh",
    "openTopics": "öffne dich",
    "narrowAdmin": "7777777x",
    "onlyTraces": "only-traces",
    "anywhere": "from-anywhere",
    "stranger": "stranger-danger",
}

_FIELDS: tuple[dict[str, str], ...] = (
    {},
    {"topic": "topicA"},
    {"b": "topicB", "a": "PID", "i": "\u0001\u0002", "e": "-1"},
    {"Z": "1", "a": "2", "_": "3", "A": "4", "aa": "5", "AccessKey": "overwritten", "Signature": "overwritten"},
    {"ü": "umlaut", "z": "latin", "\ue000": "private", "\U0001f680": "rocket", "\uffef": "wide"},
    {"empty": "", "key": "\U0001f680 ü"},
    {"_UNIQUE_KEY_QUERY": "true", "topic": "topicC"},
)
_BODIES = (b"", b"body", bytes(range(256)))
_TOKENS = (None, "", "token-1")

_STRATEGIES = (
    *("*", "*.*.*.*", "*:*:*:*:*:*:*:*", "", " "),
    *("127.0.0.1", "192.168.0.*", "192.168.*.*", "192.*.*.*", "10.0.0.1-100", "10.0.1-20.*", "10.1-9.*.*"),
    *("10.0.0.1,10.0.0.2", "10.0.0.{1,2,30}", "10.0.0.{1}", "1050::5:600:300c:1,1050::5:600:300c:2"),
    *("::1", "1050:0000:0000:0000:0005:0600:300c:326b", "1050::5:600:300c:*", "1050::5:600:300c:1-200"),
    *("1050::5:600:300c:1-20:*", "2001:db8:1:2:*", "FE80::A-F", "1050::5:600:300c:{1,2,a}"),
    *("256.0.0.1", "10.0.0", "10.0.0.0.1", "10.0.0.2-1", "10.0.0.-1-200", "10.0.0.0-256", "10.0.0.{1,2", "a.b.c.d"),
    *("10.0.0.{1,300}", "::1ggg", "10.0.0.x-y", "localhost", "1050::5:*:1", "1050::1-2:300c:5"),
)
_HOSTS = (
    *("127.0.0.1", "127.0.0.10", "192.168.0.0", "192.168.0.255", "192.168.1.7", "192.1.1.1", "19.2.168.0"),
    *(
        "10.0.0.0",
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.30",
        "10.0.0.100",
        "10.0.0.101",
        "10.0.20.5",
        "10.0.21.5",
        "10.00.0.1",
    ),
    *(
        "10.9.0.1",
        "10.10.0.1",
        "1.0.0.1",
        "::1",
        "0:0:0:0:0:0:0:1",
        "::2",
        "1050::5:600:300c:326b",
        "1050::5:600:300c:1",
    ),
    *("1050:0:0:0:5:600:300c:2", "1050::5:600:300c:a", "1050::5:600:300c:200", "1050::5:600:300c:201"),
    *(
        "1050::5:600:300c:1:ffff",
        "1050::5:600:300c:21:0",
        "2001:db8:1:2:3:4:5:6",
        "2001:db8:1:3::1",
        "fe80::c",
        "fe80::10",
    ),
)

_ADDRESSES = ("10.10.103.9", "10.10.104.9", "192.168.0.7", "192.168.0.8", "192.168.1.9", "2001:db8:0:0:0:7:ff:1")
_TOPICS = ("topicA", "topicB", "topicC", "topicD", "topicE", "topicZ", "%RETRY%groupB", "RMQ_SYS_TRACE_TOPIC")
_GROUPS = ("groupA", "groupB", "groupC", "groupD", "groupZ")
_ADMIN = (17, 25, 215, 200, 207)
_UNCHECKED = (14, 26, 33, 37, 41, 105)
#: Where this broker is stricter than RocketMQ 4.9, as 5.3 is.
STRICTER = (50, 51, 52, 53, 320, 324, 325)


def _heartbeat(*consumers: tuple[str, tuple[str, ...]]) -> bytes:
    return json.dumps(
        {
            "clientID": "10.10.10.10@1",
            "consumerDataSet": [
                {
                    "groupName": group,
                    "subscriptionDataSet": [{"subString": "*", "topic": topic, "tagsSet": []} for topic in topics],
                }
                for group, topics in consumers
            ],
            "producerDataSet": [{"groupName": "PID"}],
        }
    ).encode()


def requests() -> Iterator[dict[str, Any]]:
    """Requests as code, ext_fields and body; who makes them is not in them."""
    for topic in _TOPICS:
        yield {"code": 10, "ext_fields": {"topic": topic, "producerGroup": "PID"}}
        for code in (310, 320, 325):
            yield {"code": code, "ext_fields": {"b": topic, "a": "PID"}}
        yield {"code": 324, "ext_fields": {"topic": topic}}
        yield {"code": 12, "ext_fields": {"topic": topic, "key": "k"}}
    for topic, group in itertools.product(_TOPICS[:6], _GROUPS):
        yield {"code": 11, "ext_fields": {"topic": topic, "consumerGroup": group}}
    for group in _GROUPS:
        fields = {"consumerGroup": group, "topic": "topicB", "queueId": "0", "commitOffset": "1", "clientID": "c"}
        for code in (15, 35, 38):
            yield {"code": code, "ext_fields": fields}
        yield {"code": 36, "ext_fields": {"group": group, "offset": "0", "delayLevel": "0"}}
        yield {"code": 34, "ext_fields": {}, "body": _heartbeat((group, ("topicB", "topicC")))}
    yield {"code": 34, "ext_fields": {}, "body": _heartbeat()}
    yield {"code": 34, "ext_fields": {}, "body": _heartbeat(("groupB", ("topicB",)), ("groupC", ("topicZ",)))}
    yield {"code": 35, "ext_fields": {"clientID": "c", "producerGroup": "PID"}}
    for code in (*_ADMIN, *_UNCHECKED, *STRICTER[:4]):
        yield {"code": code, "ext_fields": {"topic": "topicA", "groupName": "groupA", "consumerGroup": "groupA"}}
    yield {"code": 310, "ext_fields": {"a": "PID"}}
    yield {"code": 12, "ext_fields": {"topic": "topicB", "key": "k", "_UNIQUE_KEY_QUERY": "true"}}


def ask_signatures(java: JavaGateway) -> list[dict[str, Any]]:
    acl = java.jvm.org.apache.rocketmq.acl.common
    answers = []
    for fields, body, token in itertools.product(_FIELDS, _BODIES, _TOKENS):
        command = _command(java, 310, fields, body)
        acl.AclClientRPCHook(acl.SessionCredentials("RocketMQ", "12345678 ü", token)).doBeforeRequest("", command)
        answers.append(
            {
                "security_token": token,
                "ext_fields": fields,
                "body": base64.b64encode(body).decode(),
                "signature": str(command.getExtFields().get("Signature")),
            }
        )
    return answers


def ask_strategies(java: JavaGateway) -> list[dict[str, Any]]:
    plain = java.jvm.org.apache.rocketmq.acl.plain
    factory = plain.RemoteAddressStrategyFactory()
    answers: list[dict[str, Any]] = []
    for text in _STRATEGIES:
        try:
            strategy = factory.getRemoteAddressStrategy(text)
        except Py4JJavaError as error:
            answers.append({"text": text, "error": str(error.java_exception.getClass().getSimpleName())})
            continue
        matched = []
        for host in _HOSTS:
            resource = plain.PlainAccessResource()
            resource.setWhiteRemoteAddress(host)
            if strategy.match(resource):
                matched.append(host)
        answers.append({"text": text, "matched": matched})
    return answers


def ask_verdicts(java: JavaGateway, home: Path) -> list[dict[str, Any]]:
    """Every request of every account from one foreign address, signed; and a few from other addresses, or unsigned."""
    (home / "conf").mkdir(exist_ok=True)
    shutil.copy(PLAIN_ACL, home / "conf")
    system = java.jvm.java.lang.System
    before = system.setProperty("rocketmq.home.dir", str(home))
    try:
        validator = java.jvm.org.apache.rocketmq.acl.plain.PlainAccessValidator()
    finally:
        system.setProperty("rocketmq.home.dir", before)
    answers = [
        _ask(java, validator, "172.16.0.1", request, access_key)
        for request, access_key in itertools.product(requests(), SECRET_KEYS)
    ]
    pull = {"code": RequestCode.PULL_MESSAGE, "ext_fields": {"topic": "topicA", "consumerGroup": "groupA"}}
    create = {"code": RequestCode.UPDATE_AND_CREATE_TOPIC, "ext_fields": {"topic": "topicA"}}
    anybody: tuple[str | None, ...] = (*SECRET_KEYS, None)
    answers += [
        _ask(java, validator, address, request, access_key, signed=signed)
        for address, request, signed, access_key in itertools.product(
            _ADDRESSES, (pull, create), (True, False), anybody
        )
    ]
    return answers


def _ask(
    java: JavaGateway,
    validator: Any,
    host: str,
    request: dict[str, Any],
    access_key: str | None,
    *,
    signed: bool = True,
) -> dict[str, Any]:
    body = request.get("body", b"")
    command = _command(java, request["code"], request["ext_fields"], body)
    acl = java.jvm.org.apache.rocketmq.acl.common
    if access_key is not None:
        secret_key = SECRET_KEYS[access_key] if signed else "not the secret"
        acl.AclClientRPCHook(acl.SessionCredentials(access_key, secret_key)).doBeforeRequest("", command)
    address = f"{host}:45678"
    try:
        validator.validate(validator.parse(command, address))
    except Py4JJavaError as error:
        verdict = str(error.java_exception.getMessage())
    else:
        verdict = ""
    fields = {str(name): str(value) for name, value in (command.getExtFields() or {}).items()}
    return {
        "address": address,
        "code": int(request["code"]),
        "ext_fields": fields,
        "body": base64.b64encode(body).decode(),
        "verdict": verdict,
    }


def _command(java: JavaGateway, code: int, fields: dict[str, str], body: bytes) -> Any:
    command = java.jvm.org.apache.rocketmq.remoting.protocol.RemotingCommand.createRequestCommand(int(code), None)
    command.setVersion(407)
    for name, value in fields.items():
        command.addExtField(name, value)
    if body:
        command.setBody(bytearray(body))
    return command


def ask(java: JavaGateway, home: Path) -> dict[str, Any]:
    """All that `vectors.json` holds."""
    return {
        "signatures": ask_signatures(java),
        "strategies": ask_strategies(java),
        "verdicts": ask_verdicts(java, home),
    }


def as_text(answers: dict[str, Any]) -> str:
    """One line for each answer."""
    lines = ",\n".join(
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(one, sort_keys=True) for one in many) + "\n]"
        for name, many in answers.items()
    )
    return f"{{\n{lines}\n}}\n"


if __name__ == "__main__":
    runtime = JavaRuntime(java_command(), rocketmq_classpath())
    with tempfile.TemporaryDirectory() as made, open_java_gateway(Path(made), runtime) as gateway:
        VECTORS.write_text(as_text(ask(gateway, Path(made))))
