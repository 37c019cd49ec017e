"""The producer's story on real sockets, and what is asked of the real machine alone."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from rmq_actors import ClientConfig, Message, open_cluster, open_producer
from tests.worlds.producer_story import produce_and_look


@pytest.mark.trio
async def test_one_body_produces_on_real_sockets(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, follows={"a": None, "b": "a"}, name_server=True) as cluster:
        assert await produce_and_look(cluster) == [b"%d" % number for number in range(7)]


@pytest.mark.trio
async def test_a_producer_says_by_which_address_it_is_known(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, slaves=0, name_server=True) as cluster:
        assert cluster.name_server_address is not None
        async with open_producer(cluster.name_server_address, "PG") as producer:
            ipaddress.ip_address(producer.client_id.partition("@")[0])
            await producer.send(Message("Orders", b"x"))
        config = ClientConfig(cluster.name_server_address, client_ip="10.0.0.9", instance_name="one")
        async with open_producer(config, "PG") as producer:
            assert producer.client_id == "10.0.0.9@one"
            assert (await producer.send(Message("Orders", b"x"))).msg_id.startswith("0A000009")
