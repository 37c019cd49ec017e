"""Where the command `rmq-actors` begins. It imports next to nothing, so that Ctrl-C works from here on.

While the modules of a command are imported, an interrupt has nothing to tidy up. As an exception it could come out of
any line of any library, which might handle it as its own. So Ctrl-C ends the process at once until a command runs.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType

#: The exit code that a shell gives to a process that SIGINT has ended.
EXIT_CODE = 128 + signal.SIGINT
#: For a process that is a command; a program that imports this project keeps its own.
GC_THRESHOLD = (50_000, 20, 20)


def _end_at_once(_number: int, _frame: FrameType | None) -> None:
    # Not by print: the interrupt may have come within one.
    os.write(2, b"rmq-actors: interrupted\n")
    os._exit(EXIT_CODE)


def a_command_runs() -> None:
    """From now on an interrupt is KeyboardInterrupt again, if it was not ignored."""
    if signal.getsignal(signal.SIGINT) is _end_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def end_at_interrupts() -> None:
    """From now on an interrupt ends the process at once, if it was not ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_at_once)


def _open_what_was_closed() -> None:
    """Streams that were closed before the process began lead nowhere, and no file gets their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # each gets the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - for the whole process


def main() -> None:
    """Run the command line. Exit codes: 0 ok, 1 a check failed, 2 bad input, 3 crash, 4 liveness, 130 interrupted."""
    # Imports leave hardly any garbage: to look for it would take a tenth of the time that a command needs to start.
    gc.set_threshold(*GC_THRESHOLD)
    _open_what_was_closed()
    # If SIGINT is ignored, as in a shell's background processes, it stays ignored.
    end_at_interrupts()
    try:
        import typer  # noqa: F401  # the commands need it, and all else is in the core
    except ModuleNotFoundError:
        print("rmq-actors: the commands need the extra [cli]: pip install 'rmq-actors[cli]'", file=sys.stderr)
        sys.exit(2)  # ExitCode.BAD_INPUT
    from rmq_actors.cli.main import app

    app()


if __name__ == "__main__":
    # Not this module's own `main`: commands import `entry` by its name, and know the handler of that one alone.
    from rmq_actors.cli import entry  # noqa: PLW0406  # by another name it is another module

    entry.main()
