"""Values of arguments that Typer lets pass, and no command can use: each raises `typer.BadParameter`."""

from __future__ import annotations

import math
from pathlib import Path

import typer

#: A run_id, as traces have it.
RUN_ID_MIN, RUN_ID_MAX = -(2**63), 2**63 - 1


def sendable(text: str) -> str:
    """What a request can carry."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise typer.BadParameter(f"{text!r} is not UTF-8") from error
    return text


def utf8_path(given: Path | None) -> Path | None:
    """Where traces are: what reads and writes them takes no other paths."""
    if given is not None:
        sendable(str(given))
    return given


def name(text: str) -> str:
    """A name, of a topic, a group or a key."""
    if not text:
        raise typer.BadParameter("it is empty")
    return sendable(text)


def number(value: float | None) -> float | None:
    """Limits hold for each number, and nan is none."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter(f"{value} is not a number")
    return value
