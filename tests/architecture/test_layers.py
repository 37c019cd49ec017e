"""The import contracts hold, and each of them notices a breach. What they say: pyproject.toml and
importlinter-sim-net.toml."""

from __future__ import annotations

import re

import attrs
import pytest

from tests.architecture.project_copy import SIM_NET_CONTRACTS, ProjectCopy


@attrs.frozen
class Breach:
    """An import that a contract must refuse."""

    module: str
    statement: str
    contract: str

    @property
    def name(self) -> str:
        """The module, or the package, as import-linter calls it."""
        return dotted(self.module)


def dotted(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


PURE = "wire, protocols and settings are pure"
ROOMS = "rooms of the store"
LAYERS = "layers of rmq_actors"
ALONE = "actors can be read and used alone"
TWO_ROOMS = "actors with messages and services are two rooms"
SERVICES = "no clocks, randomness, sockets or threads but Trio's and the ports'"
BREACHES = [
    Breach("rmq_actors/wire/breach.py", "import rmq_actors.store", LAYERS),
    Breach("rmq_actors/protocols/breach.py", "import rmq_actors.actors", PURE),
    Breach("rmq_actors/actors/breach.py", "import rmq_actors.tracing", LAYERS),
    Breach("rmq_actors/actors/breach.py", "import rmq_actors.ports.entropy", ALONE),
    Breach("rmq_actors/actors/services/breach.py", "import rmq_actors.actors.messages.ref", TWO_ROOMS),
    Breach("rmq_actors/actors/messages/breach.py", "import rmq_actors.actors.services.timer", TWO_ROOMS),
    Breach("rmq_actors/ha/breach.py", "import rmq_actors.broker", LAYERS),
    Breach("rmq_actors/embedding/breach.py", "import rmq_actors.testing", LAYERS),
    Breach("rmq_actors/analysis/breach.py", "import rmq_actors.broker", LAYERS),
    Breach("rmq_actors/remoting/__init__.py", "import rmq_actors.ha", LAYERS),
    Breach("rmq_actors/assertions.py", "import rmq_actors.ports", LAYERS),
    Breach("rmq_actors/leftovers/__init__.py", "", LAYERS),
    Breach("rmq_actors/store/log/breach.py", "import rmq_actors.store.dispatch", ROOMS),
    Breach("rmq_actors/store/leftovers/__init__.py", "", ROOMS),
    Breach("sim_net/breach.py", "import rmq_actors.ports", "sim_net knows nothing of rmq_actors"),
    Breach("rmq_actors/broker/breach.py", "import sim_net", "only tests and commands enter a simulated world"),
    Breach(
        "rmq_actors/store/log/breach.py",
        "import rmq_actors.real_io",
        "the real disk and clocks come in at the composition roots alone",
    ),
    Breach("rmq_actors/wire/breach.py", "import os", PURE),
    Breach("rmq_actors/protocols/breach.py", "import trio", PURE),
    Breach("rmq_actors/settings/breach.py", "import os", PURE),
    Breach("rmq_actors/ha/breach.py", "import time", SERVICES),
    Breach("rmq_actors/store/log/breach.py", "from concurrent.futures import ThreadPoolExecutor", SERVICES),
    Breach("rmq_actors/actors/breach.py", "import asyncio", SERVICES),
    Breach("sim_net/breach.py", "import random", SERVICES),
    Breach("rmq_actors/cli/breach.py", "import pyspark.sql", "pyspark only in analysis"),
    Breach("rmq_actors/tracing/breach.py", "import pyarrow.parquet", "pyarrow only where traces meet the disk"),
    Breach("rmq_actors/embedding/breach.py", "import hypothesis", "test tools only in testing"),
    Breach("rmq_actors/broker/breach.py", "import rich.console", "terminal libraries only in commands"),
]


def broken_contracts(output: str) -> list[str]:
    return re.findall(r"^(.+) BROKEN\b", output, re.MULTILINE)


def said_of(contract: str, output: str) -> str:
    """What import-linter says of a broken contract: from its underlined name to the next one."""
    _, _, after = output.partition(f"\n{contract}\n{'-' * len(contract)}\n")
    return re.split(r"\n.+\n-+\n", after)[0]


@pytest.fixture(scope="module")
def output_with_all_breaches(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One run of the linter for all of them: each contract then tells of its own."""
    copy = ProjectCopy.make(tmp_path_factory.mktemp("breaches"))
    for breach in BREACHES:
        copy.append(breach.module, f"{breach.statement}\n")
    outcome = copy.lint_imports()
    assert outcome.exit_code == 1
    return re.sub(r"^- +", "- ", outcome.output, flags=re.MULTILINE)


def test_the_contracts_hold(project_copy: ProjectCopy) -> None:
    for contracts in ("pyproject.toml", SIM_NET_CONTRACTS):
        outcome = project_copy.lint_imports(contracts)
        assert broken_contracts(outcome.output) == [], outcome.output
        assert outcome.exit_code == 0


@pytest.mark.parametrize("breach", BREACHES, ids=lambda breach: f"{breach.module}: {breach.statement or 'no layer'}")
def test_a_breach_is_noticed(output_with_all_breaches: str, breach: Breach) -> None:
    assert breach.contract in broken_contracts(output_with_all_breaches), output_with_all_breaches
    said = said_of(breach.contract, output_with_all_breaches)
    imported = breach.statement.split()[1] if breach.statement else ""
    # Packages from outside are named by their first part.
    shown = imported if imported.startswith(("rmq_actors", "sim_net")) else imported.partition(".")[0]
    assert (f"- {breach.name} -> {shown} (" if shown else f"- {breach.name}\n") in said, said


def test_no_breach_is_noticed_that_is_none(output_with_all_breaches: str) -> None:
    """Each import that a contract refuses is one of these, or leads through one."""
    first = set(re.findall(r"^- (\S+) -> ", output_with_all_breaches, re.MULTILINE))
    assert first <= {breach.name for breach in BREACHES if breach.statement}


def test_a_breach_inside_sim_net_is_noticed(project_copy: ProjectCopy) -> None:
    breaches = [
        ("sim_net/kernel/kernel.py", "import sim_net.world"),
        ("sim_net/kernel/entropy.py", "import sim_net.net.network"),
        ("sim_net/leftovers.py", ""),
    ]
    for module, statement in breaches:
        project_copy.append(module, f"{statement}\n")
    outcome = project_copy.lint_imports(SIM_NET_CONTRACTS)
    assert broken_contracts(outcome.output) == ["layers of sim_net"]
    for said in (
        "- sim_net.kernel.kernel -> sim_net.world (",
        "- sim_net.kernel.entropy -> sim_net.net.network (",
        "- sim_net.leftovers\n",
    ):
        assert said in outcome.output, outcome.output
    assert outcome.exit_code == 1


def test_what_the_design_allows_is_allowed(project_copy: ProjectCopy) -> None:
    allowed = [
        ("rmq_actors/real_io/breach.py", "import time"),
        ("rmq_actors/embedding/breach.py", "import asyncio"),
        ("rmq_actors/analysis/jobs/breach.py", "import pyspark.sql, pyarrow"),
        ("rmq_actors/testing/breach.py", "import hypothesis, sim_net"),
        ("rmq_actors/cli/breach.py", "import time, rich, rmq_actors.real_io, rmq_actors.analysis, rmq_actors.testing"),
    ]
    for module, statement in allowed:
        project_copy.append(module, f"{statement}\n")
    output = project_copy.lint_imports().output
    assert "kept" in output
    assert broken_contracts(output) == [], output
