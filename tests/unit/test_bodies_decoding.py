"""Bodies that Java would take, or that nobody should: what comes of them, or what the error says."""

from __future__ import annotations

import operator

import pytest

from rmq_actors.wire.bodies import decode_body, decoding, unknown_members
from rmq_actors.wire.bodies.heartbeat import ConsumerData, ConsumeType, HeartbeatData, MessageModel
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.bodies.offsets import ConsumerOffsetSerializeWrapper, ConsumeStats, OffsetWrapper
from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.bodies.routes import BrokerData, KVTable, TopicList, TopicRouteData
from rmq_actors.wire.bodies.topic_configs import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilterType,
)
from rmq_actors.wire.remoting_command import RemotingCommandError


@pytest.mark.parametrize(
    ("members", "config"),
    [
        # What fastjson 1.2.69 made of each was printed by Java.
        ('"perm":null,"order":null,"topicFilterType":null', TopicConfig(topic_name="T")),
        ('"readQueueNums":"12"', TopicConfig(topic_name="T", read_queue_nums=12)),
        ('"perm":7.0', TopicConfig(topic_name="T", perm=7)),
        ('"perm":1e2', TopicConfig(topic_name="T", perm=100)),
        ('"perm":true', TopicConfig(topic_name="T", perm=1)),
        ('"perm":""', TopicConfig(topic_name="T")),
        ('"perm":"null"', TopicConfig(topic_name="T")),
        ('"perm":3,"perm":4', TopicConfig(topic_name="T", perm=4)),
        ('"order":1', TopicConfig(topic_name="T", order=True)),
        ('"order":"true"', TopicConfig(topic_name="T", order=True)),
        ('"order":"1"', TopicConfig(topic_name="T", order=True)),
        ('"order":""', TopicConfig(topic_name="T")),
        ('"topicFilterType":1', TopicConfig(topic_name="T", topic_filter_type=TopicFilterType.MULTI_TAG)),
        ('"topicFilterType":"NOPE"', TopicConfig(topic_name="T")),
        ('"topicName":5', TopicConfig(topic_name="5")),
        ('"topicName":true', TopicConfig(topic_name="true")),
        ('"attributes":{"+message.type":"NORMAL"}', TopicConfig(topic_name="T")),
    ],
)
def test_what_java_takes_is_taken(members: str, config: TopicConfig) -> None:
    assert decode_body(TopicConfig, f'{{"topicName":"T",{members}}}'.encode()) == config


