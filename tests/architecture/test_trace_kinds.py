"""The registry of trace kinds says who emits what: the code and the events of real runs agree with it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import rmq_actors
from rmq_actors.testing.scenarios import random_case, run_case
from rmq_actors.tracing.event import KINDS, Event

PRODUCT = Path(rmq_actors.__file__).parent


def emitters() -> dict[str, set[str]]:
    """Kind to the modules in which a call of `emit` or `record` names it, as `store.commit_log`."""
    found: dict[str, set[str]] = {}
    for path in PRODUCT.rglob("*.py"):
        module = ".".join(path.relative_to(PRODUCT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr not in {"emit", "record"} or module == "tracing.recorder":
                continue
            for argument in node.args:
                for value in ast.walk(argument):
                    if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value in KINDS:
                        found.setdefault(value.value, set()).add(module)
    return found


def is_named(module: str, emitter: str) -> bool:
    """Whether the registry's text, modules or packages with commas between, names `module`."""
    return any(module == name or module.startswith(f"{name}.") for name in emitter.split(", "))


def test_every_emitter_is_in_the_registry() -> None:
    wrong = {
        kind: sorted(module for module in modules if not is_named(module, KINDS[kind].emitter))
        for kind, modules in emitters().items()
    }
    assert {kind: modules for kind, modules in wrong.items() if modules} == {}


def test_nothing_in_the_registry_is_emitted_by_nobody() -> None:
    found = emitters()
    nobody = {}
    for kind in KINDS.values():
        ours = [name for name in kind.emitter.split(", ") if not name.startswith("sim_net")]
        missing = [name for name in ours if not any(is_named(module, name) for module in found.get(kind.name, ()))]
        if missing:
            nobody[kind.name] = missing
    assert nobody == {}


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return [event for seed in range(6) for event in run_case(random_case(seed)).events]


def test_every_event_carries_what_its_kind_must(events: list[Event]) -> None:
    lacking = {
        (event.kind, name)
        for event in events
        for name in (
            *(column for column in KINDS[event.kind].columns if getattr(event, column) is None),
            *(attribute for attribute in KINDS[event.kind].attributes if attribute not in (event.attrs or {})),
        )
    }
    assert lacking == set()
