"""What the demo knows and no trace says: the logs that it compared, the bug that it planted and found.

The demo writes them to a JSON file, the report shows them. Both sections may be null or left out:

    {"replication": {"messages": 2215, "bytes": 1048576, "files_rolled": 3, "sha256_master": "...",
                     "sha256_slave": "...", "identical": true},
     "planted_bug": {"name": "stale_frame", "description": "...", "runs_to_find": 12, "seconds": 3.5,
                     "original_faults": 6, "shrunk_schedule": [{"kind": "Kill", "at_s": 1.5, "node": "slave-1"}],
                     "replay_command": "rmq-actors chaos replay ...", "failure": "..."}}

A fault is an object as in a schedule: `kind` and `at_s`; `duration_s` or `down_s` if it lasts; `a` and `b` or `node`
for where; whatever else it has is shown as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import attrs


class DemoFactsError(ValueError):
    """A file of demo facts that does not have the shape above. Says which file and which key."""


@attrs.frozen
class ReplicationFacts:
    """The comparison of the master's log with the slave's. `files_rolled`: how often a new file was begun."""

    messages: int
    bytes: int
    files_rolled: int
    sha256_master: str
    sha256_slave: str
    identical: bool

    def __attrs_post_init__(self) -> None:
        if self.identical != (self.sha256_master == self.sha256_slave):
            raise DemoFactsError("replication: identical contradicts the two SHA-256")


@attrs.frozen
class ScheduledFault:
    """One fault of a schedule. `duration_s` is None for what happens at once."""

    kind: str
    at_s: float
    duration_s: float | None
    where: str
    details: Mapping[str, str]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """Take a fault as schedules write it. Raises `DemoFactsError`."""
        rest = dict(data)
        kind, at_s = _take(rest, "kind", str), float(_take(rest, "at_s", (int, float)))
        duration_s = rest.pop("duration_s", rest.pop("down_s", None))
        if duration_s is not None and not isinstance(duration_s, int | float):
            raise DemoFactsError(f"duration_s is no number: {duration_s!r}")
        between = {True: " ↔ ", False: " → "}.get(rest.pop("two_way", None), ", ")
        ends = [str(rest.pop(name)) for name in ("a", "b") if name in rest]
        where = str(rest.pop("node", between.join(ends)))
        details = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in rest.items()}
        return cls(kind, at_s, None if duration_s is None else float(duration_s), where, details)


@attrs.frozen
class PlantedBugFacts:
    """How a planted bug was found and how far its schedule could be shrunk."""

    name: str
    description: str
    runs_to_find: int
    seconds: float
    original_faults: int
    shrunk_schedule: tuple[ScheduledFault, ...]
    replay_command: str
    failure: str


@attrs.frozen
class DemoFacts:
    """Both sections."""

    replication: ReplicationFacts | None = None
    planted_bug: PlantedBugFacts | None = None

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file. Raises `DemoFactsError` naming the file and what is wrong, `OSError`."""
        try:
            return cls.of(json.loads(path.read_text(encoding="utf-8")))
        except ValueError as error:
            raise DemoFactsError(f"{path}: {error}") from error

    @classmethod
    def of(cls, data: object) -> Self:
        """Take the parsed JSON. Raises `DemoFactsError`."""
        if not isinstance(data, dict):
            raise DemoFactsError(f"an object is needed, not {type(data).__name__}")
        unknown = set(data) - {"replication", "planted_bug"}
        if unknown:
            raise DemoFactsError(f"unknown keys: {', '.join(sorted(unknown))}")
        return cls(
            _section(data, "replication", _replication),
            _section(data, "planted_bug", _planted_bug),
        )


def _section(data: Mapping[str, Any], name: str, make: Any) -> Any:  # noqa: ANN401  # one of two attrs classes
    section = data.get(name)
    if section is None:
        return None
    if not isinstance(section, dict):
        raise DemoFactsError(f"{name}: an object is needed, not {type(section).__name__}")
    rest = dict(section)
    try:
        made = make(rest)
    except DemoFactsError as error:
        raise DemoFactsError(f"{name}: {error}") from error
    if rest:
        raise DemoFactsError(f"{name}: unknown keys: {', '.join(sorted(rest))}")
    return made


def _replication(rest: dict[str, Any]) -> ReplicationFacts:
    return ReplicationFacts(
        messages=_take(rest, "messages", int),
        bytes=_take(rest, "bytes", int),
        files_rolled=_take(rest, "files_rolled", int),
        sha256_master=_take(rest, "sha256_master", str),
        sha256_slave=_take(rest, "sha256_slave", str),
        identical=_take(rest, "identical", bool),
    )


def _planted_bug(rest: dict[str, Any]) -> PlantedBugFacts:
    return PlantedBugFacts(
        name=_take(rest, "name", str),
        description=_take(rest, "description", str),
        runs_to_find=_take(rest, "runs_to_find", int),
        seconds=float(_take(rest, "seconds", (int, float))),
        original_faults=_take(rest, "original_faults", int),
        shrunk_schedule=_schedule(_take(rest, "shrunk_schedule", list)),
        replay_command=_take(rest, "replay_command", str),
        failure=_take(rest, "failure", str),
    )


def _schedule(faults: Sequence[object]) -> tuple[ScheduledFault, ...]:
    made = []
    for index, fault in enumerate(faults):
        if not isinstance(fault, dict):
            raise DemoFactsError(f"shrunk_schedule[{index}]: an object is needed")
        try:
            made.append(ScheduledFault.of(fault))
        except DemoFactsError as error:
            raise DemoFactsError(f"shrunk_schedule[{index}]: {error}") from error
    return tuple(made)


def _take(rest: dict[str, Any], name: str, kind: type | tuple[type, ...]) -> Any:  # noqa: ANN401  # a JSON value
    if name not in rest:
        raise DemoFactsError(f"{name} is missing")
    value = rest.pop(name)
    # A bool is an int to Python, but not to a reader.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise DemoFactsError(f"{name} is {value!r}")
    return value
