"""A class with state is neither compared nor shown field by field: CONTRIBUTING.md says why."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.project_copy import PACKAGES, PROJECT

#: Classes whose values change and are nevertheless compared or shown field by field, by module.
SHOWN = {
    # A listener's own code prints them.
    "rmq_actors.client.message_listener:ConsumeConcurrentlyContext",
    "rmq_actors.client.message_listener:ConsumeOrderlyContext",
    # Tests compare them whole.
    "rmq_actors.store.check.finding:CheckSummary",
    "rmq_actors.testing.probe:Effects",
    # `World.faults` shows them.
    "sim_net.faults.nemesis:AppliedFault",
}
GENERATED = ("eq", "repr")


def generated(cls: ast.ClassDef) -> list[str]:
    """The methods that attrs makes for a class that can change, although they are not wanted."""
    for decorator in cls.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(called) in {"attrs.define", "attrs.mutable", "define"}:
            keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
            said = {keyword.arg: ast.unparse(keyword.value) for keyword in keywords}
            return [name for name in GENERATED if said.get(name) != "False"]
    return []


def classes_in(path: Path) -> dict[str, list[str]]:
    """What `generated` finds in a module, by module:class."""
    module = ".".join(path.relative_to(PROJECT).with_suffix("").parts)
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]
    return {f"{module}:{node.name}": found for node in nodes if (found := generated(node))}


def test_a_class_with_state_is_neither_compared_nor_shown_field_by_field() -> None:
    found: dict[str, list[str]] = {}
    for package in PACKAGES:
        for path in (PROJECT / package).rglob("*.py"):
            found |= classes_in(path)
    assert set(found) - SHOWN == set(), "say eq=False, repr=False, or name it in SHOWN"
    assert SHOWN - set(found) == set(), "these are not among SHOWN any more"


@pytest.mark.parametrize(
    ("decorator", "methods"),
    [
        ("attrs.define", ["eq", "repr"]),
        ("attrs.define()", ["eq", "repr"]),
        ("attrs.mutable", ["eq", "repr"]),
        ("attrs.define(eq=False)", ["repr"]),
        ("attrs.define(eq=True, repr=False)", ["eq"]),
        ("attrs.define(eq=False, repr=False, kw_only=True)", []),
        ("attrs.frozen", []),
        ("functools.total_ordering", []),
    ],
)
def test_the_rule_for_classes(decorator: str, methods: list[str]) -> None:
    (cls,) = ast.parse(f"@{decorator}\nclass State:\n    count: int\n").body
    assert isinstance(cls, ast.ClassDef)
    assert generated(cls) == methods
