"""This project's slave follows an unmodified RocketMQ 4.9.7 master over loopback and ends with the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from rmq_actors.broker.broker_controller import open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.ha.config import HaConfig
from rmq_actors.real_io.environment import real_environment
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from tests.interop.conftest import MakeJavaBroker, MakeTracer
from tests.worlds.java_broker import MAPPED_FILE_SIZE, REPLICATION_TIMEOUT_S, commit_log_files

pytestmark = [pytest.mark.interop, pytest.mark.trio, pytest.mark.timeout(600)]

MESSAGES = 30
#: Instead of 3 s, which a slave on a slow machine may take to answer.
SLAVE_TIMEOUT_MS = 50_000


async def test_slave_acknowledges_a_java_sync_master_and_gets_its_log(
    tmp_path: Path, make_java_broker: MakeJavaBroker, make_tracer: MakeTracer
) -> None:
    master = make_java_broker("master", brokerRole="SYNC_MASTER", slaveTimeout=SLAVE_TIMEOUT_MS)
    await trio.to_thread.run_sync(master.start)
    config = BrokerConfig(
        store=MessageStoreConfig(broker_role=BrokerRole.SLAVE, mapped_file_size_commit_log_bytes=MAPPED_FILE_SIZE),
        ha=HaConfig(ha_listen_port=0, ha_master_address=master.ha_address),
    )
    store = tmp_path / "slave" / "store"
    async with open_broker(config, real_environment(store), make_tracer("slave")):

        def serves_the_slave() -> bool:
            return "request offset 0" in master.log_text

        await trio.to_thread.run_sync(
            master.wait_until, serves_the_slave, REPLICATION_TIMEOUT_S, "the master serves the slave"
        )
        for number in range(MESSAGES):
            body = f"message {number} ".encode() + bytes([number]) * 12_000
            response = await trio.to_thread.run_sync(master.send, "TopicInterop", body)
            # 0 is SEND_OK: a SYNC_MASTER answers it once a slave has reported the offset.
            assert response.code == 0, response
        sent = commit_log_files(master.store)
        assert len(sent) == 2
        assert commit_log_files(store) == sent
    await trio.to_thread.run_sync(master.stop)
    assert master.stopped_in_order()
    assert commit_log_files(store) == commit_log_files(master.store)
