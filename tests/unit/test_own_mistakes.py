"""Mistakes in a scenario of one's own: each is told in one line, with what is wrong and where."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, cast

import attrs
import pytest
from typer.testing import CliRunner

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.cli.main import app
from rmq_actors.testing import (
    ClusterView,
    FaultFamilies,
    Invariant,
    Operator,
    Scenario,
    SimCluster,
    Topology,
    Workload,
    choices,
    random_case,
    run_case,
)
from rmq_actors.testing.bug_hunt import signature
from rmq_actors.testing.campaign import Campaign, run_campaign
from rmq_actors.testing.invariants.invariant import Limit
from rmq_actors.testing.mistakes import own_place, told
from rmq_actors.testing.scenario_checks import BadScenario
from rmq_actors.testing.sim_brokers import Beside
from rmq_actors.tracing.event import Event
from rmq_actors.tracing.events.store import PutEnd
from sim_net import Node

HERE = r"\(test_own_mistakes\.py, line \d+\)"
PAIR = Scenario(
    "pair",
    "two brokers, and nothing happens to them",
    Topology("left", ("right",)),
    choices(puts=(2,)),
    FaultFamilies(fewest=0, most=0, all_slaves=0.0),
    invariants=(),
)


class Fine(Invariant[PutEnd]):
    """Nothing is wrong."""

    name = "fine"
    kinds = (PutEnd,)

    def check(self, event: PutEnd, view: ClusterView) -> str | None:
        return None


class TextForAKind(Fine):
    """A kind's name is not a class."""

    kinds = cast("tuple[type[PutEnd]]", ("put.end",))


class CommaForgotten(Fine):
    """One class is not a sequence."""

    kinds = cast("tuple[type[PutEnd]]", PutEnd)


class NoKindAtAll(Fine):
    """`Event` is what kinds derive from."""

    kinds = cast("tuple[type[PutEnd]]", (PutEnd, Event))


class KindsAreANumber(Fine):
    """It has nothing to look through."""

    kinds = cast("tuple[type[PutEnd]]", 5)


class ChecksNothing(Invariant[PutEnd]):
    """Nobody calls its check."""

    name = "checks_nothing"

    def check(self, event: PutEnd, view: ClusterView) -> str | None:
        return "never said"


class OnlyAtTheEnd(Invariant[Event]):
    """It needs no kinds."""

    name = "only_at_the_end"

    def at_end(self, view: ClusterView) -> str | None:
        return "it is over"


class OwnLimit(Limit[PutEnd]):
    """It is met under its name."""

    name = "own_limit"
    kinds = (PutEnd,)


class NeedsALimit(Fine):
    """Nobody gives it one."""

    def __init__(self, limit: int) -> None:
        self.limit = limit


class Unnamed(Invariant[PutEnd]):
    """It has no name."""


class OddlyNamed(Fine):
    """Its name is two lines."""

    name = "a\nb"


class NeedsMore(Operator):
    """Nobody gives it that."""

    def __init__(self, brokers: object, clients: object, more: object) -> None:
        self.more = more


