"""What a slave does about topics that its master has deleted: the same, with the queues of its own.

A master of this project tells where in the log each topic's present life begins. RocketMQ's tells nothing: there a
topic is gone that the slave has and the master's table has not, and every record of it that the slave had when it
asked is of a life that is over. A topic that RocketMQ's master deletes and makes again between two rounds is noticed
queue by queue, when the first message of its new life comes (`QueueBeginsAgain`).
"""

from __future__ import annotations

import attrs

from rmq_actors.broker.broker_metadata import BrokerMetadata
from rmq_actors.broker.broker_outer_api import MQBrokerError
from rmq_actors.protocols.admin_rules import SYSTEM_TOPICS
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.store.files.deleted_topics import Points, decode_points
from rmq_actors.store.message_store import MessageStore
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.deleted_topics import DeletedTopicsInfo
from rmq_actors.wire.bodies.topic_configs import TopicConfigSerializeWrapper
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import OwnRequestCode
from rmq_actors.wire.response_code import ResponseCode


@attrs.frozen
class ToldDeletions:
    """What is known before the master is asked for its topics. `told`: None if it does not tell."""

    told: DeletedTopicsInfo | None
    #: Where this slave's log ended then.
    log_end: int


async def ask_deletions(
    client: RemotingClient, master: str, timeout_ms: int, store: MessageStore | None
) -> ToldDeletions:
    """To be asked before the topics are. Raises `RemotingError`, `MQBrokerError`, `ValueError`."""
    log_end = 0 if store is None else store.commit_log.max_offset
    request = RemotingCommand(OwnRequestCode.GET_DELETED_TOPICS)
    response = await client.invoke(master, request, timeout_ms)
    if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return ToldDeletions(None, log_end)
    if response.code != ResponseCode.SUCCESS:
        raise MQBrokerError(master, request, response)
    return ToldDeletions(decode_body(DeletedTopicsInfo, response.body), log_end)


async def take_deletions(
    asked: ToldDeletions, store: MessageStore, metadata: BrokerMetadata, masters: TopicConfigSerializeWrapper
) -> bool:
    """Remove the queues of topics that are gone, before the table is taken over; whether there were any.

    First go the offsets of groups there, durably. An offset of a slave never goes back by its master's table
    (`ConsumerOffsetManager.follow`), so one from before would count in the topic's next life. What was committed there
    since comes with the master's offsets, which are asked for next. Raises `OSError`, `ValueError`.
    """
    deletion, offsets = store.topic_deletion, metadata.consumer_offsets
    if asked.told is not None:
        points = decode_points(asked.told.points)
        offsets.remove_topics(_begun_since(deletion.points, points))
        await offsets.persist()
        return await deletion.follow(points, asked.told.min_offset)
    mine = metadata.topics.wrapper().topic_config_table.keys()
    gone = {*mine, *deletion.points} - masters.topic_config_table.keys() - SYSTEM_TOPICS
    offsets.remove_topics(gone)
    await offsets.persist()
    return await deletion.begin_at(gone, asked.log_end)


def _begun_since(ours: Points, theirs: Points) -> set[str]:
    """Topics whose present life begins at another place than this broker knew."""
    return {topic for topic, queues in theirs.items() if ours.get(topic, {}).get(None) != queues.get(None)}
