"""The log of a server process, of which its peers write a part: no line is endless, and no peer fills a disk with them.

    WARNING ... group 'x...': a peer's text           one line, 4,096 characters at most, control characters escaped
    WARNING ... (41 more lines like this were left out)      a place in the code says 100 lines per second at most

A line tells what a peer has sent: a topic, a remark, an error's text. With a line break in it a peer could write lines
of its own, with an escape sequence it could write on the terminal of whoever reads the log. What is left out is counted
and told by the next line of that place. A traceback ends with an error's text, which a peer may have written, too: its
lines are indented, so that none of them looks like a line of the log, escaped, and bounded in length and number.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from typing import Final

import attrs

MESSAGE_CHARS_MAX: Final = 4_096
LINES_PER_S_MAX: Final = 100
#: How many characters of each line of a traceback are shown, and how many lines: the first half and the last half.
TRACE_CHARS_MAX: Final = 500
TRACE_LINES_MAX: Final = 100
_CONTROLS = {number: f"\\x{number:02x}" for number in (*range(0x20), *range(0x7F, 0xA0))}
_CONTROLS |= {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\t", 0x2028: "\\u2028", 0x2029: "\\u2029"}
_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


class BoundedFormatter(logging.Formatter):
    """Writes each message as one line of bounded length; a traceback's lines after it are indented."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and those of a traceback and of a stack, if there are any."""
        record.message = record.getMessage()
        record.asctime = self.formatTime(record, self.datefmt)
        trace = record.exc_text or (self.formatException(record.exc_info) if record.exc_info else "")
        return "\n".join([self.formatMessage(record), *_indented(trace), *_indented(record.stack_info or "")])

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        """The line; `record.message` is what was logged."""
        record.message = bounded(record.message)
        if left_out := getattr(record, "left_out", 0):
            record.message += f" ({left_out} more lines like this were left out)"
        return super().formatMessage(record)


def bounded(message: str, chars_max: int = MESSAGE_CHARS_MAX) -> str:
    """A message that is one line, and can be written in any encoding of Unicode."""
    cut = message if len(message) <= chars_max else f"{message[:chars_max]}... ({len(message)} chars)"
    return cut.translate(_CONTROLS).encode(errors="backslashreplace").decode()


def _indented(trace: str) -> Iterator[str]:
    lines = trace.split("\n") if trace else []
    half = TRACE_LINES_MAX // 2
    if left_out := max(0, len(lines) - TRACE_LINES_MAX):
        lines[half:-half] = [f"... ({left_out} lines were left out)"]
    for line in lines:
        yield "    " + bounded(line, TRACE_CHARS_MAX)


@attrs.define(eq=False, repr=False)
class _Place:
    second: int
    lines: int = 0
    left_out: int = 0


@attrs.define(eq=False, repr=False)
class LinesPerSecond:
    """A filter of logging: lets so many lines of one place in the code pass within a second."""

    most: int = LINES_PER_S_MAX
    #: By file and line: as many as there are calls of loggers.
    _places: dict[tuple[str, int], _Place] = attrs.field(factory=dict, init=False)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record passes. It is told how many did not before it."""
        second = int(record.created)
        place = self._places.setdefault((record.pathname, record.lineno), _Place(second))
        if place.second != second:
            place.second, place.lines = second, 0
        place.lines += 1
        if place.lines > self.most:
            place.left_out += 1
            return False
        record.left_out, place.left_out = place.left_out, 0
        return True


def log_to_stdout() -> None:
    """Have this process log to standard output, from INFO on."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(BoundedFormatter(_FORMAT))
    handler.addFilter(LinesPerSecond())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
