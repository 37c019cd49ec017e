"""RocketMQ's message store inside a Trio program: put messages, find them by queue, key and time, and open it again.

Run it: pip install rmq-actors, then python examples/message_store.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import trio

from rmq_actors import FlushDiskType, Message, MessageStoreConfig, decode_message, open_message_store

CONFIG = MessageStoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH)


async def main(directory: Path) -> None:
    """Put, stop, open again, read."""
    async with open_message_store(directory, CONFIG) as store:
        for number in range(3):
            properties = {"KEYS": f"order-{number}", "TAGS": "new" if number else "old"}
            result = await store.puts.put_message(Message("Orders", f"order {number}".encode(), properties=properties))
            assert result.append is not None
            print(f"{result.status.value}: order {number} has the id {result.append.msg_id}")

    async with open_message_store(directory, CONFIG) as store:
        found = store.reads.get_message("Orders", queue_id=0, offset=0, max_msg_nums=32)
        print(f"{found.status.name}: {len(found.messages)} messages, the next offset is {found.next_begin_offset}")
        by_key = await store.query_message("Orders", "order-2", max_num=32, begin_ms=0, end_ms=2**62)
        (record,) = [decode_message(view) for view in by_key.messages]
        print(f"order-2 is {record.body.decode()!r}, tagged {record.properties['TAGS']!r}")
    print("any RocketMQ 4.9 broker can open the directory now")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        trio.run(main, Path(name))
