"""Wall clocks: skew, jumps and drift of one node, and of nothing else."""

from __future__ import annotations

import pytest
import trio

from sim_net import ClockDrift, ClockJump, Fault, Kill, Node, Schedule, World

EPOCH_MS = 1_704_067_200_000


def readings(*faults: Fault, until_s: int = 6, skew_ms: int = 0) -> tuple[list[int], list[int], World]:
    """What the clocks of a node with faults and of one without say each second, in ms since the epoch."""
    mine: list[int] = []
    other: list[int] = []

    async def main(world: World) -> None:
        a, b = world.node("a"), world.node("b")
        a.wall_clock.skew_ms = skew_ms
        world.start_schedule(Schedule(faults))
        for second in range(until_s):
            await trio.sleep_until(second + 0.5)
            mine.append(a.wall_clock.now_ms() - EPOCH_MS)
            other.append(b.wall_clock.now_ms() - EPOCH_MS)

    world = World(1)
    world.run(main)
    assert other == [1000 * second + 500 for second in range(until_s)]
    return mine, other, world


def clock_entries(world: World) -> list[tuple[float, str, str, dict[str, object]]]:
    return [
        (entry.time_ns / 1e9, entry.node, entry.kind, dict(entry.attributes))
        for entry in world.journal.entries
        if entry.kind.startswith("clock.")
    ]


def test_skew_is_constant() -> None:
    mine, other, _ = readings(skew_ms=-250)
    assert [a - b for a, b in zip(mine, other, strict=True)] == [-250] * 6


def test_jumps_stay_and_go_back_too() -> None:
    mine, _, world = readings(ClockJump(1.0, "a", 5000), ClockJump(3.0, "a", -7000))
    assert mine == [500, 6500, 7500, 1500, 2500, 3500]
    assert clock_entries(world) == [
        (1.0, "a", "clock.jump", {"by_ms": 5000}), (3.0, "a", "clock.jump", {"by_ms": -7000}),
    ]  # fmt: skip


def test_drift_gains_while_it_lasts_and_keeps_what_was_gained() -> None:
    mine, _, world = readings(ClockDrift(1.0, 3.0, "a", 10_000.0))
    assert mine == [500, 1505, 2515, 3525, 4530, 5530]
    assert clock_entries(world) == [(1.0, "a", "clock.drift", {"rate_ppm": 10_000.0})]


def test_drifts_add_up_and_end_in_any_order() -> None:
    mine, _, _ = readings(ClockDrift(0.5, 4.0, "a", 100_000.0), ClockDrift(1.5, 1.0, "a", -300_000.0))
    assert mine == [500, 1600, 2400, 3500, 4600, 5600]


def test_a_clock_never_drifts_backwards() -> None:
    mine, _, _ = readings(ClockDrift(0.5, 2.0, "a", -600_000.0), ClockDrift(0.5, 2.0, "a", -700_000.0))
    assert mine == [500, 500, 500, 1500, 2500, 3500]


def test_sleeps_and_time_outs_do_not_follow_the_wall_clock() -> None:
    slept: list[tuple[float, int]] = []

    async def program(node: Node) -> None:
        for _ in range(3):
            await trio.sleep(1)
            slept.append((trio.current_time(), node.wall_clock.now_ms() - EPOCH_MS))

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(program)
        world.start_schedule(Schedule((ClockJump(0.5, "a", 3_600_000), ClockDrift(1.0, 5.0, "a", -500_000.0))))
        await node.wait_down()

    World(1).run(main)
    assert slept == [(1.0, 3_601_000), (2.0, 3_601_500), (3.0, 3_602_000)]


def test_the_clock_runs_on_while_the_node_is_down() -> None:
    mine, _, _ = readings(Kill(0.0, "a", 3.0), ClockJump(1.0, "a", -100), ClockDrift(2.0, 1.0, "a", 2000.0))
    assert mine == [500, 1400, 2401, 3402, 4402, 5402]


@pytest.mark.parametrize("rate_ppm", [0, -1_000_000.0, float("inf"), "fast"])
def test_a_rate_must_leave_the_clock_running(rate_ppm: float) -> None:
    with pytest.raises(ValueError, match="rate_ppm must be"):
        ClockDrift(0.0, 1.0, "a", rate_ppm)


@pytest.mark.parametrize("by_ms", [0, 1.5, True])
def test_a_jump_is_a_whole_number_of_ms(by_ms: int) -> None:
    with pytest.raises(ValueError, match=r"ClockJump.by_ms must be a whole number other than 0"):
        ClockJump(0.0, "a", by_ms)


def test_every_node_is_in_utc() -> None:
    assert World(1).node("a").wall_clock.utc_offset_s(1_700_000_000_000) == 0
