"""No circle of imports, typing included: of two modules that know each other, neither can be read or changed alone.

import-linter does not see imports of type checkers alone, so that two modules of one room may hide a circle from it.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping

import pytest

from tests.architecture.project_copy import PACKAGES, PROJECT

#: Modules that may still be in a circle with each other, and why.
KNOWN = {
    "a broker's parts ask the whole: they take the BrokerController, which makes them": {
        "rmq_actors.broker.broker_controller",
        "rmq_actors.broker.exchange_partner",
        "rmq_actors.broker.metrics",
        "rmq_actors.broker.metrics_server",
        "rmq_actors.broker.processors.admin",
        "rmq_actors.broker.processors.exchange",
        "rmq_actors.broker.processors.replication_state",
        "rmq_actors.broker.role_exchange",
        "rmq_actors.broker.runtime_info",
    },
    "the entry point imports the commands last, so that signals are handled while they are imported": {
        "rmq_actors.cli.entry",
        "rmq_actors.cli.interrupts",
        "rmq_actors.cli.main",
    },
    "kernel, network, disk and faults name the node and the world that they are of": {
        "sim_net.disk.disk",
        "sim_net.disk.disk_lock",
        "sim_net.disk.disk_sync",
        "sim_net.disk.open_files",
        "sim_net.faults.disk_faults",
        "sim_net.faults.fault",
        "sim_net.faults.faults",
        "sim_net.faults.nemesis",
        "sim_net.faults.network_faults",
        "sim_net.faults.node_faults",
        "sim_net.faults.schedule",
        "sim_net.kernel.digest",
        "sim_net.kernel.guard",
        "sim_net.kernel.identity",
        "sim_net.kernel.usage",
        "sim_net.kernel.journal",
        "sim_net.kernel.kernel",
        "sim_net.kernel.pausing",
        "sim_net.kernel.task_tree",
        "sim_net.kernel.wall_clock",
        "sim_net.net.accept_queue",
        "sim_net.net.ack_timer",
        "sim_net.net.datagram_socket",
        "sim_net.net.endpoint",
        "sim_net.net.handshake",
        "sim_net.net.lane",
        "sim_net.net.link",
        "sim_net.net.network",
        "sim_net.net.send_buffer",
        "sim_net.net.socket",
        "sim_net.net.stream",
        "sim_net.net.stream_socket",
        "sim_net.net.window_probe",
        "sim_net.node",
        "sim_net.world",
    },
}


@functools.cache
def imports() -> dict[str, set[str]]:
    """Each module of the product, and which of the others it names in any import, wherever that stands."""
    paths = {
        ".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__"): path
        for package in PACKAGES
        for path in (PROJECT / package).rglob("*.py")
    }
    return {
        module: {name for name in _imported(ast.parse(path.read_text()), paths) if name != module}
        for module, path in paths.items()
    }


def _imported(tree: ast.AST, modules: Mapping[str, object]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.module in modules:
            names = {f"{node.module}.{name.name}" for name in node.names}
            submodules = {name for name in names if name in modules}
            yield from submodules
            if submodules != names:
                yield node.module


def circles(graph: Mapping[str, set[str]]) -> list[frozenset[str]]:
    """The strongly connected components of more than one module (Tarjan's algorithm)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[frozenset[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        path.append(module)
        for other in sorted(graph[module]):
            if other not in number:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in path:
                lowest[module] = min(lowest[module], number[other])
        if lowest[module] == number[module]:
            at = path.index(module)
            if len(path) - at > 1:
                found.append(frozenset(path[at:]))
            del path[at:]

    for module in sorted(graph):
        if module not in number:
            visit(module)
    return found


def test_there_is_no_circle_without_a_reason() -> None:
    found = circles(imports())
    assert [sorted(circle) for circle in found if not any(circle <= known for known in KNOWN.values())] == []


@pytest.mark.parametrize("reason", KNOWN)
def test_a_reason_is_needed_for_as_long_as_its_circle_stands(reason: str) -> None:
    modules = set[str]().union(*circles(imports()))
    assert KNOWN[reason] - modules == set()


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set[str]()}, []),
        ({"a": {"b"}, "b": {"a", "c"}, "c": set[str]()}, [{"a", "b"}]),
        ({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}}, [{"a", "b", "c"}, {"d", "e"}]),
    ],
)
def test_circles_are_found(graph: dict[str, set[str]], expected: list[set[str]]) -> None:
    assert sorted(map(sorted, circles(graph))) == sorted(map(sorted, expected))
