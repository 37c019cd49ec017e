"""What actors tell of themselves, as events: the body of `rmq_actors.actors.tracer.ActorTracer`."""

from __future__ import annotations

import abc

from rmq_actors.tracing.event import Event
from rmq_actors.tracing.events.actor import (
    ActorCrash,
    ActorDeadLetter,
    ActorHandlerFailed,
    ActorMessage,
    ActorRestart,
    ActorSend,
    ActorStart,
    ActorStop,
    ActorStuck,
    ActorWakeup,
)


class EmitsActorEvents(abc.ABC):
    """Emits an event for each call of an actor system."""

    __slots__ = ()

    @abc.abstractmethod
    def emit(self, event: Event, actor: str = "") -> int | None:
        """Record one event, and return its seq; None if nothing is recorded any more."""

    def actor_started(self, path: str) -> None:
        """An actor, a service or a supervisor is running."""
        self.emit(ActorStart(), path)

    def actor_restarted(self, path: str, cause: int | None) -> None:
        """It runs again; `cause` is the seq of the exit that made this necessary."""
        self.emit(ActorRestart(parent_seq=cause), path)

    def actor_stopped(self, path: str, status: str | None) -> int | None:
        """It has stopped; `status` is "finished" if nobody had asked it to."""
        return self.emit(ActorStop(status=status), path)

    def actor_crashed(self, path: str, error: BaseException) -> int | None:
        """It raised `error`."""
        return self.emit(ActorCrash(status=type(error).__name__, detail=str(error)), path)

    def actor_stuck(self, path: str, where: str) -> None:
        """It ignores its cancellation, and waits at `where`."""
        self.emit(ActorStuck(detail=where), path)

    def actor_woke(self, name: str, cause: str) -> None:
        """A service's wait has ended."""
        self.emit(ActorWakeup(status=cause), name)

    def handler_failed(self, path: str, error: BaseException) -> None:
        """A handler raised what its actor logs and goes on after."""
        self.emit(ActorHandlerFailed(status=type(error).__name__, detail=str(error)), path)

    def message_sent(self, sender: str, link_id: int, cause: int | None, to: str, message: str) -> int | None:
        """A message was sent; `cause` is the seq of the one that the sender was handling."""
        return self.emit(ActorSend(link_id=link_id, parent_seq=cause, to=to, message=message), sender)

    def message_handled(self, path: str, link_id: int, cause: int | None, message: str) -> int | None:
        """A message is about to be handled; `cause` is the seq of its sending."""
        return self.emit(ActorMessage(link_id=link_id, parent_seq=cause, message=message), path)

    def dead_letter(self, to: str, reason: str, message: str) -> None:
        """A message was not handled."""
        self.emit(ActorDeadLetter(status=reason, message=message), to)