@pytest.mark.parametrize(
    ("kind", "text", "error"),
    [
        (TopicConfig, "", "TopicConfig: the body is empty"),
        (TopicConfig, "null", "TopicConfig is null, no TopicConfig"),
        (TopicConfig, "[]", "TopicConfig is a list, no TopicConfig"),
        (TopicConfig, '"x"', "TopicConfig is 'x', no TopicConfig"),
        (TopicConfig, "{}", "TopicConfig.topicName is missing"),
        (TopicConfig, '{"topicName":null}', "TopicConfig.topicName is missing"),
        (TopicConfig, '{"topicName":"T"} x', "TopicConfig: line 1, column 19 (character 18): the text goes on"),
        (TopicConfig, '{"topicName":"T"', "TopicConfig: line 1, column 17 (character 16): neither ',' nor '}'"),
        (TopicConfig, '{"topicName":{"a":1}}', "TopicConfig.topicName is an object, no text"),
        (TopicConfig, '{"topicName":"\\ud800"}', "TopicConfig.topicName is no Unicode text"),
        (TopicConfig, '{"topicName":"T","perm":2147483648}', "TopicConfig.perm is 2147483648, not between -2147483648"),
        (TopicConfig, '{"topicName":"T","perm":7.9}', "TopicConfig.perm is 7.9, no integer"),
        (TopicConfig, '{"topicName":"T","perm":"x"}', "TopicConfig.perm is 'x', no integer"),
        (TopicConfig, '{"topicName":"T","perm":[]}', "TopicConfig.perm is a list, no integer"),
        (TopicConfig, '{"topicName":"T","order":"yes"}', "TopicConfig.order is 'yes', no truth value"),
        (TopicConfig, '{"topicName":"T","order":2}', "TopicConfig.order is 2, no truth value"),
        (TopicConfig, '{"topicName":"T","topicFilterType":9}', "TopicConfig.topicFilterType is 9, no TopicFilterType"),
        (ConsumeStats, '{"consumeTps":"NaN"}', "ConsumeStats.consumeTps is 'NaN', no number"),
        (ConsumeStats, '{"consumeTps":"1e400"}', "ConsumeStats.consumeTps is '1e400', no number"),
        (TopicList, '{"topicList":"a"}', "TopicList.topicList is 'a', no list"),
        (TopicList, '{"topicList":["a",null]}', "TopicList.topicList[1] is null, no text"),
        (KVTable, '{"table":[]}', "KVTable.table is a list, no map"),
        (KVTable, '{"table":{{"a":1}:"b"}}', "KVTable.table[1] has an object for its key"),
        (ConsumerOffsetSerializeWrapper, '{"offsetTable":{"T@G":{"x":1}}}', "offsetTable[T@G][x] is 'x', no integer"),
        (ConsumerOffsetSerializeWrapper, '{"offsetTable":{"T@G":{2147483648:1}}}', "[2147483648] is 2147483648, not"),
        (ConsumeStats, '{"offsetTable":{"T":{}}}', "ConsumeStats.offsetTable[T] has a key that is no MessageQueue"),
        (ConsumeStats, '{"offsetTable":{{"topic":"T"}:{}}}', "ConsumeStats.offsetTable[T].brokerName is missing"),
        (
            TopicRouteData,
            '{"brokerDatas":[{"brokerName":"a"},{"brokerName":"b","brokerAddrs":{0:{}}}]}',
            "TopicRouteData.brokerDatas[1].brokerAddrs[0] is an object, no text",
        ),
        (
            TopicConfig,
            '{"topicName":"T","topicFilterType":-1}',
            "TopicConfig.topicFilterType is -1, no TopicFilterType",
        ),
        (TopicRouteData, '{"later":' + "[" * 100_000, "more than 64 values inside of one another"),
        (TopicRouteData, '{"later":' + '{"":' * 50_000, "more than 64 values inside of one another"),
        (TopicList, '{"topicList":[' + "1" * 10_000 + "]}", "Exceeds the limit"),
    ],
)
def test_a_refusal_names_the_type_the_place_and_what_is_wrong(
    kind: type[RemotingSerializable], text: str, error: str
) -> None:
    with pytest.raises(RemotingCommandError) as refusal:
        decode_body(kind, text.encode())
    assert error in str(refusal.value)
    assert str(refusal.value).startswith(kind.__name__)


def test_text_that_is_no_utf_8_is_refused() -> None:
    with pytest.raises(RemotingCommandError, match="TopicList: byte 15 is no UTF-8"):
        decode_body(TopicList, b'{"topicList":["\xff"]}')


def test_a_null_in_a_map_is_passed_over() -> None:
    text = b'{"topicConfigTable":{"a":null,"b":{"topicName":"b"}},"dataVersion":null}'
    wrapper = TopicConfigSerializeWrapper(topic_config_table={"b": TopicConfig(topic_name="b")})
    assert decode_body(TopicConfigSerializeWrapper, text) == wrapper


@pytest.mark.parametrize("key", ["0", '"0"', " 0 ", '"00"'])
def test_an_integer_is_a_key_with_and_without_quotes(key: str) -> None:
    text = f'{{"brokerName":"a","brokerAddrs":{{{key}:"h:1"}}}}'
    assert decode_body(BrokerData, text.encode()) == BrokerData(broker_name="a", broker_addrs={0: "h:1"})


@pytest.mark.parametrize("name", [",1:", "{1:2}", '\\",1:2,\\"', "\\\\,1:"])
def test_what_looks_like_a_key_within_text_is_text(name: str) -> None:
    """The unquoted key makes each a body that the strict reader refuses at first."""
    text = f'{{"brokerName":"{name}","brokerAddrs":{{1:"{name}"}}}}'
    plain = name.replace("\\\\", "\\").replace('\\"', '"')
    assert decode_body(BrokerData, text.encode()) == BrokerData(broker_name=plain, broker_addrs={1: plain})


