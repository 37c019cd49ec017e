"""A message as consumers get it (MessageExt)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

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
from rmq_actors.wire.record import BODY_MAX_BYTES, StoredMessage

_log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class MessageExt:
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
