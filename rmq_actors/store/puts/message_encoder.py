"""From a producer's message or batch to the bytes that the log takes: topic, delay, light queues, properties.

All of it raises `MessageIllegal`, `IllegalProperty` or `IllegalTopic` for what RocketMQ's store refuses too.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

import attrs

from rmq_actors.protocols.further_queues import has_further_queues
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.files.topic_names import check_topic, is_lmq
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.wire.batch import MessageBatch, encode_message_batch
from rmq_actors.wire.dispatch_request import (
    MULTI_DISPATCH_QUEUE_SPLITTER,
    PROPERTY_DELAY,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    SCHEDULE_TOPIC,
    split_multi_dispatch,
)
from rmq_actors.wire.properties import PROPERTY_WAIT_STORE_MSG_OK, encode_properties
from rmq_actors.wire.record import (
    END_FILE_MIN_BLANK_LENGTH,
    MAX_PROPERTIES_BYTES,
    TRANSACTION_ROLLBACK_TYPE,
    EncodedMessage,
    Message,
    MessageIllegal,
    PropertiesSizeExceeded,
    encode_message,
    takes_queue_offset,
)

_SYSTEM_TOPIC_PREFIX = "RMQ_SYS_"
#: Few topics have many messages.
check_topic_once = functools.lru_cache(maxsize=4096)(check_topic)


class LmqConsumeQueueNumExceeded(MessageIllegal):
    """More light queues than maxLmqConsumeQueueNum (status LMQ_CONSUME_QUEUE_NUM_EXCEEDED)."""


class MultiDispatchFailed(MessageIllegal):
    """The offsets in the message's other queues do not fit its properties (status UNKNOWN_ERROR, as in RocketMQ)."""


@attrs.frozen(eq=False)
class MessageEncoder:
    """Encodes what is put into one store."""

    _config: MessageStoreConfig
    #: Asked for the next offsets of queues.
    _commit_log: CommitLog

    def encode(self, message: Message, *, keeps_wait: bool = False) -> EncodedMessage:
        """A message; a delayed one as it waits in SCHEDULE_TOPIC_XXXX.

        `keeps_wait`: its property WAIT is stored, whatever the message is.
        """
        check_topic_once(message.topic)
        if message.queue_id < 0:
            raise _no_queue(message.queue_id)
        properties = message.properties
        if PROPERTY_INNER_MULTI_DISPATCH in properties:
            if PROPERTY_INNER_MULTI_QUEUE_OFFSET in properties:  # believed, it would be entries in anybody's queues
                properties = {**properties}
                del properties[PROPERTY_INNER_MULTI_QUEUE_OFFSET]
                message = attrs.evolve(message, properties=properties)
            if self._config.enable_multi_dispatch and has_further_queues(message.topic):
                delayed = self._delayed(message)
                encoded = self._encode_multi_dispatch(
                    attrs.evolve(delayed, topic=message.topic, queue_id=message.queue_id)
                )
                if delayed is message:
                    return encoded
                # It would be refused when it is delivered if it were now.
        if PROPERTY_DELAY in properties or message.delay_time_level:
            delayed = self._delayed(message)
            if delayed is not message:
                return encode_message(delayed, max_message_size_bytes=self._config.max_message_size_bytes)
        without = None if keeps_wait or _keeps_wait(message) else PROPERTY_WAIT_STORE_MSG_OK
        return encode_message(
            message,
            max_message_size_bytes=self._config.max_message_size_bytes,
            properties=encode_properties(properties, without=without),
        )

    def _delayed(self, message: Message) -> Message:
        """The message as it waits in SCHEDULE_TOPIC_XXXX, or the same one if it is not to be delayed."""
        level = _delay_level(message.properties) if message.delay_time_level is None else message.delay_time_level
        if level <= 0 or not takes_queue_offset(message.sys_flag):
            return message
        level = min(level, len(self._config.delay_levels_ms))
        return attrs.evolve(
            message,
            topic=SCHEDULE_TOPIC,
            queue_id=level - 1,
            properties={
                **message.properties,
                PROPERTY_DELAY: str(level),
                PROPERTY_REAL_TOPIC: message.topic,
                PROPERTY_REAL_QUEUE_ID: str(message.queue_id),
            },
        )

    def _encode_multi_dispatch(self, message: Message) -> EncodedMessage:
        """Encode a message that goes to other queues too, with its offsets in them (MultiDispatch)."""
        config, log = self._config, self._commit_log
        names = split_multi_dispatch(message.properties[PROPERTY_INNER_MULTI_DISPATCH])
        properties, queues = message.properties, list[tuple[str, int]]()
        if names:
            if config.enable_lmq and log.lmq_num > config.max_lmq_consume_queue_num:
                raise LmqConsumeQueueNumExceeded(
                    f"there are {log.lmq_num} light queues, maxLmqConsumeQueueNum is {config.max_lmq_consume_queue_num}"
                )
            for name in names:
                check_topic_once(name)
                queues.append((name, 0 if config.enable_lmq and is_lmq(name) else message.queue_id))
            offsets = [str(log.next_queue_offset(*queue)) for queue in queues]
            properties = {
                **properties,
                PROPERTY_INNER_MULTI_QUEUE_OFFSET: MULTI_DISPATCH_QUEUE_SPLITTER.join(offsets),
            }
        try:
            encoded = encode_message(
                message,
                max_message_size_bytes=config.max_message_size_bytes,
                properties=encode_properties(properties, without=PROPERTY_WAIT_STORE_MSG_OK),
            )
        except PropertiesSizeExceeded as error:
            if len(encode_properties(message.properties)) > MAX_PROPERTIES_BYTES:
                raise
            raise MultiDispatchFailed(f"with {PROPERTY_INNER_MULTI_QUEUE_OFFSET}: {error}") from error
        encoded.multi_queues = queues
        return encoded

    def encode_batch(self, batch: MessageBatch) -> EncodedMessage:
        """A batch, whose records lie one after the other."""
        check_topic_once(batch.topic)
        if batch.queue_id < 0:
            raise _no_queue(batch.queue_id)
        if batch.sys_flag & TRANSACTION_ROLLBACK_TYPE:
            raise MessageIllegal("a batch cannot be part of a transaction")
        if _delay_level(batch.properties) > 0:
            raise MessageIllegal("a batch cannot be delayed")
        return encode_message_batch(
            batch,
            max_message_size_bytes=self._config.max_message_size_bytes,
            max_total_bytes=self._commit_log.file_size_bytes - END_FILE_MIN_BLANK_LENGTH,
        )


def _no_queue(queue_id: int) -> MessageIllegal:
    """RocketMQ's store takes it, and nobody finds it: its broker chooses a queue before that for a number below 0."""
    return MessageIllegal(f"queue {queue_id}: queues are counted from 0")


def _keeps_wait(message: Message) -> bool:
    """Whether WAIT is stored: it is dropped from what producers send, and kept in what the broker makes of that."""
    return PROPERTY_REAL_TOPIC in message.properties or message.topic.startswith(_SYSTEM_TOPIC_PREFIX)


def _delay_level(properties: Mapping[str, str]) -> int:
    """What property DELAY says, 0 without it. Raises `MessageIllegal` if it is not a number."""
    text = properties.get(PROPERTY_DELAY)
    if text is None:
        return 0
    if re.fullmatch(r"[+-]?[0-9]{1,10}", text) is None:
        raise MessageIllegal(f"property {PROPERTY_DELAY} is {text!r}, not a level")
    return int(text)
