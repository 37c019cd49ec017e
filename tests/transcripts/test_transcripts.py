"""Plays each `*.txt`, here and in `exchange`, against the pure machines: a command, `----`, what comes out.

An empty line ends a block.

`REWRITE_TRANSCRIPTS=1` writes what comes out into the files instead, to be reviewed as a diff.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import pytest

from tests.transcripts.exchange_pair import ExchangePair
from tests.transcripts.pair import Pair

HERE = Path(__file__).parent
#: What plays the transcripts of each directory.
PLAYERS: dict[Path, Callable[[], Player]] = {HERE: Pair, HERE / "exchange": ExchangePair}
TRANSCRIPTS = sorted(path for directory in PLAYERS for path in directory.glob("*.txt"))
ARROW = "----"


class Player(Protocol):
    """Executes commands."""

    def run(self, command: str) -> Iterable[str]:
        """What comes out of one."""
        ...


def play(script: str, pair: Player) -> str:
    """The transcript with what really comes out."""
    blocks = []
    for block in script.strip().split("\n\n"):
        lines = block.splitlines()
        comments = [line for line in lines if line.startswith("#")]
        commands = [line for line in lines[: lines.index(ARROW)] if line not in comments] if ARROW in lines else []
        output = [line for command in commands for line in pair.run(command)]
        blocks.append("\n".join([*comments, *commands, *([ARROW, *output] if commands else [])]))
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    script = path.read_text()
    played = play(script, PLAYERS[path.parent]())
    if os.environ.get("REWRITE_TRANSCRIPTS") == "1":
        path.write_text(played)
    else:
        assert played == script


def test_there_are_transcripts() -> None:
    assert {path.stem for path in TRANSCRIPTS} == {
        "connect_and_first_sync",
        "diverged",
        "exchanged",
        "fall_behind",
        "heartbeat",
        "lost_request",
        "lost_yes",
        "mid_frame_cut",
        "note_fails",
        "offset_gone",
        "overruled",
        "refused",
        "refused_promotion",
        "restarts",
        "same",
        "silent_peer",
        "slave_ahead",
        "stray_report",
        "time_limit",
    }


def test_another_outcome_is_seen() -> None:
    script = "slave 10\n----\nslave: log ends at 11\n"
    assert play(script, Pair()) == "slave 10\n----\nslave: log ends at 10\n"
