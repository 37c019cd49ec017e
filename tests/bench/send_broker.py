"""A broker in a process of its own, for `send_lane`: `python -m tests.bench.send_broker lane|general BROKER_CONF`.

`general`: as if there were no send lane, every message by itself.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import trio

from rmq_actors.cli.entry import GC_THRESHOLD
from rmq_actors.embedding.broker import load_broker_config, open_configured_broker


async def serve(door: str, configuration: Path) -> None:
    """Serve until killed; prints the port."""
    async with open_configured_broker(load_broker_config(configuration)) as broker:
        assert broker.remoting is not None
        if door == "general":
            broker.remoting.processors.row_group = None
        sys.stdout.write(f"{broker.remoting.remoting_server.port}\n")
        sys.stdout.flush()
        await trio.sleep_forever()


if __name__ == "__main__":
    gc.set_threshold(*GC_THRESHOLD)  # as the command
    trio.run(serve, sys.argv[1], Path(sys.argv[2]))
