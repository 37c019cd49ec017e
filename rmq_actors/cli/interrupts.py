"""Ctrl-C: a command ends with exit code 130, says how far it came, and leaves no spool and no process behind.

Before a command runs, `entry` ends the process. broker and namesrv serve until a signal: for them SIGINT is an order to
stop (`stop_signals`), and until they take signals `entry` ends the process. If SIGINT is ignored, as in a shell's
background processes, it stays ignored.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

from rmq_actors.cli.entry import EXIT_CODE, a_command_runs, end_at_interrupts


def is_interrupt(error: BaseException) -> bool:
    """Whether an exception is KeyboardInterrupt, perhaps in a group with what it made other tasks raise."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_interrupt, error.exceptions))
    return isinstance(error, KeyboardInterrupt)


@contextlib.contextmanager
def exits_with_130(what: Callable[[], str]) -> Iterator[None]:
    """Let an interrupt within the block end the process, with one line that tells `what` was interrupted."""
    try:
        yield
    except BaseException as error:
        if not is_interrupt(error):
            raise
        print(what(), file=sys.stderr)
        raise SystemExit(EXIT_CODE) from None


@contextlib.contextmanager
def a_server_runs() -> Iterator[None]:
    """Until it takes signals itself, an interrupt ends the process at once, if it was not ignored.

    It imports much first, and Python passes over an exception in what it runs at the end of an import.
    """
    end_at_interrupts()
    try:
        yield
    finally:
        a_command_runs()


@contextlib.contextmanager
def held_back() -> Iterator[Callable[[], bool]]:
    """Within the block SIGINT only answers true to the question that is yielded; a second one is KeyboardInterrupt.

    For runs in simulated worlds: an interrupt in the middle of a run would make it another run than its seed's.
    """
    came = False

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, note)
    try:
        yield lambda: came
    finally:
        if before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, before)
