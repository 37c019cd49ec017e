"""Messages that strangers send: `PUTS` has a kind, what is right for it, and how one is drawn."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rmq_actors.testing.strange_requests import (
    STRANGE_QUEUES,
    STRANGE_TOPIC,
    STRAY,
    Draft,
    Drawn,
    Left,
    Rule,
    StrangeRequest,
    put_rule,
    split_properties,
    step,
)
from rmq_actors.testing.thin_client import send_request
from rmq_actors.testing.workload import RECORD_BESIDE_BODY_BYTES
from rmq_actors.wire.batch import encode_batch_items
from rmq_actors.wire.headers import encode_header
from rmq_actors.wire.headers.messages import SendMessageRequestHeader
from rmq_actors.wire.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, encode_properties
from rmq_actors.wire.record import TRANSACTION_PREPARED_TYPE, Message, encode_message
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

#: The longest body that a broker of these runs takes (maxMessageSize).
MESSAGE_BYTES_MAX = 4_500
_PROPERTIES_BYTES_MAX = 32_767
#: The field of SEND_MESSAGE_V2 that has them.
_PROPERTIES = "i"
#: Where the length of the body stands in an item of a batch.
_ITEM_LENGTH_POSITION = 16
_ILLEGAL, _ERROR = ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SYSTEM_ERROR
_NO_PERMISSION, _NO_TOPIC = ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST
#: Topics of a broker itself (TopicValidator.NOT_ALLOWED_SEND_TOPIC_SET).
_SYSTEM_TOPICS = (
    *("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"),
    *("TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"),
)
_BAD_NAMES = (f"{STRAY}.x", f"{STRAY} x", f"{STRAY}/x", f"{STRAY}ä", f"{STRAY}" + "x" * 128, " ", "")


def taken(
    kind: str, asked: int, body: bytes, properties: str | dict[str, str], stored: dict[str, str], **fields: object
) -> StrangeRequest:
    """A message for a queue that is stored with these properties."""
    text = properties if isinstance(properties, str) else _text(*properties.items())
    left = Left.of(asked if asked >= 0 else -1, body, stored)
    return StrangeRequest(kind, [step(_request(STRANGE_TOPIC, body, asked, text, **fields))], [left])


def put_request(body: bytes, queue_id: int, properties: dict[str, str]) -> RemotingCommand:
    """A message for the strangers' topic."""
    return _request(STRANGE_TOPIC, body, queue_id, _text(*properties.items()))


def _refused(
    kind: str,
    draft: Draft,
    *,
    topic: str = STRANGE_TOPIC,
    body: bytes | None = None,
    queue_id: int | None = None,
    properties: str | None = None,
    **fields: object,
) -> StrangeRequest:
    text = _text(*draft.properties.items()) if properties is None else properties
    asked = draft.queue_id if queue_id is None else queue_id
    return StrangeRequest(kind, [step(_request(topic, draft.body if body is None else body, asked, text, **fields))])


def _request(topic: str, body: bytes, queue_id: int, properties: str, **fields: object) -> RemotingCommand:
    # A topic that is missing is not made: who sends to it has made it before.
    command = send_request(topic, body, queue_id, **{"default_topic": STRAY, **fields})  # type: ignore[arg-type]
    assert command.ext_fields is not None
    command.ext_fields[_PROPERTIES] = properties
    return command


def _text(*pairs: tuple[str, str]) -> str:
    return "".join(f"{name}{NAME_VALUE_SEPARATOR}{value}{PROPERTY_SEPARATOR}" for name, value in pairs)


# --- what is taken ----------------------------------------------------------------------------------------------------


def _good(draft: Draft) -> StrangeRequest:
    properties = draft.properties
    return taken("good", draft.queue_id, draft.body, properties, properties)


def _any_queue(draft: Draft) -> StrangeRequest:
    properties = draft.properties
    return taken("any_queue", draft.rng.choice((-1, -7, -(2**31))), draft.body, properties, properties)


def _double_names(draft: Draft) -> StrangeRequest:
    """Java's map keeps the last of each name."""
    properties = draft.properties
    name = draft.rng.choice(("TAGS", "more"))
    pairs = [(name, "first"), *properties.items(), (name, "last")]
    return taken("double_names", draft.queue_id, draft.body, _text(*pairs), properties | {name: "last"})


def _image(draft: Draft) -> StrangeRequest:
    """A body that is a whole record, with its size, magic and checksum right."""
    properties = draft.properties
    message = Message(STRANGE_TOPIC, draft.body, draft.queue_id, {"KEYS": "image"})
    encoded = encode_message(message)
    encoded.place(queue_offset=0, physical_offset=draft.rng.randrange(20_000), store_timestamp_ms=1)
    return taken("image", draft.queue_id, bytes(encoded.data), properties, properties)


