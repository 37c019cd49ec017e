"""Actors, services and supervisors, and the messages between actors where those are traced."""

from __future__ import annotations

from rmq_actors.tracing.event import Event


class ActorStart(Event, kind="actor.start", emitter="tracing.actor_tracer"):
    """An actor, a service or a supervisor is running."""


class ActorStop(Event, kind="actor.stop", emitter="tracing.actor_tracer"):
    """An actor has stopped; status finished: by itself."""

    status: str | None = None


class ActorCrash(Event, kind="actor.crash", emitter="tracing.actor_tracer"):
    """An actor raised; status: what."""

    status: str
    detail: str


class ActorRestart(Event, kind="actor.restart", emitter="tracing.actor_tracer"):
    """An actor was restarted; parent_seq: the exit that made it necessary."""

    parent_seq: int | None = None


class ActorStuck(Event, kind="actor.stuck", emitter="tracing.actor_tracer"):
    """An actor ignores its cancellation; detail: where it waits."""

    detail: str


class ActorHandlerFailed(Event, kind="actor.handler_failed", emitter="tracing.actor_tracer"):
    """A handler raised what its actor logs and goes on after."""

    status: str
    detail: str


class ActorWakeup(Event, kind="actor.wakeup", emitter="tracing.actor_tracer"):
    """A wait ended; status: interval, or who woke it."""

    status: str


class ActorSend(Event, kind="actor.send", emitter="tracing.actor_tracer"):
    """A message was sent by this actor."""

    link_id: int
    to: str
    message: str
    parent_seq: int | None = None


class ActorMessage(Event, kind="actor.message", emitter="tracing.actor_tracer"):
    """A message is handled; parent_seq: its actor.send."""

    link_id: int
    message: str
    parent_seq: int | None = None


class ActorDeadLetter(Event, kind="actor.dead_letter", emitter="tracing.actor_tracer"):
    """A message was not handled; status says why."""

    status: str
    message: str
