"""What the log's writer knows of a plain message is what a reader of the log finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.wire.dispatch_request import DispatchRequest, read_dispatch_request
from rmq_actors.wire.index_key import index_keys
from rmq_actors.wire.properties import IllegalProperty
from rmq_actors.wire.record import Message, MessageIllegal, encode_message
from rmq_actors.wire.row_of_message import row_of_message

NAMES = st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "DELAY", "WAIT", "INNER_MULTI_DISPATCH", "a"])
VALUES = st.text(max_size=8) | st.sampled_from(["", " ", "k l", " k  l ", "\u00f6 k", "3", "true"])
TRANSACTIONS = ["RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"]
TOPICS = st.sampled_from(["T", "\u00fc", "SCHEDULE_TOPIC_XXXX", *TRANSACTIONS])
HOSTS = st.sampled_from(["127.0.0.1:1", "[::1]:2"])


@given(
    topic=TOPICS,
    body=st.binary(max_size=20),
    properties=st.dictionaries(NAMES, VALUES),
    sys_flag=st.integers(0, 0x3F),
    hosts=st.tuples(HOSTS, HOSTS),
    prepared=st.integers(0, 1 << 40),
)
def test_a_row_says_what_the_record_says(
    topic: str, body: bytes, properties: dict[str, str], sys_flag: int, hosts: tuple[str, str], prepared: int
) -> None:
    born_host, store_host = hosts
    message = Message(
        topic,
        body,
        3,
        properties,
        sys_flag=sys_flag,
        born_host=born_host,
        store_host=store_host,
        prepared_transaction_offset=prepared,
    )
    try:
        encoded = encode_message(message)
    except (IllegalProperty, MessageIllegal):
        return
    encoded.place(queue_offset=7, physical_offset=1000, store_timestamp_ms=5)
    row = row_of_message(message, encoded, 1000, 7, 5)
    read = read_dispatch_request(memoryview(encoded.data), 0, 1000)
    assert isinstance(read, DispatchRequest)
    is_special = topic not in {"T", "\u00fc"} or "INNER_MULTI_DISPATCH" in properties or bool(sys_flag & 0xC)
    assert (row is None) is is_special
    if row is not None:
        properties["KEYS"] = "later"  # the message is the caller's
        assert row._replace(properties={}) == read._replace(properties={})
        assert index_keys(row) == index_keys(read)


def test_a_message_that_waits_for_its_delay_is_no_row() -> None:
    message, delayed = Message("T", b""), Message("SCHEDULE_TOPIC_XXXX", b"")
    encoded = encode_message(delayed)
    assert row_of_message(message, encoded, 0, 0, 1) is None
