"""What mypy and pyright must accept and refuse of trace events. Nothing here runs: see `actor_types`."""

from __future__ import annotations

from typing import assert_type

from rmq_actors.tracing.event import Event, attribute
from rmq_actors.tracing.events.ha import HaClientConnect, HaReport
from rmq_actors.tracing.events.store import LogAppend, LogRoll, PutEnd, StoreOpen
from rmq_actors.tracing.recorder import Recorder, Tracer


class JobDone(Event, kind="my_app.job_done", emitter="my_app"):
    """A kind of a program's own."""

    status: str
    job_name: str = attribute("my_app.job")
    took_s: float | None = None


class OffsetAsText(Event, kind="my_app.offset", emitter="my_app"):
    """A column has one type in every kind."""

    offset: str  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]


def emits(tracer: Tracer) -> None:
    """Right and wrong events."""
    tracer.emit(LogAppend(offset=1, size=2))
    tracer.emit(HaClientConnect(peer_address="10.0.0.1:10912"), "HAClient")
    tracer.emit(PutEnd(msg_id=1, msg_id_last=8, offset=900, status="PUT_OK"))
    tracer.emit(JobDone(status="ok", job_name="clean"))
    tracer.emit(LogAppended(offset=1, size=2))  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
    tracer.emit(LogAppend(offset=1))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    tracer.emit(LogAppend(offset=1, size=2, status="ok"))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    tracer.emit(LogAppend(offset="1", size=2))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    tracer.emit(LogAppend(1, 2))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    tracer.emit(LogAppend(offset=1, size=2, seq=3))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    tracer.emit(StoreOpen(offset=1, status="half"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    tracer.emit("log.append")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    tracer.emit(JobDone(status="ok"))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def on_append(event: LogAppend) -> None:
    """What a listener to one kind knows."""
    assert_type(event.offset, int)
    assert_type(event.node, str)
    assert_type(event.status, str | None)
    event.offset = 3  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    event.address  # type: ignore[attr-defined]  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def on_any(event: Event) -> None:
    """What a listener to all kinds knows."""
    assert_type(event.offset, int | None)
    if isinstance(event, HaReport):
        assert_type(event.offset, int)
    match event:
        case PutEnd(status=status):
            assert_type(status, str)
            assert_type(event.msg_ids, range)
        case _:
            pass


def subscribes(recorder: Recorder) -> None:
    """Listeners, and what they may be told of."""
    recorder.subscribe(on_any)
    recorder.subscribe(on_any, ["log.append"])
    recorder.subscribe(on_any, [LogAppend, LogRoll])
    recorder.subscribe(on_append, [LogAppend])
    recorder.subscribe(on_append, [LogRoll])  # type: ignore[arg-type, list-item]  # pyright: ignore[reportArgumentType, reportCallIssue]
    recorder.subscribe(on_append)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
