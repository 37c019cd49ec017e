"""A message as consumers get it (MessageExt).

Most of a pulled message is decoded when it is read first: programs read a body and perhaps a property. The record was
checked when it came, so that reading a field raises nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from rmq_actors.protocols.filter_api import PROPERTY_TAGS
from rmq_actors.wire.body_compression import (
    COMPRESSED_FLAG,
    CompressedBodyError,
    DecompressedBodyTooLong,
    decompress_body,
)
from rmq_actors.wire.dispatch_request import PROPERTY_KEYS, PROPERTY_UNIQ_KEY
from rmq_actors.wire.message_id import create_message_id
from rmq_actors.wire.plain_record import (
    BORN_TIMESTAMP,
    FLAG,
    PHYSICAL_OFFSET,
    PREPARED_TRANSACTION_OFFSET,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECONSUME_TIMES,
    STORE_TIMESTAMP,
    SYS_FLAG,
    PlainRecord,
    born_host_of,
    message_id_of,
    properties_of,
    store_host_of,
    topic_of,
)
from rmq_actors.wire.record import BODY_MAX_BYTES, StoredMessage

_log = logging.getLogger(__name__)


class _OfRecord:
    """Has what fields are decoded from that were not read yet: a place that is no field of the message."""

    __slots__ = ("_record",)


@attrs.frozen(kw_only=True)
class MessageExt(_OfRecord):
    """One message of a queue. Time stamps are ms since the epoch; hosts are "ip:port".

    `topic` is what the producer named, also when the message comes again out of the group's topic of retries;
    `reconsume_times` says how often it was given to a listener before.
    """

    topic: str
    body: bytes = attrs.field(repr=lambda body: f"<{len(body)} bytes>")
    properties: Mapping[str, str]
    broker_name: str
    queue_id: int
    queue_offset: int
    #: The id that the producer gave, and the broker's: where the record is.
    msg_id: str
    offset_msg_id: str
    physical_offset: int
    reconsume_times: int
    sys_flag: int
    flag: int
    born_timestamp_ms: int
    born_host: str
    store_timestamp_ms: int
    store_host: str
    prepared_transaction_offset: int
    #: Whether `body` is still compressed: it could not be decompressed, and a log line said why.
    is_compressed: bool = False

    @property
    def tags(self) -> str | None:
        """The tag, if there is one."""
        return self.properties.get(PROPERTY_TAGS)

    @property
    def keys(self) -> str | None:
        """The keys, with spaces between them."""
        return self.properties.get(PROPERTY_KEYS)

    if not TYPE_CHECKING:  # or every name would be an attribute for type checkers

        def __getattr__(self, name: str) -> object:
            """The value of a field that was not read yet; from now on it is the field's."""
            decode = _DECODERS.get(name)
            if decode is not None:
                value = decode(self, *_get_record(self))
                object.__setattr__(self, name, value)
                return value
            if name not in _AT_HAND:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            head, _, broker_name = _get_record(self)
            for set_number, place in _SET_NUMBERS:
                set_number(self, head[place])
            _set_broker_name(self, broker_name)
            _set_is_compressed(self, False)
            return getattr(self, name)

    @staticmethod
    def of_plain(record: PlainRecord, broker_name: str) -> MessageExt:
        """A plain record that came from a broker. It is the same message as `of` makes."""
        head, body, after_body = record
        message = _new_message(MessageExt)
        _set_record(message, (head, after_body, broker_name))
        _set_body(message, body)
        _set_queue_offset(message, head[QUEUE_OFFSET])
        return message

    @classmethod
    def of(cls, stored: StoredMessage, broker_name: str, max_bytes: int = BODY_MAX_BYTES) -> MessageExt:
        """A record that came from a broker. A body that cannot be decompressed stays as it is.

        Raises `DecompressedBodyTooLong` for one that `max_bytes` keep from being decompressed, and that alone.
        """
        body, is_compressed = stored.body, bool(stored.sys_flag & COMPRESSED_FLAG)
        offset_msg_id = create_message_id(stored.store_host, stored.physical_offset)
        if is_compressed:
            try:
                body, is_compressed = decompress_body(body, stored.sys_flag, max_bytes), False
            except CompressedBodyError as error:
                if isinstance(error, DecompressedBodyTooLong) and max_bytes < BODY_MAX_BYTES:
                    raise
                _log.warning("message %s of topic %s: %s", offset_msg_id, stored.topic, error)
        return cls(
            topic=stored.topic,
            body=body,
            properties=stored.properties,
            broker_name=broker_name,
            queue_id=stored.queue_id,
            queue_offset=stored.queue_offset,
            msg_id=stored.properties.get(PROPERTY_UNIQ_KEY) or offset_msg_id,
            offset_msg_id=offset_msg_id,
            physical_offset=stored.physical_offset,
            reconsume_times=stored.reconsume_times,
            sys_flag=stored.sys_flag,
            flag=stored.flag,
            born_timestamp_ms=stored.born_timestamp_ms,
            born_host=stored.born_host,
            store_timestamp_ms=stored.store_timestamp_ms,
            store_host=stored.store_host,
            prepared_transaction_offset=stored.prepared_transaction_offset,
            is_compressed=is_compressed,
        )


def _setter(name: str) -> Callable[[MessageExt, Any], None]:
    """Sets a field, of a message that is being made."""
    setter: Callable[[MessageExt, Any], None] = vars(MessageExt)[name].__set__
    return setter


_new_message = object.__new__
_get_record, _set_record = vars(_OfRecord)["_record"].__get__, vars(_OfRecord)["_record"].__set__
_set_body, _set_queue_offset = _setter("body"), _setter("queue_offset")
_set_broker_name, _set_is_compressed = _setter("broker_name"), _setter("is_compressed")

#: Numbers of a record: they were all unpacked together, so that the first one that is read brings the others.
_NUMBERS = {
    "queue_id": QUEUE_ID,
    "physical_offset": PHYSICAL_OFFSET,
    "reconsume_times": RECONSUME_TIMES,
    "sys_flag": SYS_FLAG,
    "flag": FLAG,
    "born_timestamp_ms": BORN_TIMESTAMP,
    "store_timestamp_ms": STORE_TIMESTAMP,
    "prepared_transaction_offset": PREPARED_TRANSACTION_OFFSET,
}
_SET_NUMBERS = tuple((_setter(name), place) for name, place in _NUMBERS.items())
_AT_HAND = frozenset({*_NUMBERS, "broker_name", "is_compressed"})

#: Texts of a record, each out of what stands before its body, after it, and the name of its broker.
_DECODERS: Mapping[str, Callable[[MessageExt, tuple[Any, ...], bytes, str], object]] = {
    "topic": lambda _message, _head, after_body, _broker_name: topic_of(after_body),
    "properties": lambda _message, _head, after_body, _broker_name: properties_of(after_body),
    "msg_id": lambda message, _head, _after_body, _broker_name: (
        message.properties.get(PROPERTY_UNIQ_KEY) or message.offset_msg_id
    ),
    "offset_msg_id": lambda _message, head, _after_body, _broker_name: message_id_of(head),
    "born_host": lambda _message, head, _after_body, _broker_name: born_host_of(head),
    "store_host": lambda _message, head, _after_body, _broker_name: store_host_of(head),
}