#: Invariants whose kinds are wrong, and what is said about them.
OF_KINDS: dict[type[Invariant[Any]], str] = {
    TextForAKind: r".*\.TextForAKind\.kinds must be classes of events, and 'put\.end' is not one",
    CommaForgotten: r".*\.CommaForgotten\.kinds must be classes of events, as in \(PutEnd,\), not one class",
    NoKindAtAll: r".*\.NoKindAtAll\.kinds must be classes of events, and <class '.*\.Event'> is not one",
    KindsAreANumber: r".*\.KindsAreANumber\.kinds must be classes of events, not 5",
    ChecksNothing: r".*\.ChecksNothing has a check, and no kinds: it would see no event",
}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("name", "", r"Scenario\.name: '': 1 to 100 letters, "),
        ("name", "a/b", r"Scenario\.name: 'a/b': 1 to 100 letters, "),
        ("name", "..", r"Scenario\.name: '\.\.': 1 to 100 letters, "),
        ("name", "a\nb", r"Scenario\.name: 'a\\nb': 1 to 100 letters, "),
        ("name", "a\0b", r"Scenario\.name: 'a\\x00b': 1 to 100 letters, "),
        ("name", "a\udc80", r"Scenario\.name: 'a\\udc80': 1 to 100 letters, "),
        ("name", "a" * 10_000, r"Scenario\.name: 'a{199}: 1 to 100 letters, "),
        ("name", 5, r"Scenario\.name: 5: 1 to 100 letters, "),
        ("description", "\udc80", r"Scenario\.description must be text on one line, not '\\udc80'"),
        ("description", None, r"Scenario\.description must be text on one line, not None"),
        ("workload", {"puts": 5}, r"Scenario\.workload must be a function, not \{'puts': 5\}"),
        ("operator", Fine, r"Scenario\.operator must be a class derived from Operator, not .*\.Fine"),
        ("operator", None, r"Scenario\.operator must be a class derived from Operator, not None"),
        ("operator", NeedsMore, r"Scenario\.operator: .*\.NeedsMore: missing a required argument: 'more'; each run "),
        ("topology", {"a": None}, r"Scenario\.topology must be a Topology, not \{'a': None\}$"),
        ("faults", None, r"Scenario\.faults must be a FaultFamilies, not None$"),
        ("converges_in_s", "30", r"Scenario\.converges_in_s must be a finite number of at least 0, not '30'$"),
        ("observable", ("a", "\udc80"), r"Scenario\.observable must be texts, each on one line, not "),
        ("invariants", Fine, r"Scenario\.invariants must be classes derived from Invariant, not <class "),
        (
            "invariants",
            (Fine, int),
            r"Scenario\.invariants\[1\] must be a class derived from Invariant, not builtins\.int",
        ),
        (
            "invariants",
            (Fine(),),
            r"Scenario\.invariants\[0\] must be a class .*, not a .*\.Fine: give the class, each run ",
        ),
        (
            "invariants",
            (NeedsALimit,),
            r"Scenario\.invariants\[0\]: .*test_own_mistakes\.NeedsALimit: missing a required argument: 'limit'; each ",
        ),
        ("invariants", (Unnamed,), r"Scenario\.invariants\[0\]: .*\.Unnamed\.name must be text on one line, not None"),
        (
            "invariants",
            (OddlyNamed,),
            r"Scenario\.invariants\[0\]: .*\.OddlyNamed\.name must be text on .*, not 'a\\nb'",
        ),
        *(("invariants", (Fine, kind), rf"Scenario\.invariants\[1\]: {told}$") for kind, told in OF_KINDS.items()),
        ("observable", ("kill", "nope"), r"Scenario\.observable: a run cannot meet 'nope'; it may meet answ"),
        ("observable", ("own_limit",), r"Scenario\.observable: a run cannot meet 'own_limit'; it may meet "),
    ],
    ids=lambda value: str(value)[:20].encode("unicode_escape").decode() if isinstance(value, str) else None,
)
def test_what_no_scenario_can_have_is_refused_where_it_is_written(field: str, value: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        attrs.evolve(PAIR, **cast("dict[str, Any]", {field: value}))


@pytest.mark.parametrize("name", ["l\udc80", "a b", "a.", "1"], ids=ascii)
def test_a_broker_whose_name_nobody_could_look_up_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="node"):
        Topology("left", (name,))


def test_a_cluster_in_a_simulated_world_names_the_invariant_that_it_cannot_make() -> None:
    with pytest.raises(TypeError, match=r"invariants\[0\]: .*\.NeedsALimit: missing a required argument: 'limit'"):
        SimCluster(invariants=[cast("type[Invariant[Any]]", NeedsALimit)])


