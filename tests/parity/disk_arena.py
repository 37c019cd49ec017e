"""Where a parity case of files runs: this machine's file system, a disk in memory, and a simulated one."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import trio

from rmq_actors.ports.disk import Disk
from rmq_actors.real_io.memory_disk import MemoryDisk
from rmq_actors.real_io.os_disk import OsDisk
from sim_net import DiskConfig, Node, World, WorldConfig
from tests.parity.arena import NoSuchWorld, Seen

DiskBody = Callable[[Disk], Awaitable[Seen]]

#: What fits on the small disk.
SMALL_BYTES = 64 << 10


def run_real(body: DiskBody) -> Seen:
    """Run a case in a directory of this machine's file system."""
    with tempfile.TemporaryDirectory(prefix="parity-") as root:
        return trio.run(body, OsDisk(Path(root)))


def run_in_memory(body: DiskBody) -> Seen:
    """Run a case on a disk in memory."""
    return trio.run(body, MemoryDisk())


def run_real_small(body: DiskBody) -> Seen:
    """Run a case on a tmpfs of `SMALL_BYTES`. NoSuchWorld where it cannot be mounted."""
    with tempfile.TemporaryDirectory(prefix="parity-") as root, _tmpfs(root):
        return trio.run(body, OsDisk(Path(root)))


def run_simulated(body: DiskBody, *, capacity_bytes: int | None = None) -> Seen:
    """Run a case on the disk of a simulated node."""
    seen: list[Seen] = []

    async def program(node: Node) -> None:
        seen.append(await body(node.disk))

    async def main(world: World) -> None:
        node = world.node("alone")
        node.boot(program)
        await node.wait_down()

    World(1, WorldConfig(disk=DiskConfig(capacity_bytes=capacity_bytes))).run(main)
    return seen[0]


@contextmanager
def _tmpfs(root: str) -> Iterator[None]:
    if os.geteuid() != 0:
        raise NoSuchWorld("only root can mount a small tmpfs")
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "tmpfs", root]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoSuchWorld(f"no tmpfs can be mounted here: {error}") from error
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", root], check=True, capture_output=True)


#: How to run a case, by world; the real one is first.
DISK_WORLDS: dict[str, Callable[[DiskBody], Seen]] = {
    "Linux": run_real,
    "one node": run_simulated,
    "memory": run_in_memory,
}
SMALL_DISK_WORLDS: dict[str, Callable[[DiskBody], Seen]] = {
    "Linux": run_real_small,
    "one node": partial(run_simulated, capacity_bytes=SMALL_BYTES),
}
