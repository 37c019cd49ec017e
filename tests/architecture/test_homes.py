"""Where tests live: a test imports its own directory, tests/worlds for what is shared, and tools without tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.project_copy import PROJECT

SHARED = "worlds"
#: Programs, not tests: benchmarks, hostile peers, mutants. Some tests run a small case of one, or read its files.
TOOLS = frozenset({"bench", "fuzz", "mutants"})


def imports_of(source: str) -> Iterator[str]:
    """The modules that a file imports, at its top or later."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def strangers(directory: str, source: str) -> list[str]:
    """The modules of other directories that a file must not import."""
    allowed = {directory, SHARED} if directory == SHARED else {directory, SHARED, *TOOLS}
    found = set()
    for name in imports_of(source):
        root, _, rest = name.partition(".")
        other = rest.split(".")[0]
        is_a_test = rest.rpartition(".")[2].startswith("test_")
        if root == "tests" and rest and (other not in allowed or (other != directory and is_a_test)):
            found.add(name)
    return sorted(found)


def files() -> Iterator[Path]:
    for path in sorted((PROJECT / "tests").glob("*/**/*.py")):
        if "golden" not in path.parts:
            yield path


@pytest.mark.parametrize(
    ("directory", "source", "refused"),
    [
        ("unit", "from tests.property.body_values import JAVA_BODY_TYPES", True),
        ("unit", "from tests.unit.test_record import ONE", False),
        ("unit", "from tests.worlds.server_process import ServerProcess", False),
        ("simulation", "from tests.fuzz import CASES", False),
        ("simulation", "from tests.mutants.test_mutants import MUTANTS", True),
        ("simulation", "def later():\n    import tests.interop.java_gateway", True),
        ("simulation", "from tests import interop", True),
        ("worlds", "from tests.bench.idle_pair import idle", True),
    ],
)
def test_an_import_of_another_kind_is_noticed(directory: str, source: str, refused: bool) -> None:
    assert bool(strangers(directory, source)) is refused


@pytest.mark.parametrize("directory", sorted({path.relative_to(PROJECT / "tests").parts[0] for path in files()}))
def test_tests_import_their_own_kind_and_what_is_shared(directory: str) -> None:
    found = {
        str(path.relative_to(PROJECT)): wrong
        for path in files()
        if path.relative_to(PROJECT / "tests").parts[0] == directory
        and (wrong := strangers(directory, path.read_text(encoding="utf-8")))
    }
    assert not found


def test_shared_modules_hold_no_tests() -> None:
    directories = [PROJECT / "tests" / name for name in (SHARED, *TOOLS - {"mutants"})]
    assert [path.name for directory in directories for path in directory.rglob("test_*.py")] == []
