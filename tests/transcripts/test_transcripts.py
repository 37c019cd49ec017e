"""Plays each `*.txt` here against the pure machines: a command, `----`, what comes out, an empty line.

`REWRITE_TRANSCRIPTS=1` writes what comes out into the files instead, to be reviewed as a diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.transcripts.pair import Pair

TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))
ARROW = "----"


def play(script: str) -> str:
    """The transcript with what really comes out."""
    pair = Pair()
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
    played = play(script)
    if os.environ.get("REWRITE_TRANSCRIPTS") == "1":
        path.write_text(played)
    else:
        assert played == script


def test_there_are_transcripts() -> None:
    assert {path.stem for path in TRANSCRIPTS} == {
        "connect_and_first_sync",
        "diverged",
        "fall_behind",
        "heartbeat",
        "mid_frame_cut",
        "offset_gone",
        "same",
        "silent_peer",
        "slave_ahead",
        "stray_report",
    }


def test_another_outcome_is_seen() -> None:
    script = "slave 10\n----\nslave: log ends at 11\n"
    assert play(script) == "slave 10\n----\nslave: log ends at 10\n"
