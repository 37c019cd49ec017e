"""Which topics and groups an operator may make and change (TopicValidator), and how many queues they may have.

Pure: names and numbers of a request in, a refusal out. RocketMQ 4.9 checks the name of a topic; what a group is called
and the numbers are checked here, too: a table that holds anything else cannot be used.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from rmq_actors.protocols.send_rules import RETRY_GROUP_TOPIC_PREFIX, Refusal, check_topic_name
from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC
from rmq_actors.wire.headers.topics import CreateTopicRequestHeader
from rmq_actors.wire.response_code import ResponseCode

#: The topics that no operator changes, on any broker (TopicValidator.SYSTEM_TOPIC_SET).
SYSTEM_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        "TBW102",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
_SYSTEM_TOPIC_PREFIX = "rmq_sys_"
#: So that what is asked about a topic fits into one answer.
QUEUE_NUMS_MAX = 16_384
_PERM_MAX = 7


def check_topic_to_change(topic: str, system_topics: AbstractSet[str]) -> Refusal | None:
    """Why an operator may not make, change or delete a topic of this name."""
    refusal = check_topic_name(topic)
    if refusal is not None:
        return refusal
    if topic in system_topics or topic.startswith(_SYSTEM_TOPIC_PREFIX):
        return Refusal(ResponseCode.SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic.")
    return None


def check_topic_numbers(header: CreateTopicRequestHeader) -> Refusal | None:
    """Why a topic cannot have these queues and this permission."""
    for name, count in (("readQueueNums", header.read_queue_nums), ("writeQueueNums", header.write_queue_nums)):
        if not 0 <= count <= QUEUE_NUMS_MAX:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"{name} is {count}: a topic has 0 to {QUEUE_NUMS_MAX} queues")
    if not 0 <= header.perm <= _PERM_MAX:
        return Refusal(ResponseCode.SYSTEM_ERROR, f"perm is {header.perm}: a permission is 0 to {_PERM_MAX}")
    return None


def check_group_to_change(group: str) -> Refusal | None:
    """Why there can be no group of this name: its topic of retries must be a topic."""
    if not group.strip():
        return Refusal(ResponseCode.SYSTEM_ERROR, "The specified group is blank.")
    refusal = check_topic_name(RETRY_GROUP_TOPIC_PREFIX + group)
    return None if refusal is None else Refusal(refusal.code, refusal.remark.replace("topic", "group"))
