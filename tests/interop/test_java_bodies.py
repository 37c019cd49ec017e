"""Every body beside RocketMQ's own class of that name: Java reads what is written here, and writes the same bytes."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from rmq_actors.wire.bodies import REQUEST_BODIES, RESPONSE_BODIES, BodyForm, decode_body, encode_body
from rmq_actors.wire.bodies.offsets import QueryConsumeTimeSpanBody, ResetOffsetBodyForC
from rmq_actors.wire.bodies.register_broker import RegisterBrokerBody
from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.bodies.routes import TopicRouteData
from rmq_actors.wire.remoting_command import LanguageCode
from tests.interop.java_gateway import JavaGateway

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

#: Where RocketMQ has its classes, below org.apache.rocketmq.
PACKAGES = {
    "ConsumeStats": "common.admin",
    "DataVersion": "common",
    "DelayOffsetSerializeWrapper": "store.schedule",
    "GetConsumerListByGroupResponseBody": "common.protocol.header",
    "HeartbeatData": "common.protocol.heartbeat",
    "SubscriptionGroupConfig": "common.subscription",
    "TopicRouteData": "common.protocol.route",
    "TopicStatsTable": "common.admin",
}
BODIES = sorted(
    {
        body
        for body in (*REQUEST_BODIES.values(), *RESPONSE_BODIES.values(), ResetOffsetBodyForC)
        # What Java writes there is made up from other members as it writes.
        if not isinstance(body, BodyForm) and body is not QueryConsumeTimeSpanBody
    },
    key=lambda body: body.__name__,
)

# Java's strings are UTF-16: it has no lone surrogates to write as UTF-8.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
#: Java 17 does not always write the shortest digits; of these it does.
FLOATS = st.integers(-(10**9), 10**9).map(lambda number: number / 1000) | st.sampled_from([1e-5, 1e7, 1.5e22])
#: Members that are not what their type says: an enumeration that may grow, what 4.9 has not, a name that a blank ends.
MEMBERS: dict[str, st.SearchStrategy[object]] = {
    "language": st.none() | st.sampled_from(list(LanguageCode.__members__)),
    "state_version": st.none(),
    "topic_name": TEXT.map(lambda text: "T" + text.replace(" ", "_")),
}


def values(of: inspect.Type) -> st.SearchStrategy[object]:
    """Any value of a type. One item in a list or map: Java's sets and maps have an order of their own."""
    match of:
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType(ge=low, le=high):
            return st.integers(low, high)
        case inspect.FloatType():
            return FLOATS
        case inspect.StrType():
            return TEXT
        case inspect.EnumType(cls=cls):
            return st.sampled_from(cls)
        case inspect.UnionType(types=types):
            return st.one_of(*map(values, types))
        case inspect.NoneType():
            return st.none()
        case inspect.ListType(item_type=item):
            return st.lists(values(item), max_size=1)
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(values(key), values(value), max_size=1)
        case inspect.StructType(cls=cls, fields=fields):
            return st.builds(cls, **{field.name: MEMBERS.get(field.name, values(field.type)) for field in fields})
        case _:
            raise TypeError(f"no strategy for {of}")


def read_by_java(gateway: JavaGateway, body: RemotingSerializable) -> Any:
    """The object that Java makes of a body."""
    name = type(body).__name__
    java_class = gateway.jvm.java.lang.Class.forName(
        f"org.apache.rocketmq.{PACKAGES.get(name, 'common.protocol.body')}.{name}"
    )
    java = gateway.jvm.org.apache.rocketmq.remoting.protocol.RemotingSerializable
    return java.decode(bytearray(encode_body(body)), java_class)


def written_by_java(gateway: JavaGateway, value: Any) -> bytes:
    """What RemotingSerializable.encode does with objects of any class."""
    java = gateway.jvm.java.lang
    # Py4j takes the first method of a name, in whichever order this Java process has them, and that may be toJSONString
    # without arguments, which is not static: so it is asked for by its parameters.
    parameters = gateway.array(java.Class, java.Class.forName("java.lang.Object"), java.Boolean.TYPE)
    method = java.Class.forName("com.alibaba.fastjson.JSON").getMethod("toJSONString", parameters)
    return str(method.invoke(None, gateway.array(java.Object, value, False))).encode()


@pytest.mark.parametrize("body_type", BODIES, ids=lambda body: body.__name__)
@settings(max_examples=20)
@given(st.data())
def test_java_reads_a_body_and_writes_the_same_bytes(
    java_gateway: JavaGateway, body_type: type[RemotingSerializable], data: st.DataObject
) -> None:
    body = data.draw(values(inspect.type_info(body_type)))
    assert isinstance(body, body_type)
    encoded = encode_body(body)
    assert written_by_java(java_gateway, read_by_java(java_gateway, body)) == encoded
    assert decode_body(body_type, encoded) == body


@settings(max_examples=40)
@given(values(inspect.type_info(TopicRouteData)))
def test_java_writes_a_route_in_standard_json_as_here(java_gateway: JavaGateway, route: TopicRouteData) -> None:
    java = read_by_java(java_gateway, route)
    features = java_gateway.jvm.com.alibaba.fastjson.serializer.SerializerFeature
    names = ("BrowserCompatible", "QuoteFieldNames", "SkipTransientField", "MapSortField")
    written = java.encode(java_gateway.array(features, *(getattr(features, name) for name in names)))
    assert bytes(written) == encode_body(route, standard_json=True)
    assert decode_body(TopicRouteData, bytes(written)) == route


@settings(max_examples=40)
@given(values(inspect.type_info(RegisterBrokerBody)))
def test_a_compressed_registration_is_the_same_for_java(java_gateway: JavaGateway, body: RegisterBrokerBody) -> None:
    java = java_gateway.jvm.org.apache.rocketmq.common.protocol.body.RegisterBrokerBody
    encoded = body.encode(compressed=True)
    decoded = java.decode(bytearray(encoded), True)
    assert RegisterBrokerBody.decode(bytes(decoded.encode(True)), compressed=True) == RegisterBrokerBody.decode(
        encoded, compressed=True
    )
    assert zlib.decompress(bytes(decoded.encode(True))) == zlib.decompress(encoded)
