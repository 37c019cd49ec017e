"""What peers have a server process log is one line each, of bounded length, and not without end."""

from __future__ import annotations

import logging

from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.cli.log_lines import MESSAGE_CHARS_MAX, BoundedFormatter, LinesPerSecond, bounded


def record(message: str, second: float = 0.0, line: int = 1) -> logging.LogRecord:
    made = logging.LogRecord("x", logging.WARNING, "file.py", line, "%s", (message,), None)
    made.created = second
    return made


@given(st.text(st.characters(), max_size=50) | st.text(min_size=MESSAGE_CHARS_MAX, max_size=MESSAGE_CHARS_MAX + 9))
def test_any_text_is_one_line_that_can_be_written(text: str) -> None:
    line = bounded(text)
    assert line.splitlines() in ([line], [])
    line.encode()
    assert not any(ord(each) < 0x20 and each != "\t" for each in line)
    assert len(line) <= 10 * MESSAGE_CHARS_MAX + 100


def test_plain_text_stays_as_it_is_and_long_text_is_cut() -> None:
    assert bounded("größer als\t3") == "größer als\t3"
    assert bounded("a\nERROR forged\x1b[2J") == "a\\nERROR forged\\x1b[2J"
    assert bounded("x" * 5000) == "x" * MESSAGE_CHARS_MAX + "... (5000 chars)"


def test_a_place_says_so_many_lines_a_second_and_then_how_many_it_did_not() -> None:
    lines, format_ = LinesPerSecond(2), BoundedFormatter("%(message)s").format
    told = [each for number in range(5) if lines.filter(each := record(f"{number}", 7.1))]
    told += [each for second in (7.9, 8.0) if lines.filter(each := record("other", second, line=2))]
    told += [each for number in range(2) if lines.filter(each := record(f"later {number}", 8.5))]
    assert list(map(format_, told)) == [
        *("0", "1", "other", "other", "later 0 (3 more lines like this were left out)", "later 1"),
    ]


def test_a_traceback_stays() -> None:
    failed = record("what a peer sent: c\nd")
    failed.exc_text = "Traceback\nValueError: a\nb"
    lines = BoundedFormatter("%(message)s").format(failed).splitlines()
    assert lines == ["what a peer sent: c\\nd", "Traceback", "ValueError: a", "b"]
