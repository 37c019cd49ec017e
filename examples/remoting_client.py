"""A name server, a master and a slave that find each other, and a client that asks them in RocketMQ's own protocol.

The client speaks to RocketMQ's name servers and brokers as well.

Run it: pip install rmq-actors, then python examples/remoting_client.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import trio

from rmq_actors import open_cluster, open_remoting_client
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.routes import ClusterInfo, TopicRouteData
from rmq_actors.wire.headers import encode_header
from rmq_actors.wire.headers.topics import GetRouteInfoRequestHeader
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode


async def main(directory: Path) -> None:
    """Ask the name server for the brokers, and for the way to a topic."""
    async with open_cluster(directory, slaves=1, name_server=True) as cluster, open_remoting_client() as client:
        assert cluster.name_server_address is not None

        answer = await client.invoke(
            cluster.name_server_address, RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO), timeout_ms=3000
        )
        for name, broker in decode_body(ClusterInfo, answer.body).broker_addr_table.items():
            for broker_id, address in sorted(broker.broker_addrs.items()):
                print(f"{name}: {'slave' if broker_id else 'master'} {broker_id} at {address}")

        request = RemotingCommand(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, encode_header(GetRouteInfoRequestHeader(topic="BenchmarkTest"))
        )
        answer = await client.invoke(cluster.name_server_address, request, timeout_ms=3000)
        for queue in decode_body(TopicRouteData, answer.body).queue_datas:
            print(f"BenchmarkTest: {queue.write_queue_nums} queues on {queue.broker_name}")

        answer = await client.invoke(cluster.name_server_address, RemotingCommand(4711), timeout_ms=3000)
        print(f"code {answer.code}:{answer.remark}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        trio.run(main, Path(name))
