"""A replicated store inside a Trio program: a master, a slave, and a put that is answered when the slave has it.

Run it: pip install rmq-actors, then python examples/embedded_cluster.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import trio

from rmq_actors import Message, PutStatus, log_sha256, open_cluster


async def main(directory: Path) -> None:
    """Put ten messages and compare the two logs."""
    async with open_cluster(directory, slaves=1) as cluster:
        for number in range(10):
            result = await cluster.master.put_message(Message("Orders", f"order {number}".encode()))
            assert result.status is PutStatus.PUT_OK, result
            assert result.append is not None
            print(f"order {number} is at offset {result.append.offset}, and the slave has it")
        await cluster.wait_until_replicated()
        master, slave = cluster.master.store.commit_log, cluster.slaves[0].store.commit_log
        assert log_sha256(master) == log_sha256(slave)
        print(f"both logs: {master.max_offset} bytes, SHA-256 {log_sha256(master)[:16]}...")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        trio.run(main, Path(name))
