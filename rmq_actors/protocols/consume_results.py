"""What becomes of messages after a listener has had them: committed, sent back, or consumed again after a pause.

Listeners say SUCCESS, or that they want a message later. Without order such a message is sent back to the broker, which
delivers it to the group again, each time later, and after maxReconsumeTimes to the group's dead letters; if the broker
cannot be reached, the consumer tries it again itself. With order the queue stands still for a moment.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeVar

from rmq_actors.protocols.send_rules import RETRY_GROUP_TOPIC_PREFIX

PROPERTY_RETRY_TOPIC = "RETRY_TOPIC"
PROPERTY_ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
PROPERTY_RECONSUME_TIME = "RECONSUME_TIME"
PROPERTY_MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
_PROPERTY_TRANSACTION_PREPARED = "TRAN_MSG"
_PROPERTY_DELAY = "DELAY"

#: maxReconsumeTimes -1 means 16 without order, and for ever with it.
DEFAULT_MAX_RECONSUME_TIMES = 16
FOR_EVER = 2**31 - 1
#: How long a queue stands still by default, and the bounds of what a listener may say (ms).
SUSPEND_CURRENT_QUEUE_TIME_MS = 1000
SUSPEND_MIN_MS, SUSPEND_MAX_MS = 10, 30_000
#: The pause before messages are consumed again that could not be sent back.
LOCAL_RETRY_S = 5.0
_FIRST_RETRY_LEVEL = 3


class ConsumeConcurrentlyStatus(enum.Enum):
    """What a listener says without order."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


class ConsumeOrderlyStatus(enum.Enum):
    """What a listener says with order."""

    SUCCESS = "SUCCESS"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


StatusT = TypeVar("StatusT", bound=enum.Enum)


def said(returned: object, success: StatusT) -> StatusT:
    """What a listener says that returned this: nothing is `success`.

    Raises `TypeError` for what is no status of its kind: it must not count as consumed.
    """
    if returned is None:
        return success
    if not isinstance(returned, type(success)):
        raise TypeError(
            f"a listener returned {repr(returned)[:200]}, which is neither None nor {type(success).__name__}"
        )
    return returned


def consumed_count(status: ConsumeConcurrentlyStatus, ack_index: int, count: int) -> int:
    """How many of `count` messages are consumed; the others go back. `ack_index` is that of the last one consumed."""
    if status is ConsumeConcurrentlyStatus.RECONSUME_LATER:
        return 0
    return max(0, min(ack_index + 1, count))


def max_reconsume_times(configured: int, *, orderly: bool) -> int:
    """How often a message is consumed again at most."""
    if configured == -1:
        return FOR_EVER if orderly else DEFAULT_MAX_RECONSUME_TIMES
    return configured


def suspend_s(asked_ms: int) -> float:
    """How long a queue stands still, in seconds, when a listener asks for `asked_ms`; -1: the default."""
    if asked_ms == -1:
        asked_ms = SUSPEND_CURRENT_QUEUE_TIME_MS
    return min(max(asked_ms, SUSPEND_MIN_MS), SUSPEND_MAX_MS) / 1000


def retry_topic(consumer_group: str) -> str:
    """The topic of a group's retries."""
    return RETRY_GROUP_TOPIC_PREFIX + consumer_group


def topic_for_listener(topic: str, properties: Mapping[str, str], consumer_group: str) -> str:
    """The topic that a listener sees: of a retry, that to which the message was sent (resetRetryAndNamespace)."""
    origin = properties.get(PROPERTY_RETRY_TOPIC)
    return origin if origin is not None and topic == retry_topic(consumer_group) else topic


def retry_properties(
    properties: Mapping[str, str],
    *,
    topic: str,
    message_id: str,
    reconsume_times: int,
    max_times: int,
    delay_reconsume_times: int,
) -> dict[str, str]:
    """The properties of a message that the consumer sends to its group's topic of retries itself.

    It does so when the broker cannot take it back, or, with order, when it was tried often enough.
    """
    found = {name: value for name, value in properties.items() if name != _PROPERTY_TRANSACTION_PREPARED}
    found[PROPERTY_ORIGIN_MESSAGE_ID] = properties.get(PROPERTY_ORIGIN_MESSAGE_ID) or message_id
    found[PROPERTY_RETRY_TOPIC] = topic
    found[PROPERTY_RECONSUME_TIME] = str(reconsume_times)
    found[PROPERTY_MAX_RECONSUME_TIMES] = str(max_times)
    found[_PROPERTY_DELAY] = str(_FIRST_RETRY_LEVEL + delay_reconsume_times)
    return found
