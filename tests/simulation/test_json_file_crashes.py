"""Files below config/: whenever the power goes or the process dies, the old content is there or the new."""

from __future__ import annotations

import errno
from typing import Literal

import attrs
import pytest
import trio

from rmq_actors.store.files.json_file import ConfigFileDamaged, JsonFile
from rmq_actors.wire.fastjson import JsonValue
from sim_net import DiskConfig, DiskError, Fault, Kill, Node, On, PowerLoss, Schedule, World, WorldConfig

PATH = "config/consumerOffset.json"
PER_LIFE = 3
#: More than the disk operations of one life.
LAST_OPERATION = 40


def number(value: JsonValue) -> int:
    if not isinstance(value, dict) or not isinstance(value["n"], int):
        raise ValueError(f"no number: {value!r}")  # noqa: TRY004 - bad input
    return value["n"]


def content(n: int) -> dict[str, JsonValue]:
    return {"n": n, "filler": "x" * (600 * n % 5000)}


@attrs.define
class Lives:
    """What a node saw and did: `tried` is the last content that it began, `acknowledged` that was durable."""

    tried: int = 0
    acknowledged: int = 0
    loads: int = 0
    failures: int = 0

    async def live(self, node: Node) -> None:
        file = JsonFile(node.disk, PATH)
        loaded = file.load(number).value or 0
        assert self.acknowledged <= loaded <= self.tried
        # What was loaded is now as durable as what was acknowledged: it must not go away again.
        self.acknowledged = loaded
        self.loads += 1
        for n in range(self.tried + 1, self.tried + 1 + PER_LIFE):
            self.tried = n
            try:
                await file.persist(content(n))
            except OSError as error:
                if error.errno == errno.EBADF:  # dead
                    raise
                self.failures += 1
            else:
                self.acknowledged = n
        await trio.sleep_forever()


def live_through(*faults: Fault, seed: int, unsynced: Literal["any", "prefix"] = "any") -> Lives:
    lives = Lives()

    async def main(world: World) -> None:
        node = world.node("a")
        world.start_schedule(Schedule(faults))
        node.boot(lives.live)
        await trio.sleep_until(5.0)
        # A last life, after whatever the last fault left.
        node.power_loss()
        node.boot(lives.live)
        await trio.sleep_until(6.0)

    World(seed, WorldConfig(disk=DiskConfig(unsynced=unsynced))).run(main)
    return lives


@pytest.mark.parametrize("unsynced", ["any", "prefix"])
def test_power_is_cut_at_every_disk_operation(unsynced: Literal["any", "prefix"]) -> None:
    reached = 0
    for nth in range(1, LAST_OPERATION):
        for seed in range(6):
            lives = live_through(PowerLoss(0.0, "a", 0.5, on=On("disk.*", "a", nth)), seed=seed, unsynced=unsynced)
            reached += lives.loads == 3
    assert reached >= 6 * 24  # cuts that found the first life at work


def test_the_process_dies_at_every_disk_operation() -> None:
    reached = 0
    for nth in range(1, LAST_OPERATION):
        # Killed, and soon after the power goes: what the dead process had not synced is gone, too.
        lives = live_through(
            Kill(0.0, "a", 0.5, on=On("disk.*", "a", nth)),
            PowerLoss(1.0, "a", 0.5, on=On("disk.*", "a", nth + 9)),
            seed=nth,
        )
        reached += lives.loads >= 3
    assert reached >= 24


@pytest.mark.parametrize("operation", ["open", "write", "sync", "rename", "sync_directory"])
def test_each_disk_operation_fails_and_the_power_goes_soon_after(operation: str) -> None:
    failures = 0
    for nth in range(1, 8):
        for later in range(1, 6):
            path = ".tmp" if operation == "open" else ""  # a load that cannot read is another story
            broken = DiskError(0.0, 100.0, "a", error="ENOSPC", operation=operation, path=path, nth=nth)
            # The cut counts from the error on.
            cut = PowerLoss(0.0, "a", 0.5, on=On("disk.*", "a", 6 * nth + later))
            failures += live_through(broken, cut, seed=nth).failures
    assert failures >= 5


def test_a_file_that_the_disk_cannot_read_is_taken_from_its_backup() -> None:
    seen: list[tuple[str, int | None]] = []

    async def program(node: Node) -> None:
        file = JsonFile(node.disk, PATH)
        await file.persist(content(1))
        await file.persist(content(2))
        node.disk.fail(errno.EIO, operation="open", path=PATH, count=1)
        loaded = file.load(number)
        seen.append((loaded.source, loaded.value))
        assert "Input/output error" in loaded.reason
        # What could not be read is not made the backup.
        await file.persist(content(3))
        node.disk.fail(errno.EIO, operation="open", path=PATH, count=1)
        seen.append((loaded.source, file.load(number).value))
        node.disk.fail(errno.EIO, operation="open", path=PATH, count=2)
        with pytest.raises(ConfigFileDamaged, match=r"Input/output error.*bak cannot be opened"):
            file.load(number)

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(program)
        await node.wait_down()

    World(1).run(main)
    assert seen == [("backup", 1), ("backup", 1)]
