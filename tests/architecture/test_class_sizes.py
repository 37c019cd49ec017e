"""No class has more than 300 lines or 20 fields, unless it is named here and its docstring says why."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence

import pytest

from tests.architecture.project_copy import PROJECT

LINES_MAX = 300
FIELDS_MAX = 20
#: Classes that are larger on purpose, by module.
LARGER = {
    "rmq_actors.analysis.report_data:RunRow",
    "rmq_actors.broker.broker_remoting:BrokerRemoting",
    "rmq_actors.broker.config:BrokerConfig",
    "rmq_actors.ha.config:HaConfig",
    "rmq_actors.namesrv.route_table:RouteInfoManager",
    "rmq_actors.remoting.connection:RemotingConnection",
    "rmq_actors.store.check.check_index:IndexCheck",
    "rmq_actors.store.config:MessageStoreConfig",
    "rmq_actors.store.dispatch.consume_queue:ConsumeQueue",
    "rmq_actors.store.dispatch.consume_queues:ConsumeQueues",
    "rmq_actors.store.dispatch.index_file:IndexFile",
    "rmq_actors.store.dispatch.index_service:IndexService",
    "rmq_actors.store.dispatch.transaction_state_service:TransactionStateService",
    "rmq_actors.store.log.commit_log:CommitLog",
    "rmq_actors.testing.node_view:NodeView",
    "rmq_actors.testing.view:ClusterView",
    "rmq_actors.testing.workload:Workload",
    "rmq_actors.tracing.event:Event",
}
LINES_REASON = re.compile(rf"Longer than {LINES_MAX} lines,? (?:and with more than {FIELDS_MAX} fields, )?because \w+")
FIELDS_REASON = re.compile(rf"[Mm]ore than {FIELDS_MAX} fields,? because \w+")


def fields(cls: ast.ClassDef) -> set[str]:
    """What a class declares or sets on `self`, but for constants of the class."""
    found: set[str] = set()
    for field in cls.body:
        if isinstance(field, ast.AnnAssign) and "ClassVar" not in ast.unparse(field.annotation):
            found.add(ast.unparse(field.target))
    for node in ast.walk(cls):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            found.add(node.attr)
    return found


def too_large(cls: ast.ClassDef) -> list[str]:
    """What is too large: "lines", "fields"."""
    lines = (cls.end_lineno or cls.lineno) - cls.lineno + 1
    return [*(["lines"] if lines > LINES_MAX else []), *(["fields"] if len(fields(cls)) > FIELDS_MAX else [])]


def says_why(cls: ast.ClassDef, what: str) -> bool:
    """Whether the docstring says why it is so large."""
    text = " ".join((ast.get_docstring(cls) or "").split())
    return bool((LINES_REASON if what == "lines" else FIELDS_REASON).search(text))


@functools.cache
def classes() -> Sequence[tuple[str, ast.ClassDef]]:
    """Each class of the product, as module:class."""
    found = []
    for path in (PROJECT / "rmq_actors").rglob("*.py"):
        module = ".".join(path.relative_to(PROJECT).with_suffix("").parts)
        nodes = ast.walk(ast.parse(path.read_text()))
        found += [(f"{module}:{node.name}", node) for node in nodes if isinstance(node, ast.ClassDef)]
    return found


def test_larger_classes_are_those_that_are_named() -> None:
    assert {name for name, cls in classes() if too_large(cls)} == LARGER


def test_a_larger_class_says_why() -> None:
    assert [(name, what) for name, cls in classes() for what in too_large(cls) if not says_why(cls, what)] == []


@pytest.mark.parametrize(
    ("head", "lines", "found"),
    [
        ("", 300, []),
        ("", 301, ["lines"]),
        ('    """It. Longer than 300 lines because it is one table."""\n', 301, []),
        ('    """It. Longer than 300 lines."""\n', 301, ["lines"]),
        ('    """It. More than 20 fields because they are columns."""\n', 301, ["lines"]),
    ],
)
def test_the_rule_for_lines(head: str, lines: int, found: list[str]) -> None:
    source = "class C:\n" + head + "    x = 1\n" * (lines - 1 - head.count("\n"))
    (cls,) = ast.parse(source).body
    assert isinstance(cls, ast.ClassDef)
    assert [what for what in too_large(cls) if not says_why(cls, what)] == found


def test_the_rule_for_fields() -> None:
    declared = "".join(f"    f{number}: int\n" for number in range(20))
    set_later = "    k: ClassVar[int] = 1\n    def m(self):\n        self.f1 = self.g = 2\n"
    (few,) = ast.parse("class C:\n" + declared).body
    (many,) = ast.parse("class C:\n" + declared + set_later).body
    assert isinstance(few, ast.ClassDef)
    assert isinstance(many, ast.ClassDef)
    assert too_large(few) == []
    assert too_large(many) == ["fields"]
    assert not says_why(many, "fields")
