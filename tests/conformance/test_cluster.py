"""A cluster inside of another program."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_actors.embedding.cluster import log_sha256, open_cluster
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.put_completion_service import StoreStopped
from rmq_actors.wire.record import Message


@pytest.mark.trio
async def test_two_slaves_have_what_was_put(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, slaves=2) as cluster:
        await cluster.wait_until_connected()
        result = await cluster.master.put_message(Message("Topic", b"hello"))
        assert result.status is PutStatus.PUT_OK
        await cluster.wait_until_replicated()
        digests = {log_sha256(broker.store.commit_log) for broker in (cluster.master, *cluster.slaves)}
        assert len(digests) == 1


@pytest.mark.trio
async def test_nobody_waits_for_the_slaves_of_a_stopped_store(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, slaves=0) as cluster:
        store = cluster.master.store
    with pytest.raises(StoreStopped, match="0 of 1 slaves"):
        await store.wait_for_slaves(1)
