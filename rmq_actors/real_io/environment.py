"""A node on the real machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rmq_actors.ports.disk import Disk
from rmq_actors.ports.environment import Environment
from rmq_actors.real_io.entropy import SystemEntropy
from rmq_actors.real_io.memory_disk import MemoryDisk
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.real_io.receive import receive
from rmq_actors.real_io.try_send import try_send
from rmq_actors.real_io.wall_clock import SystemWallClock


def real_environment(directory: str | os.PathLike[str] | MemoryDisk) -> Environment:
    """The ports of a node whose store is below `directory`, which is made if it is missing, or in memory."""
    if isinstance(directory, MemoryDisk):
        disk: Disk = directory
    else:
        root = Path(directory)
        root.mkdir(parents=True, exist_ok=True)
        disk = OsDisk(root)
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Environment(
        disk,
        SystemWallClock(),
        SystemEntropy(),
        memory_bytes,
        try_send,
        receive,
        checks_rows=False,
        numpy_is_loaded="numpy" in sys.modules,
    )
