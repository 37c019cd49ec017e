"""Failing runs as files: a case, the scenario that it belongs to, and how it ended when it was written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import attrs

import rmq_actors
from rmq_actors.testing.scenario import Scenario
from rmq_actors.testing.scenarios import SCENARIOS
from sim_net.search.search import Case

FORMAT = 1


class IllegalCaseFile(ValueError):
    """A file is not a case; the message names the file and says what is wrong."""


@attrs.frozen
class CaseFile:
    """What `failures/*.json` holds."""

    scenario: str
    case: Case
    outcome: str
    failure: str

    def save(self, path: Path) -> None:
        """Write the file, with its directory."""
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "format": FORMAT,
            "rmq_actors": rmq_actors.__version__,
            "scenario": self.scenario,
            "outcome": self.outcome,
            "failure": self.failure,
            "case": json.loads(self.case.to_json()),
        }
        path.write_text(json.dumps(content, indent=2) + "\n")

    @classmethod
    def load(cls, path: Path, scenarios: Mapping[str, Scenario] = SCENARIOS) -> CaseFile:
        """Read a file of a case of one of `scenarios`, by their names. Raises `IllegalCaseFile`, `OSError`."""
        try:
            content = json.loads(path.read_text())
            if not isinstance(content, dict) or content.get("format") != FORMAT:
                raise IllegalCaseFile(f"{path}: not a case of format {FORMAT}")
            scenario = content["scenario"]
            if scenario not in scenarios:
                raise IllegalCaseFile(f"{path}: no scenario is called {scenario!r}; there are {', '.join(scenarios)}")
            case = Case.from_json(json.dumps(content["case"]))
            scenarios[scenario].check(case)
            return cls(scenario, case, str(content.get("outcome", "")), str(content.get("failure", "")))
        except KeyError as error:
            raise IllegalCaseFile(f"{path}: {error} is missing") from error
        except (UnicodeDecodeError, ValueError, RecursionError) as error:
            if isinstance(error, IllegalCaseFile):
                raise
            raise IllegalCaseFile(f"{path}: {error}") from error
