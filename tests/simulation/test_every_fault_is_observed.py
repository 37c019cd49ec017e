"""Each kind of fault happens, and the program that it happens to notices: a fault that nobody sees tests nothing.

The kinds come from the registry: a new one fails here until the program can tell that it was there.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
import trio

import sim_net
from rmq_actors.tracing.events import OWN_KINDS
from sim_net import JournalEntry, Schedule, World
from sim_net.faults.faults import FAULT_TYPES
from sim_net.faults.sampling import sample_fault
from tests.worlds.replicated_log import STEADY, Program, Symptoms

PAGE = Path(__file__).parents[2] / "docs" / "sim-net.md"
NODES = ("primary", "backup", "client")
#: Those that most is going on between.
BUSY = ("client", "primary")
SEEDS = range(2)
FAULTS_A_RUN = 5

#: What the program complains of when it meets a fault of the kind.
SYMPTOMS = {
    "Delay": "slow ping",
    "Partition": "ETIMEDOUT",
    "Hold": "late datagram",
    "Loss": "missed datagram",
    "Bandwidth": "slow bulk",
    "Duplicate": "second datagram",
    "Reorder": "overtaken datagram",
    "Stall": "slow send",
    "Reset": "ECONNRESET",
    "ShortIO": "short send",
    "Kill": "unclean start",
    "PowerLoss": "lost hint",
    "Pause": "step gap",
    "ClockJump": "wall clock step",
    "ClockDrift": "wall clock rate",
    "DiskError": "EIO",
    "DiskFull": "ENOSPC",
    "DiskSlow": "slow sync",
    "DiskStuck": "stuck sync",
    "BitRot": "corrupt record",
    "MisdirectedWrite": "corrupt record",
}


@attrs.frozen
class Seen:
    """One run: how often each kind of journal entry came, what the program said, and the digest of everything."""

    entries: dict[str, int]
    symptoms: dict[str, int]
    digest: str

    @property
    def begun(self) -> int:
        return self.entries.get("fault.begin", 0)


def run(schedule: Schedule, seed: int, until_s: float) -> Seen:
    symptoms = Symptoms()
    program = Program(symptoms)
    entries: dict[str, int] = {}

    def count(entry: JournalEntry) -> None:
        entries[entry.kind] = entries.get(entry.kind, 0) + 1

    async def main(world: World) -> None:
        for name in NODES:
            world.node(name)
        world.start_schedule(schedule)
        for name in NODES:
            world.nodes[name].boot(program.main(name))
            await trio.sleep(0.1)
        await trio.sleep_until(until_s)

    world = World(seed, STEADY)
    world.journal.subscribe(count)
    world.run(main)
    return Seen(entries, symptoms.counts, world.digest)


def run_of(kind: str, seed: int) -> Seen:
    schedule = schedule_of(kind, seed)
    return run(schedule, seed, schedule.ends_s + 5)


def schedule_of(kind: str, seed: int) -> Schedule:
    choose = random.Random(f"{kind}/{seed}").choice
    return Schedule(sample_fault(choose, BUSY, kinds=[kind]) for _ in range(FAULTS_A_RUN))


@pytest.fixture(scope="module")
def runs() -> dict[str, list[Seen]]:
    return {kind: [run_of(kind, seed) for seed in SEEDS] for kind in FAULT_TYPES}


def test_every_kind_has_a_symptom_and_every_symptom_a_kind() -> None:
    assert set(SYMPTOMS) == set(FAULT_TYPES)


@pytest.mark.parametrize("seed", SEEDS)
def test_without_faults_there_are_no_symptoms(seed: int) -> None:
    assert run(Schedule(), seed, 40.0).symptoms == {}


@pytest.mark.parametrize("kind", FAULT_TYPES)
def test_every_kind_fires_and_is_observed(kind: str, runs: dict[str, list[Seen]]) -> None:
    assert [seen.begun for seen in runs[kind]] == [FAULTS_A_RUN] * len(SEEDS)
    symptom = SYMPTOMS[kind]
    assert any(symptom in seen.symptoms for seen in runs[kind]), [seen.symptoms for seen in runs[kind]]


def test_every_kind_of_journal_entry_comes(runs: dict[str, list[Seen]]) -> None:
    """But for three, which have tests of their own."""
    simulated = {name for name, kind in OWN_KINDS.items() if kind.emitter.startswith("sim_net")}
    came = {kind for seens in runs.values() for seen in seens for kind in seen.entries}
    assert simulated - came <= {"node.late_error", "net.dropped", "storage.torn"}
    assert came <= simulated


def test_no_kind_makes_a_run_depend_on_the_process(runs: dict[str, list[Seen]]) -> None:
    program = """
from tests.simulation.test_every_fault_is_observed import FAULT_TYPES, run_of
for kind in FAULT_TYPES:
    print(kind, run_of(kind, 0).digest)
"""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "4242"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    assert done.stdout.splitlines() == [f"{kind} {seens[0].digest}" for kind, seens in runs.items()]


@pytest.mark.parametrize("kind", FAULT_TYPES)
def test_every_kind_is_public_and_documented(kind: str) -> None:
    assert getattr(sim_net, kind) is FAULT_TYPES[kind]
    assert kind in sim_net.__all__
    fields = [field.name for field in attrs.fields(FAULT_TYPES[kind]) if field.name != "on"]
    assert f"`{kind}({', '.join(fields)})`" in PAGE.read_text()


def test_the_table(runs: dict[str, list[Seen]], capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["", f"{'fault':<18}{'fired':>6}{'observed':>10}  as"]
    for kind, seens in runs.items():
        symptom = SYMPTOMS[kind]
        observed = sum(seen.symptoms.get(symptom, 0) for seen in seens)
        lines.append(f"{kind:<18}{sum(seen.begun for seen in seens):>6}{observed:>10}  {symptom}")
    with capsys.disabled():
        sys.stdout.write("\n".join(lines) + "\n")
