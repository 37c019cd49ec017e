"""What each extra of the wheel promises: which modules can be imported once it is installed, and no other.

The tables below are the promise. `tests/architecture/test_extras.py` holds the sources to it, by reading them;
`test_wheel.py` installs the wheel and imports them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]
PACKAGES = ("rmq_actors", "sim_net")

#: The extras that a module, or each module of a package, needs; the longest name counts. All others need none.
NEEDS: Mapping[str, tuple[str, ...]] = {
    "rmq_actors.analysis": ("spark",),
    "rmq_actors.analysis.demo_facts": (),
    "rmq_actors.broker.metrics_server": ("server",),
    "rmq_actors.broker.sql92": ("server",),
    "rmq_actors.cli": ("cli",),
    "rmq_actors.cli.demo_steps": ("cli", "spark"),
    "rmq_actors.remoting.address_server": ("server",),
    "rmq_actors.broker.processors.plain_access": ("server",),
    "rmq_actors.remoting.plain_acl_edits": ("server",),
    "rmq_actors.remoting.plain_acl_file": ("server",),
    "rmq_actors.tracing.earlier_traces": ("trace",),
    "rmq_actors.tracing.manifest": ("trace",),
    "rmq_actors.tracing.read_traces": ("trace",),
    "rmq_actors.tracing.spool": ("trace",),
    "rmq_actors.testing.pytest_plugin": ("testing",),
    "rmq_actors.testing.strategies": ("testing",),
    "sim_net.faults.strategies": ("testing",),
}

#: Modules that import more within a function, and which extra that takes: what is said where the extra is missing is
#: tested in `tests/unit/test_missing_extras.py`.
LATE_NEEDS: Mapping[str, tuple[str, ...]] = {
    "rmq_actors.broker.broker_remoting": ("server",),
    "rmq_actors.broker.processors.admin": ("server",),
    "rmq_actors.broker.subscription": ("server",),
    "rmq_actors.cli.chaos_runs": ("trace",),
    "rmq_actors.cli.demo": ("spark",),
    "rmq_actors.cli.out_directory": ("trace",),
    "rmq_actors.cli.trace": ("spark", "trace"),
    "rmq_actors.cli.trace_export": ("trace",),
    "rmq_actors.testing.campaign": ("trace",),
}

#: What a distribution is imported as, where that is another name.
_IMPORTED_AS = {"PyYAML": "yaml", "pytest-trio": "pytest_trio"}


def modules() -> dict[str, Path]:
    """Every module of the wheel."""
    files = {
        ".".join(path.relative_to(PROJECT).with_suffix("").parts): path
        for package in PACKAGES
        for path in (PROJECT / package).rglob("*.py")
    }
    return {name.removesuffix(".__init__"): path for name, path in files.items()}


def needs_of(module: str) -> tuple[str, ...]:
    """The extras that a module needs to be imported."""
    names = [name for name in NEEDS if module == name or module.startswith(f"{name}.")]
    return NEEDS[max(names, key=len)] if names else ()


def promised(extras: Iterable[str]) -> list[str]:
    """The modules that can be imported when these extras are there."""
    installed = set(extras)
    if "spark" in installed:
        installed.add("trace")  # it brings the same
    return sorted(module for module in modules() if installed.issuperset(needs_of(module)))


def project() -> dict[str, Any]:
    """The `[project]` of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    return table


def third_party(extras: Iterable[str]) -> set[str]:
    """The packages that the core and these extras bring, as they are imported."""
    requirements: list[str] = list(project()["dependencies"])
    for extra in extras:
        requirements += project()["optional-dependencies"][extra]
    names = [re.split(r"[^\w.-]", requirement)[0] for requirement in requirements]
    return {_IMPORTED_AS.get(name, name) for name in names}
