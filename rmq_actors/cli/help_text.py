"""Lets help flow: the line ends of a docstring's source do not suit every terminal."""

from __future__ import annotations

import inspect
from typing import Protocol


class _Command(Protocol):
    """Click's, of which Typer has its own copy in some versions."""

    help: str | None


def flow_help(command: _Command) -> None:
    """Let the help of a command, and of all commands below it, fill the lines of any terminal."""
    command.help = flowing(command.help or "")
    below: dict[str, _Command] = getattr(command, "commands", {})
    for each in below.values():
        flow_help(each)


def flowing(text: str) -> str:
    """Each paragraph as one line. Lines that are indented stay as they are."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(each if "\n " in each else " ".join(each.split()) for each in paragraphs)
