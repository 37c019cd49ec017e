"""Every import of another project's package is one that the core, or an extra of the module, brings.

Read from the sources alone, through every import of this project's own modules: what a module needs to be imported is
known without installing anything. The promise is in `tests/worlds/extras.py`.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs
import pytest

from tests.worlds.extras import LATE_NEEDS, NEEDS, PACKAGES, modules, needs_of, project, third_party

MODULES = modules()


@attrs.frozen
class Imports:
    """What a module imports when it is imported, and what its functions import when they run."""

    early: frozenset[str]
    late: frozenset[str]

    @classmethod
    def read(cls, source: str) -> Imports:
        found: dict[bool, set[str]] = {False: set(), True: set()}
        for name, is_late in _walk(ast.parse(source), is_late=False):
            found[is_late].add(name)
        return cls(frozenset(found[False]), frozenset(found[True]))


def _walk(node: ast.AST, *, is_late: bool) -> Iterator[tuple[str, bool]]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, is_late) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.module is not None
        yield node.module, is_late
        yield from ((f"{node.module}.{alias.name}", is_late) for alias in node.names)
    else:
        children: Iterable[ast.AST] = ast.iter_child_nodes(node)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            children = node.orelse
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in children:
            yield from _walk(child, is_late=is_late or inside)


@functools.cache
def imports_of(module: str) -> Imports:
    """What one of this project's modules imports. Not read before a test asks: every process collects all tests."""
    return Imports.read(MODULES[module].read_text())


def own(names: frozenset[str]) -> set[str]:
    """This project's modules of these names, with the packages that they are in."""
    found = set[str]()
    for name in names & MODULES.keys():
        parts = name.split(".")
        found |= {".".join(parts[: count + 1]) for count in range(len(parts))}
    return found


def foreign(names: frozenset[str]) -> set[str]:
    """Other projects' packages among these names."""
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {*PACKAGES, "__future__"}


def reached(module: str) -> set[str]:
    """This project's modules that an import of the module imports, itself among them."""
    seen, waiting = set[str](), own(frozenset({module}))
    while waiting:
        seen |= waiting
        waiting = {name for each in waiting for name in own(imports_of(each).early)} - seen
    return seen


def needed(module: str) -> set[str]:
    """Other projects' packages that an import of the module imports, through whatever modules of this project."""
    return {name for each in reached(module) for name in foreign(imports_of(each).early)}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_imported_with_what_its_extra_brings(module: str) -> None:
    missing = needed(module) - third_party(needs_of(module))
    told = f"{module} imports {missing}, which neither the core nor its extras {needs_of(module)} bring"
    assert not missing, f"{told}: see pyproject.toml and tests/worlds/extras.py"


@pytest.mark.parametrize(
    ("module", "others"),
    [
        ("rmq_actors.embedding.broker", {"client", "namesrv", "embedding.cluster"}),
        ("rmq_actors.embedding.name_server", {"broker", "client", "ha", "store.log", "store.lifecycle"}),
        ("rmq_actors.embedding.clients", {"broker", "ha", "namesrv", "store"}),
    ],
)
def test_a_process_loads_no_other_part(module: str, others: set[str]) -> None:
    """A start is imports, mostly: a broker took a quarter longer when it loaded clients, and a client twice as long."""
    parts = {f"rmq_actors.{other}" for other in others}
    assert parts <= MODULES.keys()
    assert not [name for name in reached(module) for part in parts if f"{name}.".startswith(f"{part}.")]


def test_what_is_imported_late_is_promised_too() -> None:
    late = {}
    for module in MODULES:
        imports = imports_of(module)
        names = foreign(imports.late).union(*(needed(name) for name in own(imports.late)))
        if missing := names - third_party(needs_of(module)):
            late[module] = missing
    allowed = {module: third_party((*needs_of(module), *extras)) for module, extras in LATE_NEEDS.items()}
    assert late.keys() == allowed.keys()
    assert {module: names - allowed[module] for module, names in late.items() if names - allowed[module]} == {}


def test_the_tables_name_what_is_there() -> None:
    assert not {*NEEDS, *LATE_NEEDS} - MODULES.keys()
    assert {extra for extras in (*NEEDS.values(), *LATE_NEEDS.values()) for extra in extras} == {
        *project()["optional-dependencies"]
    }


@pytest.mark.parametrize(
    ("source", "early", "late"),
    [
        ("import a.b, c", {"a.b", "c"}, set()),
        ("from a import b", {"a", "a.b"}, set()),
        ("if TYPE_CHECKING:\n    import a\nelse:\n    import b", {"b"}, set()),
        ("try:\n    import a\nexcept ImportError:\n    pass", {"a"}, set()),
        ("def f():\n    import a\n    class B:\n        import c", set(), {"a", "c"}),
        ("class A:\n    import b\n    async def c(self):\n        import d", {"b"}, {"d"}),
    ],
)
def test_what_a_source_imports(source: str, early: set[str], late: set[str]) -> None:
    assert Imports.read(source) == Imports(frozenset(early), frozenset(late))


def test_imports_are_followed() -> None:
    assert Path(MODULES["rmq_actors"]).name == "__init__.py"
    assert "pyarrow" in needed("rmq_actors.analysis.sources")
    assert "trio" in needed("rmq_actors.embedding.cluster")
