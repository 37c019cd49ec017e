"""Failing runs for a reader: one of each kind, with the command that runs it again."""

from __future__ import annotations

import os
import shlex
import string
import sys
from pathlib import Path

import attrs

from rmq_actors.testing.bug_hunt import signature
from rmq_actors.testing.campaign import Campaign, RunSummary
from rmq_actors.testing.scenarios import SCENARIOS


def replay_command(path: Path, scenario: str | None = None) -> str:
    """The one command that replays a failing run. `scenario`: MODULE:NAME of one of the user's own."""
    own = "" if scenario is None else f" --scenario {in_shell(scenario)}"
    return f"{_program()} chaos replay {in_shell(str(path))}{own}"


def in_shell(word: str) -> str:
    """A word as a shell takes it, in printable characters: of a name that is not UTF-8 the bytes are written."""
    if word.isprintable():
        return shlex.quote(word)
    plain = string.ascii_letters + string.digits + "_-+=:,./@% "
    return "$'" + "".join(chr(b) if chr(b) in plain else f"\\x{b:02x}" for b in os.fsencode(word)) + "'"


def _program() -> str:
    """This program as it was called, so that the command can be pasted."""
    called = Path(sys.argv[0])
    if called.name != "rmq-actors":
        return "rmq-actors"
    return str(called.relative_to(Path.cwd())) if called.is_relative_to(Path.cwd()) else str(called)


@attrs.define(eq=False, repr=False)
class Failures:
    """The failing runs of a campaign by what makes them alike: how they ended, and by which invariant."""

    campaign: Campaign
    #: How the command line names its scenario.
    scenario: str = attrs.field(default=attrs.Factory(lambda self: self.campaign.scenario.name, takes_self=True))
    _alike: dict[str, list[RunSummary]] = attrs.field(factory=dict[str, list[RunSummary]], init=False)

    def lines(self, summary: RunSummary) -> list[str]:
        """What is printed about a run when it has ended: only the first of similar failures."""
        if summary.outcome == "passed":
            return []
        alike = self._alike.setdefault(signature(summary.outcome, summary.failure), [])
        alike.append(summary)
        if len(alike) > 1:
            return []
        told = f"seed {summary.seed}: {summary.outcome}: {summary.failure}"
        return [told, f"  replay: {self._command(summary)}"]

    @property
    def first(self) -> RunSummary | None:
        """The failure of the lowest seed."""
        return next((runs[0] for runs in self._alike.values()), None)

    @property
    def summary_lines(self) -> list[str]:
        """How many there were of each kind, the most frequent first."""
        kinds = sorted(self._alike.items(), key=lambda item: -len(item[1]))
        return [f"failed: {len(runs)} x {kind}, first seed {runs[0].seed}" for kind, runs in kinds]

    def _command(self, summary: RunSummary) -> str:
        if summary.case_path is not None:
            return replay_command(summary.case_path, None if self.scenario in SCENARIOS else self.scenario)
        bug = "" if self.campaign.planted_bug is None else f" --planted-bug {self.campaign.planted_bug}"
        return f"{_program()} chaos run --scenario {in_shell(self.scenario)} --seeds {summary.seed}{bug}"
