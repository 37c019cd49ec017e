"""The classes of trace kinds say who emits what: the code and the events of real runs agree with them."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pytest

import rmq_actors
from rmq_actors.testing.scenarios import random_case, run_case
from rmq_actors.tracing.event import Event
from rmq_actors.tracing.events import OWN_KINDS

PRODUCT = Path(rmq_actors.__file__).parent
BY_CLASS = {kind.__name__: name for name, kind in OWN_KINDS.items()}


def emitters() -> dict[str, set[str]]:
    """Kind to the modules in which it is made, as `store.commit_log`."""
    found: dict[str, set[str]] = {}
    for path in PRODUCT.rglob("*.py"):
        module = ".".join(path.relative_to(PRODUCT).with_suffix("").parts)
        tree = ast.parse(path.read_text())
        imported = {
            name.asname or name.name: name.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rmq_actors.tracing.events")
            for name in node.names
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Name) and node.func.id in imported:
                made = imported[node.func.id]
            elif isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
                made = node.func.attr if node.func.value.id in imported else ""
            else:
                continue
            if made in BY_CLASS:
                found.setdefault(BY_CLASS[made], set()).add(module)
    return found


def is_named(module: str, emitter: str) -> bool:
    """Whether the text of a kind, modules or packages with commas between, names `module`."""
    return any(module == name or module.startswith(f"{name}.") for name in emitter.split(", "))


def test_every_emitter_is_named() -> None:
    wrong = {
        kind: sorted(module for module in modules if not is_named(module, OWN_KINDS[kind].emitter))
        for kind, modules in emitters().items()
    }
    assert {kind: modules for kind, modules in wrong.items() if modules} == {}


def test_no_kind_is_emitted_by_nobody() -> None:
    found = emitters()
    nobody = {}
    for name, kind in OWN_KINDS.items():
        ours = [emitter for emitter in kind.emitter.split(", ") if not emitter.startswith("sim_net")]
        missing = [emitter for emitter in ours if not any(is_named(module, emitter) for module in found.get(name, ()))]
        if missing:
            nobody[name] = missing
    assert nobody == {}


def test_a_class_is_called_as_its_kind() -> None:
    """So whoever reads a name in a trace finds the class. "Event" is added where the name is taken."""
    expected = {name: "".join(word.capitalize() for word in name.replace(".", "_").split("_")) for name in OWN_KINDS}
    found = {name: kind.__name__.removesuffix("Event") for name, kind in OWN_KINDS.items()}
    assert found == expected


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return [event for seed in range(6) for event in run_case(random_case(seed)).events]


def test_every_event_has_values_of_its_fields_types(events: list[Event]) -> None:
    """No checker looks at the attributes that a journal's entries bring along."""
    assert len({event.kind for event in events}) > 30
    for event in events:
        assert msgspec.json.decode(msgspec.json.encode(event), type=type(event)) == event
