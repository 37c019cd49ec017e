"""A replicated store inside of an asyncio program: the code here is asyncio's; the brokers are Trio actors beneath it.

Run it: pip install rmq-actors, then python examples/asyncio_app.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from rmq_actors import Message, PutStatus, log_sha256, open_cluster, open_trio_guest


async def main(directory: Path) -> None:
    """Put ten messages at once, run into a time-out, and compare the two logs."""
    async with open_trio_guest() as trio_guest, trio_guest.enter(open_cluster(directory, slaves=1)) as cluster:

        async def put(number: int) -> None:
            message = Message("Orders", f"order {number}".encode())
            result = await trio_guest.run(cluster.master.put_message, message)
            assert result.status is PutStatus.PUT_OK, result
            assert result.append is not None
            print(f"order {number} is at offset {result.append.offset}, and the slave has it")

        async with asyncio.TaskGroup() as group:
            for number in range(10):
                group.create_task(put(number))

        try:
            async with asyncio.timeout(0.1):  # it cancels the waiting in Trio, too
                await trio_guest.run(cluster.master.store.wait_for_slaves, 2)
        except TimeoutError:
            print("no second slave came within 0.1 s")

        await trio_guest.run(cluster.wait_until_replicated)
        master, slave = cluster.master.store.commit_log, cluster.slaves[0].store.commit_log
        assert log_sha256(master) == log_sha256(slave)  # plain functions are called as they are
        print(f"both logs: {master.max_offset} bytes, SHA-256 {log_sha256(master)[:16]}...")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(Path(name)))
