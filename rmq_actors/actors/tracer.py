"""What actors tell of themselves: `ActorTracer`, to which a program gives a body.

This package imports nothing else of rmq_actors. Brokers and simulated worlds pass the Tracer of `rmq_actors.tracing`,
which makes events of these calls.
"""

from __future__ import annotations

from typing import Protocol


class ActorTracer(Protocol):
    """Is told of each start, end and wait, at once, and of messages where a system traces those.

    A method must neither raise nor wait. A number that it returns stands for what it was told, and is given back as the
    cause of what follows from it; None stands for nothing.
    """

    def actor_started(self, path: str) -> object:
        """An actor, a service or a supervisor is running."""
        ...

    def actor_restarted(self, path: str, cause: int | None) -> object:
        """It runs again; `cause` stands for the exit that made this necessary."""
        ...

    def actor_stopped(self, path: str, status: str | None) -> int | None:
        """It has stopped; `status` is "finished" if nobody had asked it to."""
        ...

    def actor_crashed(self, path: str, error: BaseException) -> int | None:
        """It raised `error`."""
        ...

    def actor_stuck(self, path: str, where: str) -> object:
        """It ignores its cancellation, and waits at `where`."""
        ...

    def actor_woke(self, name: str, cause: str) -> object:
        """A service's wait has ended."""
        ...

    def handler_failed(self, path: str, error: BaseException) -> object:
        """A handler raised what its actor logs and goes on after."""
        ...

    def message_sent(self, sender: str, link_id: int, cause: int | None, to: str, message: str) -> int | None:
        """A message of the type `message` was sent; `cause` stands for the one that the sender was handling."""
        ...

    def message_handled(self, path: str, link_id: int, cause: int | None, message: str) -> int | None:
        """A message is about to be handled; `cause` stands for its sending."""
        ...

    def dead_letter(self, to: str, reason: str, message: str) -> object:
        """A message was not handled."""
        ...
