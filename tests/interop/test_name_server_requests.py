"""Any requests at all, sent to RocketMQ's name server and to this project's: both answer the same."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Protocol

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_actors.wire.bodies import decode_body
from rmq_actors.wire.bodies.routes import ClusterInfo
from rmq_actors.wire.request_code import RequestCode
from tests.interop.servers import Servers
from tests.interop.two_name_servers import Answers, TwoConnections, TwoNameServers, start_two
from tests.worlds.java_client import V4_9_7, JavaClient

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

#: Older brokers send the topics alone, and no filter servers: the name server looks at their version.
V3_0_10 = 34
#: From here on a route is standard JSON.
V4_9_4 = 401

CLUSTERS = {"broker-x": "cluster-1", "broker-y": "cluster-1", "broker-z": "cluster-2"}
NAMES = list(CLUSTERS)
#: With their flags: 1 unit, 2 of a unit's subscription. Java looks at those of some broker.
TOPICS = {"TopicX": 0, "TopicY": 1, "TopicZ": 2, "%RETRY%group": 3}
#: A table of topics without them is not all that the broker has.
ALWAYS = ("SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT")
ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
NAMESPACES = ["namespace", ORDER_TOPIC_CONFIG]
KEYS = ["key", "TopicX"]


class Step(Protocol):
    """Something to ask both."""

    def ask(self, asked: Asked) -> Answers | None:
        """The answers of both; None if this is not to be asked now."""


@attrs.define
class Asked:
    """Two connections, and the brokers that are registered: their names and ids by address.

    No two addresses have one name and id: what becomes of the first is where this name server differs on purpose.
    """

    connections: TwoConnections
    brokers: dict[str, tuple[str, int]] = attrs.field(factory=dict)

    def is_taken(self, address: str, name: str, broker_id: int) -> bool:
        """Whether another broker bears this name and id."""
        return any(broker == (name, broker_id) and other != address for other, broker in self.brokers.items())


@attrs.frozen
class Request:
    """One of which nothing needs to be remembered."""

    code: RequestCode
    fields: Mapping[str, object] = attrs.field(factory=dict)
    body: bytes = b""
    version: int = V4_9_7

    def ask(self, asked: Asked) -> Answers:
        return asked.connections.ask(self.code, self.fields, self.body, version=self.version)


@attrs.frozen
class Registration:
    """REGISTER_BROKER, in any form that there is."""

    name: str
    broker_id: int
    host: int
    topics: Sequence[dict[str, object]]
    data_version: dict[str, int]
    kind: Literal["plain", "compressed", "old", "without a body", "wrong crc"]
    has_crc: bool

    def ask(self, asked: Asked) -> Answers | None:
        address = address_of(self.name, self.host)
        if self.kind != "wrong crc":
            if asked.is_taken(address, self.name, self.broker_id):
                return None
            asked.brokers[address] = self.name, self.broker_id
        body = self.body()
        crc = (zlib.crc32(body) & 0x7FFFFFFF) if body and self.has_crc else 0
        fields = {
            **broker_fields(address, self.name, self.broker_id),
            "haServerAddr": address_of(self.name, self.host, 10912),
            "compressed": str(self.kind == "compressed").lower(),
            "bodyCrc32": crc ^ 1 if self.kind == "wrong crc" else crc,
        }
        version = V3_0_10 if self.kind == "old" else V4_9_7
        return asked.connections.ask(RequestCode.REGISTER_BROKER, fields, body, version=version)

    def body(self) -> bytes:
        if self.kind == "without a body":
            return b""
        if self.kind == "compressed":
            # That form has no flags: of a topic with one, the brokers would differ, and Java looks at some broker's.
            without_flags = [topic for topic in self.topics if not topic["topicSysFlag"]]
            return compressed_body(without_flags, self.data_version)
        table = {str(topic["topicName"]): topic for topic in self.topics}
        wrapper = {"dataVersion": self.data_version, "topicConfigTable": table}
        body = wrapper if self.kind == "old" else {"filterServerList": [], "topicConfigSerializeWrapper": wrapper}
        return json.dumps(body).encode()


@attrs.frozen
class Unregistration:
    """One of the brokers leaves; with none there, one that is unknown."""

    which: int

    def ask(self, asked: Asked) -> Answers:
        brokers = list(asked.brokers)
        if brokers:
            address = brokers[self.which % len(brokers)]
            fields = broker_fields(address, *asked.brokers.pop(address))
        else:
            fields = broker_fields("10.0.0.1:10911", "broker-x", 0)
        return asked.connections.ask(RequestCode.UNREGISTER_BROKER, fields)


@attrs.frozen
class DataVersionQuery:
    """Whether a broker, as it is registered, should register again."""

    name: str
    host: int
    data_version: dict[str, int]

    def ask(self, asked: Asked) -> Answers:
        address = address_of(self.name, self.host)
        fields = broker_fields(address, *asked.brokers.get(address, (self.name, 0)))
        return asked.connections.ask(RequestCode.QUERY_DATA_VERSION, fields, json.dumps(self.data_version).encode())


@attrs.frozen
class SystemTopics:
    """GET_SYSTEM_TOPIC_LIST_FROM_NS, which has the address of some broker: Java's is the first in a hash map."""

    def ask(self, asked: Asked) -> Answers:
        answers = asked.connections.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        ours, java = (json.loads(answer.body).get("brokerAddr") for answer in (answers.ours, answers.java))
        if ours is None or java is None:
            return answers
        assert ours in asked.brokers
        body = answers.ours.body.replace(ours.encode(), java.encode())
        return attrs.evolve(answers, ours=attrs.evolve(answers.ours, body=body))


def address_of(name: str, host: int, port: int = 10911) -> str:
    return f"10.{NAMES.index(name)}.0.{host}:{port}"


