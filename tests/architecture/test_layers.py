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


def test_the_contracts_hold(project_copy: ProjectCopy) -> None:
    outcome = project_copy.lint_imports()
    assert broken_contracts(outcome.output) == [], outcome.output
    assert outcome.exit_code == 0


@pytest.mark.parametrize("breach", BREACHES, ids=lambda breach: f"{breach.module}: {breach.statement or 'no layer'}")
def test_a_breach_is_noticed(project_copy: ProjectCopy, breach: Breach) -> None:
    project_copy.append(breach.module, f"{breach.statement}\n")
    outcome = project_copy.lint_imports()
    assert breach.contract in broken_contracts(outcome.output), outcome.output
    assert breach.name in outcome.output
    assert outcome.exit_code == 1


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("sim_net/kernel/kernel.py", "import sim_net.world"),
        ("sim_net/kernel/entropy.py", "import sim_net.net.network"),
        ("sim_net/leftovers.py", ""),
    ],
)
def test_a_breach_inside_sim_net_is_noticed(project_copy: ProjectCopy, module: str, statement: str) -> None:
    assert broken_contracts(project_copy.lint_imports(SIM_NET_CONTRACTS).output) == []
    project_copy.append(module, f"{statement}\n")
    outcome = project_copy.lint_imports(SIM_NET_CONTRACTS)
    assert broken_contracts(outcome.output) == ["layers of sim_net"]
    assert outcome.exit_code == 1


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("rmq_actors/real_io/breach.py", "import time"),
        ("rmq_actors/embedding/breach.py", "import asyncio"),
        ("rmq_actors/analysis/jobs/breach.py", "import pyspark.sql, pyarrow"),
        ("rmq_actors/testing/breach.py", "import hypothesis, sim_net"),
        ("rmq_actors/cli/breach.py", "import time, rich, rmq_actors.real_io, rmq_actors.analysis, rmq_actors.testing"),
    ],
)
def test_what_the_design_allows_is_allowed(project_copy: ProjectCopy, module: str, statement: str) -> None:
    project_copy.append(module, f"{statement}\n")
    output = project_copy.lint_imports().output
    assert "kept" in output
    assert dotted(module) not in output
