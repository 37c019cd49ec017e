"""Events made by hand, at times in ms, for whoever reads traces."""

from __future__ import annotations

from typing import Any

import attrs

from rmq_actors.tracing.event import Event, RunInfo
from rmq_actors.tracing.recorder import Recorder
from tests.worlds.recording import told


def run_of(seed: int) -> RunInfo:
    return RunInfo("tests", "handmade", seed)


@attrs.define
class Story:
    """Builds the events of a run, one after the other, at times in ms."""

    is_sim: bool = True
    _time_ns: int = attrs.field(default=0, init=False)
    _recorder: Recorder = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._recorder = Recorder(
            RunInfo("tests", "story", 0), lambda: (self._time_ns if self.is_sim else None, 10**18 + self._time_ns)
        )

    @property
    def events(self) -> list[Event]:
        return self._recorder.events

    def at(self, time_ms: float, node: str, kind: str, **columns: Any) -> Story:
        self._time_ns = round(time_ms * 1_000_000)
        attributes = columns.pop("attrs", None)
        self._recorder.record(told(kind, columns, attributes), node, "actor")
        return self
