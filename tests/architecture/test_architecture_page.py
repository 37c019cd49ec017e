"""ARCHITECTURE.md names files, classes and layers: each is there, under that name."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.architecture.project_copy import PACKAGES, PROJECT

PAGE = (PROJECT / "ARCHITECTURE.md").read_text()
FENCE = re.compile(r"^```.*?^```\n", re.DOTALL | re.MULTILINE)
QUOTED = sorted(set(re.findall(r"`([^`\n]+)`", FENCE.sub("", PAGE))))
PATHS = [quoted for quoted in QUOTED if re.fullmatch(r"[\w./-]+/[\w.-]*|[\w-]+\.(?:py|toml|md)", quoted)]
#: `SlaveReports.check_silence`, `run_case`, `SYNC_FLUSH`: what Python has by that name; paths and commands are not.
NAMES = [name for name in QUOTED if re.fullmatch(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?", name) and name not in PATHS]
#: Quoted as what they are: a file that a store has, a directory of it, a placeholder, a package that is not there yet.
OTHERS = {"abort", "await", "client", "cut/", "tests/mutants/NAME.toml"}
LINE_CHARACTERS_MAX = 150
CONTRACTS = {
    "rmq_actors": ("pyproject.toml", "layers of rmq_actors"),
    "rmq_actors.store": ("pyproject.toml", "rooms of the store"),
    "sim_net": ("importlinter-sim-net.toml", "layers of sim_net"),
}


def _defined() -> set[str]:
    """The names of modules, classes, functions, attributes and constants of the product."""
    return set(_names_of_sources())


def _names_of_sources() -> Iterator[str]:
    for package in PACKAGES:
        yield package
        for path in (PROJECT / package).rglob("*.py"):
            yield from (path.stem, path.parent.name)
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    yield node.name
                elif isinstance(node, ast.Name):
                    yield node.id
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def _layers(contract: str) -> list[str]:
    file, name = CONTRACTS[contract]
    contracts: list[dict[str, Any]] = tomllib.loads((PROJECT / file).read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [each["layers"] for each in contracts if each["name"] == name]
    return list(layers)


@pytest.mark.parametrize("path", [path for path in PATHS if path not in OTHERS])
def test_a_file_that_it_names_is_there(path: str) -> None:
    assert any((root / path).exists() for root in (PROJECT, PROJECT / "rmq_actors")), path


def test_a_class_or_function_that_it_names_is_there() -> None:
    defined = _defined()
    quoted = {name: name.split(".") for name in NAMES if name not in OTHERS}
    assert [name for name, parts in quoted.items() if not defined.issuperset(parts)] == []


@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_rooms_are_those_of_the_import_contracts(contract: str) -> None:
    fence = PAGE.split(f"<!-- rooms of {contract} -->\n```\n")[1].split("```")[0]
    assert [re.split(r"\s{2,}", line)[0] for line in fence.splitlines()] == _layers(contract)


def test_it_names_enough_to_be_checked() -> None:
    assert len(PATHS) > 60
    assert len(NAMES) > 50


def test_prose_is_wrapped() -> None:
    """A row of a table cannot be."""
    lines = [line for line in FENCE.sub("", PAGE).splitlines() if len(line) > LINE_CHARACTERS_MAX and line[:1] != "|"]
    assert lines == []
