"""Changes of role on real sockets and files."""

from __future__ import annotations

from pathlib import Path

import trio

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.embedding.cluster import log_sha256, open_cluster
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import BrokerRole
from rmq_actors.wire.record import Message


def test_a_master_and_its_slave_exchange_their_roles_on_the_same_ports(tmp_path: Path) -> None:
    async def until_replicated(master: BrokerController, slave: BrokerController) -> None:
        while slave.store.commit_log.max_offset < master.store.commit_log.max_offset:
            await trio.sleep(0.01)

    async def main() -> None:
        async with open_cluster(tmp_path, name_server=True) as cluster:
            master, slave = cluster.master, cluster.slaves[0]
            addresses = {broker.ha_address for broker in (master, slave)}
            for turn in range(3):
                for number in range(10):
                    result = await master.put_message(Message("T", b"body"))
                    assert result.status is PutStatus.PUT_OK
                    assert result.append is not None
                    assert result.append.queue_offset == 10 * turn + number
                await until_replicated(master, slave)
                await master.change_role(BrokerRole.SLAVE)
                await slave.change_role(BrokerRole.SYNC_MASTER)
                master, slave = slave, master
                await master.store.wait_for_slaves(1)
            assert {broker.ha_address for broker in (master, slave)} == addresses
            assert log_sha256(master.store.commit_log) == log_sha256(slave.store.commit_log)

    async def in_time() -> None:
        with trio.fail_after(60):
            await main()

    trio.run(in_time)
