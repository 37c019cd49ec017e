"""An exchange by command, with one fault at each of its steps: the pair is one again, and nothing is lost."""

from __future__ import annotations

import pytest

from sim_net import On
from tests.simulation.exchange_faults import FAULTS, NEW_STEPS, OLD_STEPS, Incident, run_faulty
from tests.worlds.exchange_runs import NEW, OLD, run_seed

STEPS = [On(f"broker.exchange.{step}", OLD) for step in OLD_STEPS]
STEPS += [On(f"broker.exchange_partner.{step}", NEW) for step in NEW_STEPS]
#: Longer than each time-out of a request, and than the limit.
LENGTH_S = 12.0
#: Seeds of runs that were drawn.
DRAWN = range(3, 5)


#: In a sample: puts are under way during an exchange all the same, and a run takes a third of the time.
PUTS_SELDOM_S = 0.05


def check(what: str, on: On, at_s: float, seed: int, put_every_s: float | None = None) -> None:
    run = run_faulty(seed, (Incident(what, on, at_s, LENGTH_S),), put_every_s=put_every_s)
    assert run.found == {}
    assert [event for event in run.recorder.events if event.kind == "fault.begin"], "the fault waited in vain"


#: A few of the next test's: one for each fault, at another step each, from the first to the last.
SAMPLE = [(what, STEPS[number * (len(STEPS) - 1) // (len(FAULTS) - 1)]) for number, what in enumerate(FAULTS)]


@pytest.mark.parametrize(("what", "on"), SAMPLE, ids=lambda value: getattr(value, "kind", value))
def test_a_fault_in_an_exchange(what: str, on: On) -> None:
    check(what, on, 0.0, 1, PUTS_SELDOM_S)


@pytest.mark.long
@pytest.mark.parametrize("what", FAULTS)
@pytest.mark.parametrize("on", STEPS, ids=lambda on: on.kind)
def test_each_fault_at_each_step_of_an_exchange(what: str, on: On) -> None:
    """Just then, or a little later: about when the request has come to the other."""
    number = STEPS.index(on) + list(FAULTS).index(what)
    check(what, on, (0.0, 0.01)[number % 2], number)


@pytest.mark.parametrize("seed", range(3))
def test_an_exchange_by_command_loses_nothing(seed: int) -> None:
    assert not run_seed("command", seed)


@pytest.mark.parametrize("seed", DRAWN)
def test_a_drawn_exchange_ends_well(seed: int) -> None:
    assert run_faulty(seed).found == {}