@pytest.mark.parametrize("invariant", OF_KINDS, ids=lambda each: each.__name__)
def test_a_cluster_in_a_simulated_world_names_the_invariant_whose_kinds_are_wrong(
    invariant: type[Invariant[Any]],
) -> None:
    with pytest.raises(TypeError, match=rf"^SimCluster\.invariants\[0\]: {OF_KINDS[invariant]}$"):
        SimCluster(invariants=[invariant])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"seed": "x"}, "seed must be a whole number, not 'x'"),
        ({"seed": 1.5}, r"seed must be a whole number, not 1\.5"),
        ({"seed": True}, "seed must be a whole number, not True"),
        ({"follows": None}, "follows must be a mapping of brokers' names, not None"),
        ({"follows": ("a", "b")}, r"follows must be a mapping of brokers' names, not \('a', 'b'\)"),
        ({"follows": {"a": None, "b": 1}}, "follows must be a mapping of brokers' names, not .*"),
        ({"store": None}, "store must be a MessageStoreConfig, not None"),
        ({"ha": {}}, r"ha must be a HaConfig, not \{\}"),
        ({"name_server": "namesrv"}, "name_server must be a bool, not 'namesrv'"),
        ({"schedule": None}, "schedule must be a Schedule, not None"),
        ({"schedule": ()}, r"schedule must be a Schedule, not \(\)"),
        ({"invariants": Fine}, "invariants must be classes derived from Invariant, not <class '.*Fine'>"),
        ({"invariants": "fine"}, "invariants must be classes derived from Invariant, not 'fine'"),
        ({"invariants": 0}, "invariants must be classes derived from Invariant, not 0"),
        ({"converges_s": -1}, "converges_s must be a finite number of at least 0, not -1"),
        ({"converges_s": float("nan")}, "converges_s must be a finite number of at least 0, not nan"),
        ({"make_machines": 5}, "make_machines must be a function, not 5"),
        ({"world_config": None}, "world_config must be a WorldConfig, not None"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value),
)
def test_a_cluster_in_a_simulated_world_names_the_argument_that_cannot_be(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^SimCluster\.{told}$"):
        SimCluster(**arguments)


def test_a_cluster_in_a_simulated_world_runs_only_functions() -> None:
    async def body(cluster: SimCluster) -> int:
        return len(cluster.running)

    cluster = SimCluster()
    with pytest.raises(TypeError, match=r"^SimCluster\.run: body must be a function, not None$"):
        cluster.run(cast("Callable[[SimCluster], Awaitable[None]]", None))
    assert cluster.run(body) == len(("a", "b"))


def test_an_invariant_of_the_end_alone_needs_no_kinds() -> None:
    scenario = attrs.evolve(PAIR, invariants=(OnlyAtTheEnd,))
    assert run_case(random_case(1, scenario=scenario), scenario).failure.startswith("only_at_the_end: it is over (")


def test_a_limit_of_ones_own_may_be_observable() -> None:
    assert attrs.evolve(PAIR, invariants=(OwnLimit,), observable=("own_limit", "kill")).observable[0] == "own_limit"


class ExitsInItsMaking(Operator):
    """At once."""

    def __attrs_post_init__(self) -> None:
        sys.exit(0)


class Exits(Operator):
    """Under load."""

    async def act(self) -> None:
        sys.exit()


class ExitsBeside(Operator):
    """At a broker."""

    def beside(self, name: str) -> Iterator[Beside]:
        yield self._exit

    async def _exit(self, broker: BrokerController, node: Node) -> None:
        sys.exit(0)


class WaitsForNothing(Operator):
    """It is not async."""

    def act(self) -> None:  # type: ignore[override]
        pass


class AsksForNobody(Operator):
    """The error is raised in this project."""

    async def act(self) -> None:
        self.brokers.broker("no\udc80\nbody")


class FailsInItsMaking(Fine):
    """It could be made."""

    def __init__(self) -> None:
        raise KeyError("limit")


class ExitsAtAnEvent(Fine):
    """At the first."""

    def check(self, event: PutEnd, view: ClusterView) -> str | None:
        sys.exit(0)


class ExitsAtTheEnd(Fine):
    """When all is over."""

    def at_end(self, view: ClusterView) -> str | None:
        sys.exit("enough")


class Surrogates(Fine):
    """What no file can hold, and no terminal should."""

    def check(self, event: PutEnd, view: ClusterView) -> str | None:
        return "bad \udc80\n\x1b[31m"


FAILED = "the operator, or the scenario, failed: "


@pytest.mark.parametrize(
    ("part", "outcome", "failure", "alike"),
    [
        (Exits, "crash", f"{FAILED}SystemExit {HERE}", "crash by SystemExit"),
        (
            WaitsForNothing,
            "crash",
            rf"{FAILED}TypeError: WaitsForNothing\.act must be an async function: it returns None \(operators.*\)",
            "crash by TypeError",
        ),
        (ExitsInItsMaking, "crash", f"{FAILED}SystemExit: 0 {HERE}", "crash by SystemExit"),
        (ExitsBeside, "crash", f"node .* exited at .*: exit code 0 {HERE}", "crash by exit code 0"),
        (
            AsksForNobody,
            "crash",
            rf"{FAILED}ValueError: no broker 'no\\udc80\\nbody': .* {HERE}",
            "crash by ValueError",
        ),
        (FailsInItsMaking, "crash", f"{FAILED}KeyError: 'limit' {HERE}", "crash by KeyError"),
        (ExitsAtAnEvent, "invariant", rf"fine: it raises SystemExit: 0 {HERE} \(at event \d+\)", "fine"),
        (ExitsAtTheEnd, "invariant", rf"fine: it raises SystemExit: enough {HERE} \(at event \d+\)", "fine"),
        (Surrogates, "invariant", r"fine: bad \\udc80\\n\\x1b\[31m \(at event \d+\)", "fine"),
    ],
)
def test_a_mistake_within_a_run_is_a_run_that_failed(
    part: type[Operator | Invariant[Any]], outcome: str, failure: str, alike: str
) -> None:
    """One that can be traced: every text is one that a file can hold."""
    given: dict[str, Any] = {"operator": part} if issubclass(part, Operator) else {"invariants": (part,)}
    scenario = attrs.evolve(PAIR, **given)
    result = run_case(random_case(1, scenario=scenario), scenario)
    assert result.outcome == outcome
    assert re.fullmatch(failure, result.failure)
    assert signature(result.outcome, result.failure) == alike
    assert [event.kind for event in (result.events[0], result.events[-1])] == ["run.start", "run.end"]
    assert all(str(event.attrs).isprintable() for event in result.events)


def _exits(rng: Random, seed: int) -> Workload:
    sys.exit(0)


def _draws_nothing(rng: Random, seed: int) -> Workload:
    return cast("Workload", None)


@pytest.mark.parametrize(
    ("workload", "why"),
    [
        (_exits, f"its workload raises SystemExit: 0 {HERE}"),
        (_draws_nothing, "its workload returns None, not a Workload"),
        (choices(puts=(1,), in_sync_replicas=(3,)), r"parameters\['in_sync_replicas'\] is 3, there are 2 brokers"),
    ],
)
def test_a_workload_that_draws_no_case_is_named(workload: Callable[[Random, int], Workload], why: str) -> None:
    with pytest.raises(BadScenario, match=f"^scenario pair, seed 7: {why}$"):
        random_case(7, scenario=attrs.evolve(PAIR, workload=workload))


def _local() -> type[Operator]:
    class Local(Operator):
        pass

    return Local


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (
            {"workload": lambda rng, seed: attrs.evolve(PAIR.workload(rng, seed), puts=3)},
            rf"Scenario\.workload is .*\.<lambda> {HERE}",
        ),
        ({"operator": _local()}, rf"Scenario\.operator is .*\._local\.<locals>\.Local {HERE}"),
    ],
    ids=["lambda", "class in a function"],
)
def test_what_has_no_name_in_a_module_cannot_go_to_several_processes(fields: dict[str, Any], why: str) -> None:
    scenario = attrs.evolve(PAIR, **fields)
    with pytest.raises(BadScenario, match=f"^scenario pair cannot go to several processes: {why}\\. Define it in a "):
        run_campaign(Campaign(range(2), scenario, jobs=2), lambda _: None)
    assert [run.outcome for run in run_campaign(Campaign(range(2), scenario), lambda _: None)] == ["passed"] * 2


