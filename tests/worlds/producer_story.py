"""One story of a producer and an administrator for clusters of both kinds, with a name server."""

from __future__ import annotations

from rmq_actors import Cluster, Message, SendStatus

TOPIC = "Seam"


async def produce_and_look(cluster: Cluster) -> list[bytes]:
    """Send to a cluster whose master is "a": the bodies in its log, in order."""
    async with cluster.producer("PG") as producer, cluster.admin() as admin:
        results = [await producer.send(Message(TOPIC, b"%d" % number)) for number in range(5)]
        await producer.send_batch([Message(TOPIC, b"5"), Message(TOPIC, b"6")])
        assert {result.status for result in results} == {SendStatus.SEND_OK}
        assert (await admin.message_by_id(results[3].offset_msg_id)).body == b"3"
        assert list((await admin.cluster_info()).broker_addr_table) == ["broker-a"]
    return sorted(message.body for message in cluster.messages("a") if message.topic == TOPIC)
