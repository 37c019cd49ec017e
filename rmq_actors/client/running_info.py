"""What a consumer tells an operator about itself (consumerRunningInfo): mqadmin consumerStatus shows it."""

from __future__ import annotations

import trio

from rmq_actors.client.group_member import GroupMember
from rmq_actors.client.held_queue import HeldQueue
from rmq_actors.wire.bodies.consumer_running_info import ConsumerRunningInfo, ProcessQueueInfo

_MIB = 1024 * 1024
#: What `wire.remoting_command.CURRENT_VERSION` is called.
_VERSION_TEXT = "V4_9_7"


def running_info(member: GroupMember, threads: int) -> ConsumerRunningInfo:
    """What an operator is told (consumerRunningInfo)."""
    now_s, wall_ms = trio.current_time(), member.client.environment.wall_clock.now_ms()

    def at_ms(moment_s: float) -> int:
        return wall_ms - int((now_s - moment_s) * 1000)

    def info(held: HeldQueue) -> ProcessQueueInfo:
        process_queue, offset = held.process_queue, member.offset_store.table.read_offset(held.queue)
        low, high = process_queue.bounds
        taken, taken_low, taken_high = process_queue.consuming_bounds
        return ProcessQueueInfo(
            cached_msg_count=process_queue.message_count - taken,
            cached_msg_min_offset=low,
            cached_msg_max_offset=high,
            cached_msg_size_in_mib=process_queue.size_bytes // _MIB,
            commit_offset=-1 if offset is None else offset,
            droped=process_queue.dropped,
            locked=process_queue.locked,
            last_consume_timestamp=at_ms(process_queue.last_consume_s),
            last_lock_timestamp=at_ms(process_queue.last_lock_s),
            last_pull_timestamp=at_ms(process_queue.last_pull_s),
            transaction_msg_count=taken,
            transaction_msg_min_offset=taken_low,
            transaction_msg_max_offset=taken_high,
        )

    return ConsumerRunningInfo(
        properties={
            "PROP_NAMESERVER_ADDR": ";".join(member.client.config.name_servers),
            "PROP_CONSUME_TYPE": member.membership.consume_type.value,
            "PROP_CLIENT_VERSION": _VERSION_TEXT,
            "PROP_CONSUMEORDERLY": "true" if member.membership.orderly else "false",
            "PROP_THREADPOOL_CORE_SIZE": str(threads),
            "PROP_CONSUMER_START_TIMESTAMP": str(member.rebalancer.start_timestamp_ms),
            "messageModel": member.config.message_model.value,
            "consumeFromWhere": member.config.consume_from_where.value,
            "consumerGroup": member.config.consumer_group,
        },
        mq_table={queue: info(held) for queue, held in member.rebalancer.held.items()},
        status_table={topic: member.stats.status(topic, now_s) for topic in member.subscriptions},
        subscription_set=list(member.subscriptions.values()),
    )
