"""The JSON that is written: fastjson's, to the last character. What is expected was printed by Java."""

from __future__ import annotations

import pytest

from rmq_actors.wire.bodies import encode_body
from rmq_actors.wire.bodies.clients import GroupList
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.bodies.offsets import ConsumeStats, GetConsumerStatusBody
from rmq_actors.wire.bodies.routes import BrokerData, ClusterInfo, KVTable, QueueData, TopicRouteData
from rmq_actors.wire.bodies.topic_configs import TopicConfig

ROUTE = TopicRouteData(
    broker_datas=[
        BrokerData(
            broker_name="b\xe9",
            broker_addrs={number: f"x/\xe9{number}" for number in (0, -1, 33, 1, 4294967296, 2, 1000, 10)},
        )
    ],
    filter_server_table={"z/1": ["q"], "a": []},
    queue_datas=[QueueData(broker_name="b", perm=6, read_queue_nums=4, write_queue_nums=4)],
)


def test_integer_keys_stand_without_quotes_in_the_order_of_the_map() -> None:
    assert encode_body(ROUTE).decode() == (
        '{"brokerDatas":[{"brokerAddrs":{0:"x/\xe90",-1:"x/\xe9-1",33:"x/\xe933",1:"x/\xe91",4294967296:"x/\xe94294967296",'
        '2:"x/\xe92",1000:"x/\xe91000",10:"x/\xe910"},"brokerName":"b\xe9"}],"filterServerTable":{"z/1":["q"],"a":[]},'
        '"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )


def test_standard_json_is_sorted_quoted_and_ascii() -> None:
    assert encode_body(ROUTE, standard_json=True).decode() == (
        r'{"brokerDatas":[{"brokerAddrs":{"-1":"x\/\u00E9-1","0":"x\/\u00E90","1":"x\/\u00E91","2":"x\/\u00E92",'
        r'"10":"x\/\u00E910","33":"x\/\u00E933","1000":"x\/\u00E91000","4294967296":"x\/\u00E94294967296"},'
        r'"brokerName":"b\u00E9"}],"filterServerTable":{"a":[],"z\/1":["q"]},'
        r'"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )


def test_standard_json_orders_text_as_java_does() -> None:
    """By UTF-16 units: a character beyond 16 bits comes before U+FFFF."""
    table = KVTable(table={"\uffff": "1", "\U0001f600": "2", "a": "3"})
    assert encode_body(table, standard_json=True) == rb'{"table":{"a":"3","\uD83D\uDE00":"2","\uFFFF":"1"}}'


def test_control_characters_are_escaped_in_capitals() -> None:
    low = "".join(map(chr, range(0x20)))
    expected = (
        r"\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000B\f\r\u000E\u000F\u0010\u0011\u0012\u0013\u0014"
        r"\u0015\u0016\u0017\u0018\u0019\u001A\u001B\u001C\u001D\u001E\u001F"
    )
    for standard_json in (False, True):
        assert encode_body(GroupList(group_list=[low]), standard_json=standard_json).decode() == (
            f'{{"groupList":["{expected}"]}}'
        )


@pytest.mark.parametrize(
    ("text", "plain", "standard"),
    [
        ("~\x7f\x80\x9f\xa0", r"~\u007F\u0080\u009F" + "\xa0", r"~\u007F\u0080\u009F\u00A0"),
        ("\x7f", r"\u007F", r"\u007F"),
        ("\u2027\u2028\u2029\u202a", "\u2027" + r"\u2028\u2029" + "\u202a", r"\u2027\u2028\u2029\u202A"),
        ("\ufeff\U0001f600", "\ufeff\U0001f600", r"\uFEFF\uD83D\uDE00"),
        ('"/\\', r"\"/\\", r"\"\/\\"),
        ("\\u001f", r"\\u001f", r"\\u001f"),
        ("\\\x1f", r"\\\u001F", r"\\\u001F"),
    ],
)
def test_what_fastjson_escapes_is_escaped(text: str, plain: str, standard: str) -> None:
    for body, form in (
        (GroupList(group_list=[text]), '{{"groupList":["{}"]}}'),
        (KVTable(table={text: ""}), '{{"table":{{"{}":""}}}}'),
    ):
        assert encode_body(body).decode() == form.format(plain)
        assert encode_body(body, standard_json=True).decode() == form.format(standard)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"), (-0.0, "-0.0"), (0.5, "0.5"), (100.0, "100.0"), (9999999.0, "9999999.0"), (1e7, "1.0E7"),
        (1.5e7, "1.5E7"), (123456789.125, "1.23456789125E8"), (1e-3, "0.001"), (1e-4, "1.0E-4"), (0.00123, "0.00123"),
        (1 / 3, "0.3333333333333333"), (1e22, "1.0E22"), (8.41e21, "8.41E21"), (2e23, "2.0E23"), (-5e-5, "-5.0E-5"),
        (1.7976931348623157e308, "1.7976931348623157E308"), (float("nan"), "null"), (float("inf"), "null"),
    ],
)  # fmt: skip
def test_a_double_is_written_as_java_does(number: float, text: str) -> None:
    assert encode_body(ConsumeStats(consume_tps=number)).decode() == f'{{"consumeTps":{text},"offsetTable":{{}}}}'