def broker_fields(address: str, name: str, broker_id: int) -> dict[str, object]:
    return {"brokerName": name, "brokerAddr": address, "clusterName": CLUSTERS[name], "brokerId": broker_id}


def data_version(timestamp: int, counter: int) -> dict[str, int]:
    return {"counter": counter, "timestamp": timestamp}


def topic_config(name: str, read: int, write: int, perm: int) -> dict[str, object]:
    return {
        "order": False,
        "perm": perm,
        "readQueueNums": read,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": TOPICS.get(name, 0),
        "writeQueueNums": write,
    }


def compressed_body(topics: Sequence[dict[str, object]], version: dict[str, int]) -> bytes:
    lines = [
        " ".join(str(topic[key]) for key in ("topicName", "readQueueNums", "writeQueueNums", "perm")) + " SINGLE_TAG"
        for topic in topics
    ]
    version_json = json.dumps(version).encode()
    data = len(version_json).to_bytes(4, "big") + version_json + len(lines).to_bytes(4, "big")
    for line in [*lines, "[]"]:
        data += len(line).to_bytes(4, "big") + line.encode()
    return zlib.compress(data, 9)


TOPIC_CONFIGS = st.lists(
    st.builds(
        topic_config,
        st.sampled_from(list(TOPICS)),
        st.integers(0, 16),
        st.integers(0, 16),
        st.sampled_from([0, 2, 4, 6, 7]),
    ),
    max_size=3,
    unique_by=lambda topic: str(topic["topicName"]),
).map(lambda topics: [*topics, *(topic_config(name, 1, 1, 6) for name in ALWAYS)])
DATA_VERSIONS = st.builds(data_version, st.integers(1, 2), st.integers(0, 1))


BROKER_NAMES = st.sampled_from(NAMES)
HOSTS = st.integers(1, 3)
REGISTRATIONS = st.builds(
    Registration,
    BROKER_NAMES,
    st.integers(0, 2),
    HOSTS,
    TOPIC_CONFIGS,
    DATA_VERSIONS,
    st.sampled_from(["plain", "plain", "compressed", "old", "without a body", "wrong crc"]),
    st.booleans(),
)


def requests(code: RequestCode, **fields: st.SearchStrategy[str | None]) -> st.SearchStrategy[Step]:
    """A field that is None is left out."""
    given_fields = st.fixed_dictionaries(fields).map(lambda all_: {k: v for k, v in all_.items() if v is not None})
    return st.builds(Request, st.just(code), given_fields)


IN_KV_CONFIG: dict[str, st.SearchStrategy[str | None]] = {
    "namespace": st.sampled_from(NAMESPACES),
    "key": st.sampled_from(KEYS),
}
STEPS: st.SearchStrategy[Step] = st.one_of(
    REGISTRATIONS,
    st.builds(Unregistration, st.integers(0, 8)),
    st.builds(DataVersionQuery, BROKER_NAMES, HOSTS, DATA_VERSIONS),
    requests(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName=BROKER_NAMES),
    requests(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName=BROKER_NAMES),
    requests(
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        topic=st.sampled_from(list(TOPICS)),
        clusterName=st.sampled_from(["cluster-1", "", None]),
    ),
    requests(RequestCode.PUT_KV_CONFIG, **IN_KV_CONFIG, value=st.sampled_from(["broker-x:4", 'ü"\n'])),
    requests(RequestCode.GET_KV_CONFIG, **IN_KV_CONFIG),
    requests(RequestCode.DELETE_KV_CONFIG, **IN_KV_CONFIG),
)


def views() -> Iterator[Step]:
    """Every request that shows what a name server knows."""
    for code in (
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    ):
        yield Request(code)
    yield SystemTopics()
    for topic in [*TOPICS, "unknown"]:
        for version in (V3_0_10, V4_9_4 - 1, V4_9_4, V4_9_7):
            yield Request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, version=version)
        standard = {"topic": topic, "acceptStandardJsonOnly": "true"}
        yield Request(RequestCode.GET_ROUTEINFO_BY_TOPIC, standard, version=V4_9_4 - 1)
    for cluster in ("cluster-1", "cluster-2", "unknown"):
        yield Request(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": cluster})
    for namespace in [*NAMESPACES, "unknown"]:
        yield Request(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": namespace})


def forget_all(connection: JavaClient) -> None:
    """Leave nothing of the last example, which may have failed."""
    brokers = decode_body(ClusterInfo, connection.call(RequestCode.GET_BROKER_CLUSTER_INFO, {}).body)
    for name, broker in brokers.broker_addr_table.items():
        for broker_id, address in broker.broker_addrs.items():
            connection.call(RequestCode.UNREGISTER_BROKER, broker_fields(address, name, broker_id))
    for topic in [*TOPICS, *ALWAYS]:
        connection.call(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})
    for namespace in NAMESPACES:
        for key in KEYS:
            connection.call(RequestCode.DELETE_KV_CONFIG, {"namespace": namespace, "key": key})


@pytest.fixture(scope="module")
def two(module_servers: Servers) -> TwoNameServers:
    """Ours keeps topics that a broker has no more, as RocketMQ does."""
    return start_two(module_servers, deleteTopicWithBrokerRegistration="false")


@settings(max_examples=25)
@given(st.lists(REGISTRATIONS, max_size=3), st.lists(STEPS, min_size=3, max_size=20))
def test_any_requests_are_answered_alike(
    two: TwoNameServers, registrations: list[Registration], steps: list[Step]
) -> None:
    with two.connect() as connections:
        forget_all(connections.java)
        forget_all(connections.ours)
        asked = Asked(connections)
        for step in [*registrations, *steps, *views()]:
            answers = step.ask(asked)
            if answers is not None:
                answers.check_equal()
