"""A recorder for tests: keeps every event, and lets a test wait for one instead of sleeping."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import attrs
import msgspec
import trio

from rmq_actors.tracing.event import Event, RunInfo, event_of
from rmq_actors.tracing.events import KINDS
from rmq_actors.tracing.recorder import Recorder, Tracer

E = TypeVar("E", bound=Event)


def told(kind: str, columns: Mapping[str, object], attributes: Mapping[str, object] | None = None) -> Event:
    """An event as a story tells it: what the kind needs and the story does not say is empty, or 0."""
    fields: tuple[msgspec.structs.FieldInfo, ...] = msgspec.structs.fields(cast("Any", KINDS[kind]))
    unsaid = {
        field.encode_name: field.type() if field.type in (int, float, bool) else ""
        for field in fields
        if field.required
    }
    return event_of(kind, {**unsaid, **columns, **(attributes or {})})


def new_recorder() -> Recorder:
    """A recorder whose clock counts its events."""
    return Recorder(RunInfo("test", "test", 0), lambda: (None, 0))


def new_tracer() -> Tracer:
    """A tracer that nobody looks at."""
    return new_recorder().tracer("node")


@attrs.define(eq=False)
class Watch:
    """Waits for events of a recorder, those of the past included."""

    recorder: Recorder
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.recorder.subscribe(self._note)

    def _note(self, _: Event) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def seen(self, matches: Callable[[Event], bool]) -> list[Event]:
        """The events so far that match."""
        return [event for event in self.recorder.events if matches(event)]

    async def until(self, matches: Callable[[Event], bool], *, times: int = 1, timeout_s: float = 10) -> Event:
        """Return the last of the first `times` events that match."""
        with trio.fail_after(timeout_s):
            while len(self.seen(matches)) < times:
                await self._changed.wait()
        return self.seen(matches)[times - 1]