def test_clients_in_c_plus_plus_write_enums_as_numbers() -> None:
    text = b'{"clientID":"c","consumerDataSet":[{"groupName":"G","consumeType":1,"messageModel":0}]}'
    (consumer,) = decode_body(HeartbeatData, text).consumer_data_set
    assert (consumer.consume_type, consumer.message_model) == (ConsumeType.CONSUME_PASSIVELY, MessageModel.BROADCASTING)


def test_objects_are_keys() -> None:
    text = b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:{"brokerOffset":9,"consumerOffset":7}}}'
    queue = MessageQueue(topic="T", broker_name="b", queue_id=1)
    wrapper = OffsetWrapper(broker_offset=9, consumer_offset=7)
    assert decode_body(ConsumeStats, text) == ConsumeStats(offset_table={queue: wrapper})


def test_what_5_x_adds_to_a_version_is_kept_and_does_not_count() -> None:
    version = decode_body(DataVersion, b'{"counter":2,"stateVersion":3,"timestamp":4}')
    assert version.state_version == 3
    assert version == DataVersion(counter=2, timestamp=4)
    assert not operator.ne(version, DataVersion(counter=2, timestamp=4))
    assert hash(version) == hash(DataVersion(counter=2, timestamp=4))
    assert version != DataVersion(counter=3, timestamp=4)
    assert version != DataVersion(counter=2, timestamp=5)
    assert repr(version.next_version(9)) == repr(DataVersion(counter=3, state_version=3, timestamp=9))


def test_unknown_members_are_named_once_with_their_place() -> None:
    topic = '{"topicName":"a","attributes":{},"topicFilterType":"LATER"}'
    text = f'{{"dataVersion":{{"later":1}},"topicConfigTable":{{"a":{topic},"b":{topic}}},"mappingDataVersion":null}}'
    assert unknown_members(TopicConfigSerializeWrapper, text.encode()) == (
        "dataVersion.later",
        "topicConfigTable.*.attributes",
        "topicConfigTable.*.topicFilterType=LATER",
        "mappingDataVersion",
    )
    text = '{"clientID":"c","consumerDataSet":[{"groupName":"G","consumeType":"CONSUME_POP"}]}'
    assert unknown_members(HeartbeatData, text.encode()) == ("consumerDataSet[].consumeType=CONSUME_POP",)
    assert decode_body(HeartbeatData, text.encode()).consumer_data_set == [ConsumerData(group_name="G")]


def test_names_of_unknown_members_are_limited() -> None:
    text = "{" + ",".join(f'"{index}{"x" * 1000}":1' for index in range(1000)) + "}"
    names = unknown_members(TopicList, text.encode())
    assert len(names) == decoding.UNKNOWN_MEMBERS_MAX
    assert all(len(name) <= 300 for name in names)


def test_a_body_is_limited_in_bytes_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "FRAME_MAX_LENGTH_BYTES", 40)
    assert decode_body(TopicList, b'{"topicList":["a","b"]}'.ljust(40)).topic_list == ["a", "b"]
    for read in (decode_body, unknown_members):
        with pytest.raises(RemotingCommandError, match="TopicList: 41 bytes of JSON, at most 40 are read"):
            read(TopicList, b'{"topicList":["a","b"]}'.ljust(41))
    monkeypatch.setattr(decoding, "VALUES_MAX", 2)
    assert decode_body(TopicList, b'{"topicList":["a","b","c"]}').topic_list == ["a", "b", "c"]
    for text in (b'{"topicList":["a","b","c","d"]}', b'{"a":{"b":{"c":{}}}}'):
        with pytest.raises(RemotingCommandError, match=r"TopicList: about 3 values, at most 2 are read of JSON$"):
            decode_body(TopicList, text)


def test_json_that_is_not_strict_is_limited_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "ODD_VALUES_MAX", 1)
    assert decode_body(BrokerData, b'{"brokerName":"a","brokerAddrs":{0:"a",1:"b",-2:"c"}}').broker_addrs[-2] == "c"
    assert decode_body(TopicList, b'{"topicList":[1,2]}').topic_list == ["1", "2"]
    with pytest.raises(
        RemotingCommandError, match=r"about 2 values, at most 1 are read of JSON that is not strict \(E"
    ):
        decode_body(TopicList, b'{"topicList":[1,2,3]}')
