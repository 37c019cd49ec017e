"""What consumers of a group do with queues."""

from __future__ import annotations

from rmq_actors.tracing.event import Event, attribute


class ConsumerQueue(Event, kind="consumer.queue", emitter="client.rebalancing", actor="Rebalancer"):
    """A consumer takes a queue, or gives it up, by status: taken or given_up; client is its clientId.

    queue_offset: where its pulls begin, or are. After given_up nothing more of the queue is given to a listener.
    """

    status: str
    group: str = attribute("messaging.consumer.group.name")
    client: str = attribute("messaging.client.id")
    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
