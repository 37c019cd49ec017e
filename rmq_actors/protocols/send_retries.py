"""When a producer sends a message again (DefaultMQProducerImpl.sendDefaultImpl). Pure.

A message that is sent again may be stored twice: the first answer may be lost, and not the message.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from rmq_actors.wire.response_code import ResponseCode

#: Refusals after which another broker may take the message (DefaultMQProducer.retryResponseCodes).
RETRY_RESPONSE_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)


class SendStatus(enum.Enum):
    """How a message was stored: each of these means that the broker has it."""

    SEND_OK = "SEND_OK"
    #: It is not known to be on the disk: a power cut may take it.
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    #: No slave is known to have it: the loss of the master may take it.
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


#: The answers that mean that a message is stored.
SEND_STATUS: Mapping[int, SendStatus] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


@attrs.define(eq=False, repr=False)
class SendRetries:
    """The attempts of one message. Each method says, after an attempt, whether to make another one at once."""

    #: retryTimesWhenSendFailed.
    retry_times: int
    retry_another_broker_when_not_store_ok: bool = False
    attempts: int = attrs.field(default=0, init=False)

    def after_stored(self, status: SendStatus) -> bool:
        """It is stored, perhaps not as safely as was asked."""
        return self._is_left() and status is not SendStatus.SEND_OK and self.retry_another_broker_when_not_store_ok

    def after_refusal(self, code: int) -> bool:
        """The broker does not take it."""
        return self._is_left() and code in RETRY_RESPONSE_CODES

    def after_failure(self) -> bool:
        """The broker is not reached, or has not answered."""
        return self._is_left()

    def _is_left(self) -> bool:
        self.attempts += 1
        return self.attempts <= self.retry_times