def test_objects_are_keys_but_not_in_standard_json() -> None:
    body = GetConsumerStatusBody(message_queue_table={MessageQueue(topic="T/\xe9", broker_name="b", queue_id=1): 5})
    assert encode_body(body).decode() == (
        '{"consumerTable":{},"messageQueueTable":{{"brokerName":"b","queueId":1,"topic":"T/\xe9"}:5}}'
    )
    with pytest.raises(ValueError, match=r"standard JSON has no objects as keys: MessageQueue\("):
        encode_body(body, standard_json=True)


def test_null_members_are_left_out_and_null_items_are_not() -> None:
    assert encode_body(TopicRouteData()) == b'{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}'
    assert encode_body({"a": None, "b": [None, "c"]}) == b'{"b":[null,"c"]}'
    assert encode_body({"a": None}) == b"{}"


def test_a_map_of_one_plain_type_or_of_many_is_written_the_same() -> None:
    """Those of one type are written in one call."""
    one, other = TopicConfig(topic_name="a"), QueueData(broker_name="b")
    alone = [encode_body({"x": one})[1:-1], encode_body({"y": other})[1:-1]]
    assert encode_body({"x": one, "y": other, "z": 0.5}) == b"{" + b",".join(alone) + b',"z":0.5}'


def test_numbers_that_javascript_cannot_hold_are_text_in_standard_json() -> None:
    table = {"a": 2**53 - 1, "b": 2**53, "c": -(2**53), "d": 7}
    assert encode_body(table, standard_json=True) == (
        b'{"a":9007199254740991,"b":"9007199254740992","c":"-9007199254740992","d":7}'
    )
    assert encode_body(table) == b'{"a":9007199254740991,"b":9007199254740992,"c":-9007199254740992,"d":7}'


@pytest.mark.parametrize(
    "body",
    [
        GroupList(group_list=["\ud800"]),
        KVTable(table={"\udc00": ""}),
        ClusterInfo(cluster_addr_table={"c": ["\ud83d"]}),
    ],
)
@pytest.mark.parametrize("standard_json", [False, True])
def test_half_a_surrogate_pair_cannot_be_written(body: GroupList, standard_json: bool) -> None:
    with pytest.raises(ValueError, match="surrogates not allowed"):
        encode_body(body, standard_json=standard_json)


def test_what_is_no_part_of_a_body_is_refused() -> None:
    with pytest.raises(TypeError, match="a body holds no bytes"):
        encode_body({"a": [b"x"]})