def _empty_body(draft: Draft) -> StrangeRequest:
    properties = draft.properties
    return taken("empty_body", draft.queue_id, b"", properties, properties)


def _waits(draft: Draft) -> StrangeRequest:
    """WAIT is not stored."""
    properties = draft.properties
    return taken("waits", draft.queue_id, draft.body, properties | {"WAIT": "true"}, properties)


def _odd_text(draft: Draft) -> StrangeRequest:
    """Text outside of ASCII, and entries that Java drops."""
    properties = draft.properties | {"odd": draft.rng.choice(("ä", "€", "\U0001f600", "x" * 300))}
    text = _text(*properties.items()) + draft.rng.choice(("", "\x02", "empty\x01\x02", "alone\x02", "\x01nobody\x02"))
    return taken("odd_text", draft.queue_id, draft.body, text, properties)


def _delayed(draft: Draft) -> StrangeRequest:
    properties = draft.properties
    request = taken("delayed", draft.queue_id, draft.body, properties | {"DELAY": "1"}, properties)
    return attrs.evolve(request, leaves=[attrs.evolve(left, is_delayed=True) for left in request.leaves])


def _no_delay(draft: Draft) -> StrangeRequest:
    properties = draft.properties
    level = draft.rng.choice(("0", "-1", "+0"))
    return taken("no_delay", draft.queue_id, draft.body, properties | {"DELAY": level}, properties)


def _full_body(draft: Draft) -> StrangeRequest:
    """The longest that is taken, by the setting or by a file of the log."""
    properties = draft.properties
    size = min(MESSAGE_BYTES_MAX, draft.file_bytes - RECORD_BESIDE_BODY_BYTES)
    return taken("full_body", draft.queue_id, draft.body_of(size), properties, properties)


def _version_1(draft: Draft) -> StrangeRequest:
    """SEND_MESSAGE, with whole names."""
    properties, queue_id, body = draft.properties, draft.queue_id, draft.body
    header = SendMessageRequestHeader("PG", STRANGE_TOPIC, STRAY, 4, queue_id, 0, 1, 0, _text(*properties.items()))
    command = RemotingCommand(RequestCode.SEND_MESSAGE, encode_header(header), body=body)
    return StrangeRequest("version_1", [step(command)], [Left.of(queue_id, body, properties)])


# --- what is refused --------------------------------------------------------------------------------------------------


def _past_queue(draft: Draft) -> StrangeRequest:
    return _refused("past_queue", draft, queue_id=draft.rng.choice((STRANGE_QUEUES, 1000, 2**31 - 1)))


def _bad_topic(draft: Draft) -> StrangeRequest:
    return _refused("bad_topic", draft, topic=draft.rng.choice(_BAD_NAMES))


def _system_topic(draft: Draft) -> StrangeRequest:
    return _refused("system_topic", draft, topic=draft.rng.choice(_SYSTEM_TOPICS), queue_id=0)


def _missing_topic(draft: Draft) -> StrangeRequest:
    return _refused("missing_topic", draft, topic=f"{STRAY}-{draft.key}")


def _long_properties(draft: Draft) -> StrangeRequest:
    text = _text(("KEYS", draft.key), ("long", "x" * (_PROPERTIES_BYTES_MAX + draft.rng.choice((0, 1, 40_000)))))
    return _refused("long_properties", draft, properties=text)


def _long_body(draft: Draft) -> StrangeRequest:
    return _refused("long_body", draft, body=draft.body_of(MESSAGE_BYTES_MAX + draft.rng.choice((1, 1_000))))


def _long_record(draft: Draft) -> StrangeRequest:
    """Its body is not too long; its record fits no file of the log."""
    return _refused("long_record", draft, body=draft.body_of(draft.file_bytes - draft.rng.randrange(90)))


def _bad_value(draft: Draft) -> StrangeRequest:
    """It holds what ends a name."""
    return _refused("bad_value", draft, properties=_text(("KEYS", draft.key), ("odd", "a\x01b")))


def _bad_flag(draft: Draft) -> StrangeRequest:
    """A half message by its flag, and none by its properties."""
    return _refused("bad_flag", draft, sys_flag=TRANSACTION_PREPARED_TYPE)


def _bad_level(draft: Draft) -> StrangeRequest:
    level = draft.rng.choice(("soon", "1.5", "9" * 30))
    return _refused("bad_level", draft, properties=_text(("KEYS", draft.key), ("DELAY", level)))


# --- batches ----------------------------------------------------------------------------------------------------------


def _items(draft: Draft) -> list[tuple[bytes, int, bytes]]:
    return [
        (draft.body + b"%d" % number, 0, encode_properties(draft.properties | {"item": str(number)}))
        for number in range(1 + draft.rng.randrange(4))
    ]


