"""The help of each command, on terminals of several widths."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from rmq_actors.cli.help_text import flowing
from rmq_actors.cli.main import app


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of each command, groups among them."""
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


PATHS = [*commands(typer.main.get_command(app))]


def prose(path: tuple[str, ...], width: int) -> list[list[str]]:
    """The paragraphs before the boxes of options, line by line."""
    result = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": str(width), "NO_COLOR": "1"})
    assert result.exit_code == 0, result.output
    text = result.output.partition("╭")[0]
    paragraphs = [
        [line.strip() for line in each.split("\n")]
        for each in "\n".join(map(str.rstrip, text.split("\n"))).split("\n\n")
    ]
    return [lines for lines in paragraphs if any(lines) and "Usage:" not in "".join(lines)]


def test_all_commands_are_looked_at() -> None:
    assert {(), ("broker",), ("chaos", "run"), ("store", "check"), ("trace", "report"), ("broker-admin",)} <= {*PATHS}


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_no_line_ends_before_it_must(path: tuple[str, ...], width: int) -> None:
    found = prose(path, width)
    assert found
    for paragraph in found:
        lines = [line for line in paragraph if line]
        for line, following in itertools.pairwise(lines):
            assert len(line) + 1 + len(following.split()[0]) > width - 2, (line, following)


def test_what_stands_in_brackets_is_not_taken_for_markup() -> None:
    """Rich would leave it out."""
    commands: Any = typer.main.get_command(app)
    for path in PATHS:
        command = commands
        for name in path:
            command = command.commands[name]
        shown = " ".join(" ".join(lines) for lines in prose(path, 120)).split()
        assert " ".join(command.help.split()) == " ".join(shown)


def test_paragraphs_stay_and_so_do_indented_lines() -> None:
    text = """First
        line.

        Second
        paragraph:

        1. a
           b
        """
    assert flowing(text) == "First line.\n\nSecond paragraph:\n\n1. a\n   b"
    assert flowing(inspect.cleandoc(text)) == flowing(text)
    assert flowing("") == ""
