"""Whether a slave's log is a part of its master's, and up to where: pure decisions over single questions.

A question is an offset; its answer compares what the slave has there with the record that the master has there. Each
function is a generator that yields questions, is sent the answers, and returns what they mean.

A record names its offset, its time and its message. Where both have the same one, the logs before it are the same too:
so a log and its master's agree up to some record, and on nothing after it. Masters delete whole files from the log's
beginning, and a file begins with a record.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from enum import Enum
from typing import TypeVar

import attrs

from rmq_actors.wire.record import BLANK, BLANK_MAGIC

T = TypeVar("T")


class Answer(Enum):
    """What the master has at an offset, beside what the slave has there: a record, or a file's blank end."""

    SAME = "the same"
    OTHER = "another record"
    MISSING = "no record"


Questions = Generator[int, Answer, T]


def compare(ours: memoryview, theirs: bytes | None) -> Answer:
    """What the master's record says of `ours`: a record, the first bytes of one, or of a file's blank end."""
    if theirs is None:
        return Answer.MISSING
    if is_blank(ours):
        ours = ours[: BLANK.size]  # anything may follow its head
    return Answer.SAME if theirs[: len(ours)] == ours else Answer.OTHER


def is_blank(ours: memoryview) -> bool:
    """Whether these are the first bytes of a file's blank end."""
    return len(ours) >= BLANK.size and BLANK.unpack_from(ours)[1] == BLANK_MAGIC


@attrs.frozen
class LogTail:
    """The end of a slave's log: its last whole record, and what follows.

    `rests` are where a blank, or the beginning of a record, follows: at most one of each. Beside each stands whether it
    may be a blank: a master that ends there may yet end its file in the same way.
    """

    record_offset: int
    rests: Sequence[tuple[int, bool]] = ()


@attrs.frozen
class Divergence:
    """The slave's log is not a part of the master's: at `offset` it has something else."""

    offset: int
    answer: Answer

    def __str__(self) -> str:
        if self.answer is Answer.OTHER:
            return f"the master has another record at offset {self.offset}"
        return f"the master has no record at offset {self.offset}: it never had it, has lost it, or deleted it"


@attrs.frozen
class Ahead:
    """The master's log ends at `offset`; the slave's goes on there, with a file's blank end or less than its head.

    The master's next message tells whether it has the same log.
    """

    offset: int

    def __str__(self) -> str:
        return f"the master's log ends at {self.offset}, before a file's blank end, or less than a record's head"


def check_tail(tail: LogTail) -> Questions[Divergence | Ahead | None]:
    """None if the master has the end of this log. At most three questions, in good times one or two."""
    # A master that has deleted this record may go on right where this log ends, and yet never have had it.
    answer = yield tail.record_offset
    if answer is not Answer.SAME:
        return Divergence(tail.record_offset, answer)
    ahead: Ahead | None = None
    for offset, may_be_blank in tail.rests:
        answer = yield offset
        if answer is Answer.MISSING and may_be_blank:
            ahead = ahead or Ahead(offset)
        elif answer is not Answer.SAME:
            return Divergence(offset, answer)
    return ahead


def find_file(begins: Sequence[int]) -> Questions[int | None]:
    """The newest of the slave's files whose first record the master has too: its number in `begins`.

    None if there is none, -1 if the master has another log from the slave's first byte on. Asks one question per file
    that the master lacks at the end, and then at most log2 of the rest, rounded up.
    """
    number = len(begins) - 1
    # The master's log is shorter; or it begins later, which only older files tell.
    while number >= 0 and (answer := (yield begins[number])) is Answer.MISSING:
        number -= 1
    if number < 0:
        return None
    if answer is Answer.SAME:
        return number
    # What is missing now, before a file that the master has, was deleted there.
    low, low_answer, high = -1, Answer.OTHER, number
    while high - low > 1:
        middle = (low + high) // 2
        answer = yield begins[middle]
        if answer is Answer.OTHER:
            high = middle
        else:
            low, low_answer = middle, answer
    return None if low_answer is Answer.MISSING else low


def find_record(offsets: Sequence[int]) -> Questions[int | None]:
    """The last of a file's records that the master has too, by its number; it had the first one when it was asked.

    None if it has deleted the file since then: what it lacks after the last one tells nothing then. Asks at most log2
    of their number, rounded up, and one more question.
    """
    low, high, after = 0, len(offsets), Answer.OTHER
    while high - low > 1:
        middle = (low + high) // 2
        answer = yield offsets[middle]
        if answer is Answer.SAME:
            low = middle
        else:
            high, after = middle, answer
    if after is Answer.MISSING and (yield offsets[low]) is Answer.MISSING:
        return None
    return low