def test_the_place_of_an_error_is_the_last_one_in_ones_own_code() -> None:
    with pytest.raises(re.error) as raised:
        re.compile("(")
    assert re.fullmatch(rf"error: .* {HERE}", told(raised.value))
    assert own_place(ExceptionGroup("", [ValueError()])) == ""
    assert told(ExceptionGroup("", [ValueError()])) == "ValueError"


class Unspeakable(Exception):
    """It has a mistake of its own."""

    def __str__(self) -> str:
        raise ValueError


def test_an_error_without_a_text_is_told_all_the_same() -> None:
    assert told(Unspeakable()) == "Unspeakable: it has no text"


MODULE = """
import os, sys
from rmq_actors.testing import FaultFamilies, Invariant, Operator, Scenario, Topology, choices

class NeedsALimit(Invariant):
    name = "limit"
    def __init__(self, limit): pass

class Interrupts(Operator):
    async def act(self):
        raise KeyboardInterrupt

class EndsItsProcess(Operator):
    async def act(self):
        os._exit(0)

def exits(rng, seed):
    sys.exit(0)

def pair(**fields):
    return Scenario(**{"name": "pair", "description": "two", "topology": Topology("left", ["right"]),
                       "workload": choices(puts=(5,)), **fields})

def __getattr__(name):
    if name == "EXITS":
        sys.exit(0)
    if name == "FAULTS":
        FaultFamilies(fewest=1.5, most=2.5)
    return pair(**{
        "LIMIT": {"invariants": (NeedsALimit,)},
        "NAME": {"name": "a/b"},
        "INTERRUPTS": {"operator": Interrupts},
        "ENDS": {"operator": EndsItsProcess},
        "WORKLOAD": {"workload": exits},
        "LAMBDA": {"workload": lambda rng, seed: None},
    }[name])
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "mistakes_of_a_test.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield "mistakes_of_a_test"
    sys.modules.pop("mistakes_of_a_test", None)


_IN_MODULE = r"\(mistakes_of_a_test\.py, line \d+\)"


@pytest.mark.parametrize(
    ("name", "arguments", "code", "told"),
    [
        ("LIMIT", (), 2, rf"cannot be imported: TypeError: .*NeedsALimit: missing .*'limit'.* {_IN_MODULE}"),
        ("NAME", (), 2, rf"cannot be imported: ValueError: Scenario\.name: 'a/b': .* {_IN_MODULE}"),
        ("FAULTS", (), 2, rf"cannot be imported: ValueError: FaultFamilies\.fewest must be .*, not 1\.5 {_IN_MODULE}"),
        ("FAULTS", ("--jobs", "2"), 2, rf"cannot be imported: ValueError: FaultFamilies\.fewest must .* {_IN_MODULE}"),
        ("EXITS", (), 2, rf"cannot be imported: SystemExit: 0 {_IN_MODULE}"),
        ("\udc80", (), 2, rf"cannot be imported: KeyError: '\\udc80' {_IN_MODULE}"),
        ("WORKLOAD", (), 2, f"scenario pair, seed 0: its workload raises SystemExit: 0 {_IN_MODULE}"),
        (
            "LAMBDA",
            ("--jobs", "2"),
            2,
            rf"scenario pair cannot go to .* is mistakes_of_a_test.*lambda> {_IN_MODULE}\. .*",
        ),
    ],
)
def test_the_command_tells_a_mistake_in_one_line(
    module: str, name: str, arguments: Sequence[str], code: int, told: str
) -> None:
    assert_one_line(module, name, arguments, code, told)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("INTERRUPTS", 130, "interrupted"),
        ("ENDS", 3, "a worker ended with exit code 0 before its runs were done"),
        ("WORKLOAD", 2, f"scenario pair, seed [01]: its workload raises SystemExit: 0 {_IN_MODULE}"),
    ],
)
def test_what_ends_a_worker_is_told_by_the_command(
    module: str, name: str, code: int, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert_one_line(module, name, ("--jobs", "2"), code, told)
    assert capfd.readouterr() == ("", "")  # the workers write to the terminal itself


def assert_one_line(module: str, name: str, arguments: Sequence[str], code: int, told: str) -> None:
    ran = CliRunner().invoke(app, ["chaos", "run", "--scenario", f"{module}:{name}", "--seeds", "0:2", *arguments])
    (line,) = ran.stderr.splitlines()
    assert (ran.exit_code, ran.stdout) == (code, "")
    assert re.fullmatch(rf"rmq-actors( chaos| chaos run)?: (--scenario \S+ )?{told}", line)
