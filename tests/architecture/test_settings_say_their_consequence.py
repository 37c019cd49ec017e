"""Each field of a settings class says, in a `#:` comment above it, what one gets or loses by changing it."""

from __future__ import annotations

import ast
import inspect
import textwrap

import attrs
import pytest

from rmq_actors.broker.config import BrokerConfig
from rmq_actors.ha.config import HaConfig
from rmq_actors.namesrv.config import NamesrvConfig
from rmq_actors.namesrv.route_table import RouteTableLimits
from rmq_actors.remoting.config import ConnectionLimits, RemotingClientConfig, RemotingServerConfig
from sim_net.disk.disk import DiskConfig
from sim_net.net.link import LinkConfig
from sim_net.world import WorldConfig

CLASSES: list[type[attrs.AttrsInstance]] = [
    BrokerConfig,
    ConnectionLimits,
    DiskConfig,
    HaConfig,
    LinkConfig,
    NamesrvConfig,
    RemotingClientConfig,
    RemotingServerConfig,
    RouteTableLimits,
    WorldConfig,
]


def fields_without_comment(source: str) -> list[str]:
    """The annotated fields of the class in `source` whose line before is no `#:` comment."""
    source = textwrap.dedent(source)
    lines = source.splitlines()
    (found,) = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    return [
        field.target.id
        for field in found.body
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and not lines[field.lineno - 2].strip().startswith("#:")
    ]


@pytest.mark.parametrize("settings", CLASSES)
def test_each_field_says_its_consequence(settings: type[attrs.AttrsInstance]) -> None:
    assert fields_without_comment(inspect.getsource(settings)) == []


def test_a_field_without_a_comment_is_named() -> None:
    source = "class C:\n    #: What it does.\n    a: int = 1\n    b: int = 2\n\n    # Others.\n\n    c: int = 3\n"
    assert fields_without_comment(source) == ["b", "c"]
