"""Messages that were not consumed go back to the broker, or, if it takes none, to the topic of retries as new ones."""

from __future__ import annotations

import logging

import attrs

from rmq_actors.client.client_error import ClientError
from rmq_actors.client.consumer_requests import ConsumerRequests
from rmq_actors.client.message_ext import MessageExt
from rmq_actors.client.requests import deadline_after
from rmq_actors.protocols.consume_results import retry_properties, retry_topic
from rmq_actors.wire.bodies.message_queues import MessageQueue

_log = logging.getLogger(__name__)

_TIMEOUT_MS = 5_000


@attrs.define(eq=False, repr=False)
class SendBack:
    """The ways back. Each returns whether the message is stored, and logs why it is not."""

    _requests: ConsumerRequests
    _max_reconsume_times: int

    async def send_message_back(self, message: MessageExt, queue: MessageQueue, delay_level: int) -> bool:
        """Have the broker deliver it again, later each time; failing that, send it to the topic of retries."""
        try:
            await self._requests.send_msg_back(
                message, queue.topic, delay_level, self._max_reconsume_times, deadline_after(_TIMEOUT_MS)
            )
        except ClientError as error:
            _log.warning("%s: message %s is not taken back: %s", self._requests.group, message.msg_id, error)
            return await self.send_to_retry_topic(message, message.reconsume_times + 1)
        return True

    async def send_to_retry_topic(self, message: MessageExt, reconsume_times: int) -> bool:
        """Send it as a new message; the broker makes a dead letter of one that was tried often enough."""
        topic = retry_topic(self._requests.group)
        properties = retry_properties(
            message.properties,
            topic=message.topic,
            message_id=message.msg_id,
            reconsume_times=reconsume_times,
            max_times=self._max_reconsume_times,
            delay_reconsume_times=message.reconsume_times,
        )
        # As a producer does: what the header says is not said by properties, too.
        for name in ("RECONSUME_TIME", "MAX_RECONSUME_TIMES"):
            del properties[name]
        try:
            await self._requests.send_to_retry_topic(
                topic,
                message,
                properties,
                reconsume_times=reconsume_times,
                max_reconsume_times=self._max_reconsume_times,
                deadline_s=deadline_after(_TIMEOUT_MS),
            )
        except (ClientError, ValueError) as error:
            _log.warning("%s: message %s is not sent back: %s", self._requests.group, message.msg_id, error)
            return False
        return True
