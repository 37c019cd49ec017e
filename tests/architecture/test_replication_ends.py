"""Why a connection between master and slave ends: the pages have each word of the code, and so have the events."""

from __future__ import annotations

import ast
import re
from typing import get_args

from rmq_actors.protocols.evidence import DoubtReason
from rmq_actors.tracing.events.ha import HaClientCompare
from tests.architecture.project_copy import PROJECT

SOURCES = ("ha/**/*.py", "protocols/**/*.py", "store/**/*.py", "remoting/tls.py")
#: Of classes that others derive from, and of an HA connection whose task died.
NOT_TOLD = {"refused"}
#: What ends a connection at the master alone, and what ends in a halt: operating.md tells of that in its own place.
OF_MASTERS = {"illegal_report", "transfer_stuck"}
HALTS = {"diverged", "offset_gone", "file_size_mismatch"}


def reasons() -> set[str]:
    """What exceptions have as their class's `reason`, and what evidence says."""
    found = {*get_args(DoubtReason), "peer_closed", "connection_lost"}
    for pattern in SOURCES:
        for path in (PROJECT / "rmq_actors").glob(pattern):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    found |= {
                        statement.value.value
                        for statement in node.body
                        if isinstance(statement, ast.Assign)
                        and getattr(statement.targets[0], "id", "") == "reason"
                        and isinstance(statement.value, ast.Constant)
                        and isinstance(statement.value.value, str)
                    }
    return found - NOT_TOLD


def test_the_protocols_page_has_each_word() -> None:
    page = (PROJECT / "docs" / "ha-protocol.md").read_text()
    told = page.partition("A connection ends with one of these reasons")[2].partition("\n\n")[0]
    assert sorted(reasons() - {*re.findall(r"`(\w+)`", told)}) == []


def test_operators_are_told_what_to_do_about_each() -> None:
    page = (PROJECT / "docs" / "operating.md").read_text()
    rows = page.partition("| word | what is so")[2].partition("\n\n")[0]
    told = {word for row in rows.splitlines()[2:] for word in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert sorted(reasons() - OF_MASTERS - HALTS) == sorted(told)


def test_the_event_of_a_comparison_names_each_outcome() -> None:
    told = str(HaClientCompare.__doc__).partition("status: ")[2].partition(".")[0]
    outcomes = {*get_args(DoubtReason), "same", "slave_ahead", "diverged", "lookup_failed", "no_answer"}
    assert set(re.split(r", | or ", told)) == outcomes