def _batch(draft: Draft) -> StrangeRequest:
    items, queue_id = _items(draft), draft.queue_id
    request = _request(STRANGE_TOPIC, encode_batch_items(items), queue_id, "", batch=True)
    leaves = [Left(STRANGE_TOPIC, queue_id, body, split_properties(text)) for body, _, text in items]
    return StrangeRequest("batch", [step(request)], leaves)


def _refused_batch(kind: str, draft: Draft, body: bytes, properties: str = "") -> StrangeRequest:
    return StrangeRequest(kind, [step(_request(STRANGE_TOPIC, body, draft.queue_id, properties, batch=True))])


def _cut_batch(draft: Draft) -> StrangeRequest:
    """The last item lacks a part of it, or says that it is longer or shorter than nothing."""
    items = _items(draft)
    body, last = encode_batch_items(items), encode_batch_items(items[-1:])
    if draft.rng.random() < 1 / 2:
        return _refused_batch("cut_batch", draft, body[: len(body) - 1 - draft.rng.randrange(len(last) - 1)])
    length = draft.rng.choice((-1, 2**31 - 1)).to_bytes(4, "big", signed=True)
    at = len(body) - len(last) + _ITEM_LENGTH_POSITION
    return _refused_batch("cut_batch", draft, body[:at] + length + body[at + 4 :])


def _torn_batch(draft: Draft) -> StrangeRequest:
    """The properties of one item are not UTF-8, or end in zeros as torn ones do."""
    items = _items(draft)
    number, bad = draft.rng.randrange(len(items)), draft.rng.choice((b"\xff", b"\xed\xa0\x80", b"\xe4\xb8"))
    body, flag, text = items[number]
    items[number] = body, flag, text + b"\x02bad\x01" + bad
    return _refused_batch("torn_batch", draft, encode_batch_items(items))


def _indexed_batch(draft: Draft) -> StrangeRequest:
    """It says which entries its messages are in another topic's queues."""
    body, flag, text = _items(draft)[0]
    own = encode_properties({"INNER_MULTI_DISPATCH": "Chaos", "INNER_MULTI_QUEUE_OFFSET": "0"})
    return _refused_batch("indexed_batch", draft, encode_batch_items([(body, flag, text + b"\x02" + own)]))


def _reply(draft: Draft) -> StrangeRequest:
    """The answer to a client that is not there: it is stored all the same."""
    properties, queue_id, body = draft.properties | {"REPLY_TO_CLIENT": "nobody"}, draft.queue_id, draft.body
    command = put_request(body, queue_id, properties)
    command.code = RequestCode.SEND_REPLY_MESSAGE_V2
    return StrangeRequest("reply", [step(command)], [Left.of(queue_id, body, properties)])


def _delayed_batch(draft: Draft) -> StrangeRequest:
    return _refused_batch("delayed_batch", draft, encode_batch_items(_items(draft)), _text(("DELAY", "1")))


def _prepared_batch(draft: Draft) -> StrangeRequest:
    return _refused_batch("prepared_batch", draft, encode_batch_items(_items(draft)), _text(("TRAN_MSG", "true")))


#: What is right for each kind of message, and how one is drawn.
PUTS: Mapping[str, tuple[Rule, Drawn]] = {
    "good": (put_rule(), _good),
    "any_queue": (put_rule(), _any_queue),
    "double_names": (put_rule(), _double_names),
    "image": (put_rule(), _image),
    "empty_body": (put_rule(), _empty_body),
    "waits": (put_rule(), _waits),
    "odd_text": (put_rule(), _odd_text),
    "delayed": (put_rule(), _delayed),
    "no_delay": (put_rule(), _no_delay),
    "full_body": (put_rule(), _full_body),
    "version_1": (put_rule(), _version_1),
    "batch": (put_rule(), _batch),
    "past_queue": (put_rule(_ERROR), _past_queue),
    "bad_topic": (put_rule(_ERROR), _bad_topic),
    "system_topic": (put_rule(_NO_PERMISSION), _system_topic),
    "missing_topic": (put_rule(_NO_TOPIC), _missing_topic),
    "long_properties": (put_rule(_ILLEGAL), _long_properties),
    "long_body": (put_rule(_ILLEGAL), _long_body),
    "long_record": (put_rule(_ILLEGAL), _long_record),
    "bad_level": (put_rule(_ILLEGAL), _bad_level),
    "bad_value": (put_rule(_ILLEGAL), _bad_value),
    "bad_flag": (put_rule(_ILLEGAL), _bad_flag),
    "cut_batch": (put_rule(_ILLEGAL), _cut_batch),
    "torn_batch": (put_rule(_ILLEGAL), _torn_batch),
    "indexed_batch": (put_rule(_ILLEGAL), _indexed_batch),
    "reply": (attrs.evolve(put_rule(_ERROR), stored={_ERROR}), _reply),
    "delayed_batch": (put_rule(_ILLEGAL), _delayed_batch),
    "prepared_batch": (put_rule(_ILLEGAL), _prepared_batch),
}
