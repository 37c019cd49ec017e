"""What is told of an error in what others have written, such as an operator or an invariant: its text, file and line.

The place is the last one in the user's own code: an operator that calls `brokers.kill` with a wrong name raises in this
project, and the line to look at is the operator's.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

import rmq_actors
import sim_net
from rmq_actors.settings.field_types import on_one_line

#: What ends a run, and not the process: `sys.exit` in a scenario, too. KeyboardInterrupt is meant for the process.
MISTAKES = (Exception, SystemExit, GeneratorExit)
#: Where the code is that is not the user's own.
_OTHERS = (
    *(str(Path(package.__path__[0])) + "/" for package in (rmq_actors, sim_net)),
    *(sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    "<",
)


def told(error: BaseException) -> str:
    """The error in one line: its type, its text, and its place."""
    leaf = first_leaf(error)
    place = own_place(leaf) or _last_place(leaf)
    return what(leaf) + (f" ({place})" if place else "")


def what(error: BaseException) -> str:
    """The type of an error and its text, in one line."""
    try:
        text = str(error)
    except MISTAKES:
        text = "it has no text"
    return on_one_line(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def own_place(error: BaseException) -> str:
    """File and line of the last frame in the user's own code, of an error or of one in a group; "" without one."""
    for leaf in _leaves(error):
        for frame in reversed(traceback.extract_tb(leaf.__traceback__)):
            if not frame.filename.startswith(_OTHERS):
                return _place(frame)
    return ""


def is_interrupt(error: BaseException) -> bool:
    """Whether an exception is KeyboardInterrupt, perhaps in a group with what it made other tasks raise."""
    return any(isinstance(leaf, KeyboardInterrupt) for leaf in _leaves(error))


def first_leaf(error: BaseException) -> BaseException:
    """What a group holds first, or the error itself if it is not a group."""
    return next(_leaves(error))


def _last_place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return _place(frames[-1]) if frames else ""


def _place(frame: traceback.FrameSummary) -> str:
    return on_one_line(f"{Path(frame.filename).name}, line {frame.lineno}")


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for nested in error.exceptions:
            yield from _leaves(nested)
    else:
        yield error
