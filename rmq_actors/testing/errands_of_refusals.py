"""Errands of operators whose commands a disk refuses: all is then as it was before."""

from __future__ import annotations

import errno

from rmq_actors.remoting.connection import RemotingError
from rmq_actors.store.config import BrokerRole
from rmq_actors.testing.errand import Errand, GivenUp
from rmq_actors.testing.errands_of_settings import make_topic
from rmq_actors.tracing.events.run import ClientTopic
from rmq_actors.wire.headers.messages import SendMessageResponseHeader
from rmq_actors.wire.headers.topics import DeleteTopicRequestHeader
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

_MESSAGES = 3


async def refused_deletion(errand: Errand) -> str:
    """A topic whose deletion cannot be written down keeps its messages, and its next message has the next number."""
    disk = errand.brokers.nodes[errand.master].disk
    async with errand.visitor() as visitor:
        client = visitor.client
        await make_topic(errand, client)
        for number in range(_MESSAGES):
            await errand.send(client, b"%d" % number)
        rule = disk.fail(errno.EIO, operation="write", path="config/deletedTopics", count=None)
        errand.brokers.recorder.record(
            ClientTopic(status="asked", operation="delete", topic=errand.topic), errand.master
        )
        try:
            answer = await client.request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(errand.topic))
        finally:
            rule.end()
        if answer.code == ResponseCode.SUCCESS:
            return "a deletion that cannot be written down is answered SUCCESS"
        _, sent = await client.send(errand.topic, b"next")
        if not isinstance(sent, SendMessageResponseHeader):
            raise GivenUp
        found = await errand.read(client)
        if sent.queue_offset == _MESSAGES and found.bodies[:1] == [b"0"]:
            return ""
        return f"after a refused deletion message {_MESSAGES} has number {sent.queue_offset}; there are {found.bodies}"


async def refused_promotion(errand: Errand) -> str:
    """A slave whose new term cannot be written is not promoted: it says so, and goes on as a slave."""
    if not errand.brokers.is_settled:
        raise GivenUp  # else somebody who promotes it in earnest would be refused
    slave = errand.a_slave()
    disk, role = errand.brokers.nodes[slave].disk, BrokerRole.SYNC_MASTER.value
    async with errand.visitor(slave) as visitor:
        rule = disk.fail(errno.EIO, path="replicationTerm", count=None)
        try:
            body = f"brokerRole={role}\nbrokerId=0".encode()
            answer = await visitor.client.request(RequestCode.UPDATE_BROKER_CONFIG, body=body)
        except RemotingError as error:
            return f"{slave} was to be promoted, and its term cannot be written: {error!r}"
        finally:
            rule.end()
        if answer.code == ResponseCode.SUCCESS:
            return f"{slave} is promoted, and its term cannot be written"
        again = await visitor.client.request(RequestCode.GET_BROKER_CONFIG)
        is_slave = b"brokerRole=SLAVE" in bytes(again.body)
        return "" if is_slave else f"{slave} refuses to be promoted, and is no slave any more"
