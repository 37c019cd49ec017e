"""What peers have a server process log is one line each, of bounded length, and not without end."""

from __future__ import annotations

import logging

from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.cli.log_lines import (
    MESSAGE_CHARS_MAX,
    TRACE_CHARS_MAX,
    TRACE_LINES_MAX,
    BoundedFormatter,
    LinesPerSecond,
    bounded,
)


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


def failed(error: Exception) -> list[str]:
    """The lines of a failure that is logged with its traceback."""
    made = record("what a peer sent: c\nd")
    try:
        raise error
    except ValueError as raised:
        made.exc_info = type(raised), raised, raised.__traceback__
    first, *rest = BoundedFormatter("%(message)s").format(made).split("\n")
    assert first == "what a peer sent: c\\nd"
    return rest


def test_no_line_of_a_traceback_looks_like_one_of_the_log() -> None:
    """An error's text may be a peer's."""
    forged = "\n2026-01-01 00:00:00,000 ERROR forged\x1b[2J\rand\u2028more"
    lines = failed(ValueError(f"a topic{forged}"))
    assert lines[0] == "    Traceback (most recent call last):"
    assert lines[-2:] == [
        "    ValueError: a topic",
        "    2026-01-01 00:00:00,000 ERROR forged\\x1b[2J\\rand\\u2028more",
    ]
    assert all(line.startswith("    ") for line in lines)
    assert "\n".join(lines).splitlines() == lines


@given(st.text(max_size=20), st.integers(1, 3000), st.integers(1, 3000))
def test_a_traceback_is_bounded_and_shows_its_beginning_and_its_end(text: str, times: int, breaks: int) -> None:
    lines = failed(ValueError((text * times)[:5000] + "\n" * breaks + "the end"))
    assert lines[0] == "    Traceback (most recent call last):"
    assert lines[-1].endswith("the end")
    assert len(lines) <= TRACE_LINES_MAX + 1
    assert max(map(len, lines)) <= 10 * TRACE_CHARS_MAX + 50
