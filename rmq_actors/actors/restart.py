"""When a child that ended is made again, and which of its siblings with it: pure decisions, after OTP's supervisor.

https://www.erlang.org/doc/system/sup_princ: strategies, restart types and intensity mean what they mean there, but
intensity is counted per child, pauses grow, and a failure of a type that `on` does not name goes up at once.
"""

from __future__ import annotations

from typing import Literal, TypeVar, get_args

import attrs

from rmq_actors.actors.field_checks import check_number, check_tuple, check_whole_number, one_of

#: Which children a restart takes along. `one_for_one`: none. `one_for_all`: all. `rest_for_one`: those started later.
Strategy = Literal["one_for_one", "one_for_all", "rest_for_one"]

#: `permanent`: made again however it ended. `transient`: only after a crash. `temporary`: never; a crash is logged.
RestartType = Literal["permanent", "transient", "temporary"]

#: `finished`: returned by itself. `crashed`: raised. `stopped`: was asked to stop, or cancelled.
ExitKind = Literal["finished", "crashed", "stopped"]

Verdict = Literal["restart", "remove", "escalate"]

T = TypeVar("T")


@attrs.frozen
class Exit:
    """How one life of a child ended; `error` is what it raised."""

    kind: ExitKind
    error: Exception | None = None


@attrs.frozen
class Terminated:
    """An actor has ended and will not be restarted. `error` is what it raised if it crashed."""

    path: str
    kind: ExitKind
    error: Exception | None = None


@attrs.frozen
class Restart:
    """When to make a child again. Times are in seconds.

    At most `restarts_max` restarts in any `within_s`; the pause doubles from `initial_pause_s` to `pause_max_s`, with
    up to as much again of jitter. A failure of another type than `on` goes up at once, and so does one too many.
    """

    on: tuple[type[Exception], ...] = attrs.field(default=(Exception,), validator=check_tuple)
    restarts_max: int = attrs.field(default=5, validator=[check_whole_number, attrs.validators.ge(0)])
    within_s: float = attrs.field(default=60.0, validator=[check_number, attrs.validators.gt(0.0)])
    initial_pause_s: float = attrs.field(default=0.1, validator=[check_number, attrs.validators.ge(0.0)])
    pause_max_s: float = attrs.field(default=5.0, validator=[check_number, attrs.validators.ge(0.0)])
    type: RestartType = attrs.field(default="permanent", validator=one_of(get_args(RestartType)))

    def verdict(self, ended: Exit) -> Verdict:
        """What to do about an exit, intensity aside."""
        if ended.kind == "stopped" or self.type == "temporary":
            return "remove"
        if ended.kind == "finished":
            return "restart" if self.type == "permanent" else "remove"
        return "restart" if covers(self.on, ended.error) else "escalate"


#: A failure goes up at once.
ESCALATE = Restart(on=())


def covers(types: tuple[type[Exception], ...], error: BaseException | None) -> bool:
    """Whether `error`, or each one in it if it is a group, is of one of `types`."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(types)[1] is None
    return isinstance(error, types)


@attrs.define(eq=False, repr=False)
class History:
    """The restarts of one child that still count."""

    _times: list[float] = attrs.field(factory=list, init=False)

    def pause_s(self, restart: Restart, now: float, chance: float) -> float | None:
        """Count a restart that is due now: how long to wait before it, in seconds; None if it is one too many.

        `chance` in [0, 1) is the jitter.
        """
        self._times = [time for time in self._times if now - time < restart.within_s] + [now]
        if len(self._times) > restart.restarts_max:
            return None
        pause_s = min(restart.initial_pause_s * 2.0 ** min(len(self._times) - 1, 64), restart.pause_max_s)
        return pause_s * (1 + chance)


def affected(strategy: Strategy, children: list[T], ended: T) -> list[T]:
    """The children that a restart of `ended` takes along, itself included, in the order of their start."""
    if strategy == "one_for_one":
        return [ended]
    if strategy == "one_for_all":
        return children
    return children[children.index(ended) :]


def first_leaf(error: BaseException) -> BaseException:
    """The first exception of a group that is not itself a group: the one to name."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
