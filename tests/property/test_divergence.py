"""The search for what two logs have in common, against logs of which that is known; any pair, any cut, any deletion."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Literal

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.ha.log_comparison import LogComparison
from rmq_actors.protocols.divergence import Ahead, Answer, Divergence, Questions, compare, find_record
from rmq_actors.store.read.log_records import LogCleaned, LogRecords
from rmq_actors.wire.record import BLANK, MESSAGE_MAGIC, encode_blank
from tests.worlds.log_pairs import FILE_BYTES, Log, Master, log_of

COMMON = [(100, "c0"), (100, "c1"), (100, "c2")]
sizes = st.lists(st.integers(16, FILE_BYTES - BLANK.size) | st.integers(16, 40), max_size=25)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Log, Log, int]:
    """A slave's log, its master's, and how many records they have in common."""
    common = [(size, f"c{number}") for number, size in enumerate(draw(sizes))]
    ours = log_of([*common, *((size, f"o{number}") for number, size in enumerate(draw(sizes)))])
    theirs = log_of([*common, *((size, f"t{number}") for number, size in enumerate(draw(sizes)))])
    parted = log_of(common).max_offset
    near = st.integers(parted, parted + 40) | st.just(parted - parted % FILE_BYTES + FILE_BYTES)
    if draw(st.booleans()):
        ours = ours.cut(draw(st.integers(0, ours.max_offset) | near))
    if draw(st.booleans()):
        theirs = theirs.cut(draw(st.sampled_from([*theirs.offsets, theirs.max_offset])))
    deleted = draw(st.integers(0, 3) | st.just(0) | st.just(ours.max_offset // FILE_BYTES))
    return ours, theirs.delete(deleted), len(common)


def common_end(ours: Log, theirs: Log, common: int) -> int | None:
    """What the search must find."""
    same = [offset for offset in ours.offsets[:common] if offset in set(theirs.offsets)]
    if same:
        return ours.end(same[-1])
    return 0 if ours.data and 0 in theirs.offsets else None


@given(pairs(), st.sampled_from(["own", "java"]))
def test_the_search_finds_exactly_the_common_prefix_with_few_questions(
    pair: tuple[Log, Log, int], kind: Literal["own", "java"]
) -> None:
    ours, theirs, common = pair
    comparison = LogComparison(Master(theirs, kind), LogRecords(ours))
    assert trio.run(comparison.common_end) == common_end(ours, theirs, common)
    begins = LogRecords(ours).file_begins()
    lacking = sum(begin not in theirs.offsets for begin in begins)
    logs = math.ceil(math.log2(len(begins) + 1)) + math.ceil(math.log2(FILE_BYTES / 16 + 1))
    assert comparison.questions <= lacking + 2 + logs


@given(pairs(), st.sampled_from(["own", "java"]), st.data())
def test_a_log_is_followed_if_and_only_if_it_is_a_part_of_the_masters(
    pair: tuple[Log, Log, int], kind: Literal["own", "java"], data: st.DataObject
) -> None:
    ours, theirs, _ = pair
    near = data.draw(st.sampled_from([None, 13, ours.max_offset, *ours.offsets[-5:]]))
    comparison = LogComparison(Master(theirs, kind), LogRecords(ours))
    found = trio.run(comparison.divergence, near)
    assert comparison.questions <= 3
    begin, end = theirs.min_offset, ours.max_offset
    is_part = end <= theirs.max_offset and ours.data[begin:] == theirs.data[begin:end]
    if not ours.data:
        assert comparison.questions == 0
        return
    last, rest_at = (ours.offsets[-1], ours.end(ours.offsets[-1])) if ours.offsets else (0, 0)
    if begin > last:
        # The master has deleted what could tell, though it may go on right there.
        assert isinstance(found, Divergence)
        return
    assert (found is None) is is_part
    if isinstance(found, Ahead):
        # Nothing of a message is behind the master's end.
        assert rest_at <= found.offset == theirs.max_offset < end
        assert ours.data[begin : found.offset] == theirs.data[begin:]
        rest = ours.data[found.offset :]
        if rest[4:8] == encode_blank(8)[4:]:
            rest = rest[FILE_BYTES - found.offset % FILE_BYTES :]
        assert len(rest) < BLANK.size


@attrs.define
class Moving:
    """A master that appends, and cleans, between two questions: what it has at each, the last one from then on."""

    logs: Sequence[Log]
    kind: Literal["own", "java"]
    _asked: int = attrs.field(default=0, init=False)

    @property
    def now(self) -> Log:
        return self.logs[min(max(self._asked - 1, 0), len(self.logs) - 1)]

    async def record_at(self, offset: int) -> bytes | None:
        self._asked += 1
        return await Master(self.now, self.kind).record_at(offset)


@st.composite
def moving_masters(draw: st.DrawFn) -> tuple[Log, Moving]:
    """A slave's log, and a master that has another one, or the same, and goes on meanwhile."""
    common = [(size, f"c{number}") for number, size in enumerate(draw(sizes))]
    ours = log_of([*common, *((size, f"o{number}") for number, size in enumerate(draw(sizes)))])
    theirs = log_of([*common, *((size, f"t{number}") for number, size in enumerate(draw(sizes)))])
    parted = log_of(common).max_offset
    file_end = parted - parted % FILE_BYTES + FILE_BYTES
    ours = ours.cut(draw(st.integers(0, ours.max_offset) | st.just(file_end) | st.integers(file_end, file_end + 20)))
    ends = sorted(draw(st.lists(st.sampled_from([*theirs.offsets, theirs.max_offset]), min_size=1, max_size=4)))
    begins = sorted(draw(st.lists(st.integers(0, 2), min_size=len(ends), max_size=len(ends))))
    logs = [theirs.cut(end).delete(files) for end, files in zip(ends, begins, strict=True)]
    return ours, Moving(logs, draw(st.sampled_from(["own", "java"])))


@given(moving_masters())
def test_a_master_that_moves_on_between_two_questions_is_never_taken_for_another(pair: tuple[Log, Moving]) -> None:
    ours, master = pair
    comparison = LogComparison(master, LogRecords(ours))
    found = trio.run(comparison.divergence, None)
    assert comparison.questions <= 3
    if found is None and ours.data:
        begin, end = master.now.min_offset, ours.max_offset
        assert end <= master.now.max_offset
        assert ours.data[begin:end] == master.now.data[begin:end]


def records_in_common(ours: Log, theirs: Log) -> list[int]:
    """Where the records end that both have: of theirs, those that are not deleted."""
    both = set(ours.offsets).intersection(theirs.offsets)
    ends = [(each, ours.end(each)) for each in sorted(both)]
    return [end for begin, end in ends if ours.data[begin:end] == theirs.data[begin:end]]


@given(moving_masters())
def test_a_search_while_the_master_moves_on_finds_where_the_logs_part_or_nothing(pair: tuple[Log, Moving]) -> None:
    ours, master = pair
    if not ours.data:
        return
    found = trio.run(LogComparison(master, LogRecords(ours)).common_end)
    before, now = records_in_common(ours, master.logs[0]), records_in_common(ours, master.now)
    if found is None:
        assert not before or not now or before[-1] <= master.now.min_offset
        return
    # Nothing that the master has is changed: it grows, and what it had at first it has still, or has deleted.
    assert ours.data[:found] == master.now.data[:found]
    assert not before or found >= before[-1]


def test_a_file_that_the_master_deletes_during_the_search_is_not_where_the_logs_part() -> None:
    """A slave was cut one record too early (found_cases/file_deleted_while_the_logs_are_compared.json)."""
    common = [(40, f"c{number}") for number in range(4)]
    ours = log_of([*common, (40, "o0")])
    theirs = log_of([*common, *((40, f"t{number}") for number in range(4))])
    for questions in range(1, 6):
        master = Moving([*[theirs] * questions, theirs.delete(1)], "own")
        found = trio.run(LogComparison(master, LogRecords(ours)).common_end)
        assert found in {None, log_of(common).max_offset}, questions


@pytest.mark.parametrize("empty_answers", [1, 2, 3])
def test_a_master_that_lost_a_file_and_grows_past_it_has_not_deleted_it(empty_answers: int) -> None:
    grown = log_of([(120, "t0"), (60, "t1"), *COMMON])
    master = Moving([*[log_of([])] * empty_answers, grown], "own")
    found = trio.run(LogComparison(master, LogRecords(log_of(COMMON).cut(FILE_BYTES))).divergence, None)
    assert isinstance(found, Divergence)


@pytest.mark.parametrize("count", [1, 2, 3, 1000, 1_000_000])
def test_a_file_of_many_records_takes_log2_of_them(count: int) -> None:
    offsets = range(0, 100 * count, 100)
    for same in {1, count // 3 or 1, count}:
        found, asked = answered(find_record(offsets), functools.partial(operator.gt, 100 * same))
        assert found == same - 1
        assert asked <= math.ceil(math.log2(count))


def answered(questions: Questions[int | None], is_same: Callable[[int], bool]) -> tuple[int | None, int]:
    """What they find, and how many they are."""
    asked = 0
    try:
        offset = next(questions)
        while True:
            asked += 1
            offset = questions.send(Answer.SAME if is_same(offset) else Answer.OTHER)
    except StopIteration as end:
        return end.value, asked


@pytest.mark.parametrize(
    ("ours", "theirs", "answer"),
    [
        (b"0123456789", None, Answer.MISSING),
        (b"0123456789", b"0123456789", Answer.SAME),
        (b"0123456789", b"0123456780", Answer.OTHER),
        (b"0123456789", b"01234567890", Answer.SAME),
        (b"0123456789", b"012345678", Answer.OTHER),
        (b"0123456789", b"", Answer.OTHER),
        (b"", b"0123", Answer.SAME),
        (encode_blank(20) + b"left over", encode_blank(20) + bytes(12), Answer.SAME),
        (encode_blank(20), BLANK.pack(20, MESSAGE_MAGIC) + bytes(12), Answer.OTHER),
    ],
)
def test_what_an_answer_means(ours: bytes, theirs: bytes | None, answer: Answer) -> None:
    assert compare(memoryview(ours), theirs) is answer


SLAVE, OTHER = log_of([*COMMON, (100, "o0")]), log_of([*COMMON, (100, "t0")])


@pytest.mark.parametrize(
    ("ours", "theirs", "own", "java"),
    [
        (SLAVE, SLAVE, "None in 1", "None in 1"),
        (SLAVE.cut(356), SLAVE, "None in 1", "None in 1"),
        (SLAVE.cut(306), SLAVE, "None in 3", "None in 3"),
        (SLAVE.cut(256), SLAVE, "None in 2", "None in 2"),
        (SLAVE.cut(256), log_of([(100, "c0"), (100, "c1"), (48, "t0")]), "OTHER at 200 in 2", "OTHER at 200 in 2"),
        # The master's next message may not fit its file either, or be short enough.
        (SLAVE.cut(256), SLAVE.cut(200), "ahead at 200 in 2", "ahead at 200 in 2"),
        (SLAVE.cut(206), SLAVE.cut(200), "ahead at 200 in 2", "ahead at 200 in 2"),
        (SLAVE.cut(206), log_of([*COMMON[:2], (20, "t0")]), "OTHER at 200 in 2", "OTHER at 200 in 2"),
        (SLAVE.cut(260), SLAVE.cut(256), "ahead at 256 in 3", "ahead at 256 in 3"),
        (SLAVE.cut(260), SLAVE.cut(200), "ahead at 200 in 3", "ahead at 200 in 3"),
        (SLAVE.cut(300), SLAVE.cut(200), "MISSING at 256 in 3", "MISSING at 256 in 3"),
        (log_of([]), SLAVE, "None in 0", "None in 0"),
        # Of the first record a part has come.
        (SLAVE.cut(50), OTHER, "None in 1", "None in 1"),
        (SLAVE.cut(5), OTHER, "None in 1", "None in 1"),
        (SLAVE.cut(50), log_of([(100, "t0")]), "OTHER at 0 in 1", "OTHER at 0 in 1"),
        (SLAVE.cut(50), log_of([]), "MISSING at 0 in 1", "MISSING at 0 in 1"),
        (SLAVE, OTHER, "OTHER at 356 in 1", "OTHER at 356 in 1"),
        (SLAVE, OTHER.cut(356), "MISSING at 356 in 1", "MISSING at 356 in 1"),
        (SLAVE, log_of([*COMMON, (60, "t0"), (60, "t1")]), "OTHER at 356 in 1", "OTHER at 356 in 1"),
        (SLAVE, log_of([*COMMON[:2], (20, "t0"), (200, "t1")]), "MISSING at 356 in 1", "MISSING at 356 in 1"),
        # Of the last record a part has come.
        (SLAVE.cut(455), SLAVE, "None in 2", "None in 2"),
        (SLAVE.cut(455), OTHER, "OTHER at 356 in 2", "OTHER at 356 in 2"),
        (SLAVE.cut(366), log_of([*COMMON, (60, "t0")]), "OTHER at 356 in 2", "OTHER at 356 in 2"),
        (SLAVE.cut(366), OTHER.cut(356), "MISSING at 356 in 2", "MISSING at 356 in 2"),
        (SLAVE.cut(263), OTHER, "None in 3", "None in 3"),
        (SLAVE.cut(265), log_of([*COMMON[:2], (20, "t0"), (100, "t1")]), "OTHER at 200 in 2", "OTHER at 200 in 2"),
        # The master has deleted the last file: that its log goes on where this one ends tells nothing.
        (log_of(COMMON).cut(256), log_of(COMMON).delete(1), "MISSING at 100 in 1", "MISSING at 100 in 1"),
        (log_of(COMMON).cut(248), log_of(COMMON).delete(1), "MISSING at 100 in 1", "MISSING at 100 in 1"),
        (log_of(COMMON).cut(260), log_of(COMMON).delete(1), "MISSING at 100 in 1", "MISSING at 100 in 1"),
        (log_of(COMMON).cut(300), log_of(COMMON).delete(1), "MISSING at 100 in 1", "MISSING at 100 in 1"),
        (SLAVE.cut(300), log_of([*COMMON[:2], (90, "t0")]).delete(1), "MISSING at 100 in 1", "MISSING at 100 in 1"),
        (log_of(COMMON).cut(256), log_of([]), "MISSING at 100 in 1", "MISSING at 100 in 1"),
        (
            log_of(COMMON).cut(256),
            log_of([(120, "t0"), (60, "t1"), *COMMON]),
            "MISSING at 100 in 1",
            "MISSING at 100 in 1",
        ),
    ],
)
def test_what_the_end_of_a_log_tells(ours: Log, theirs: Log, own: str, java: str) -> None:
    kinds: list[tuple[Literal["own", "java"], str]] = [("own", own), ("java", java)]
    for kind, expected in kinds:
        comparison = LogComparison(Master(theirs, kind), LogRecords(ours))
        found = trio.run(comparison.divergence, None)
        if isinstance(found, Ahead):
            text = f"ahead at {found.offset}"
        else:
            text = "None" if found is None else f"{found.answer.name} at {found.offset}"
        assert f"{text} in {comparison.questions}" == expected, kind


def test_a_file_that_is_cleaned_meanwhile_is_named() -> None:
    """Cleaning goes on while the master is asked."""
    ours = [log_of([(200, f"o{number}") for number in range(4)])]

    class Changing:
        min_offset, max_offset, file_size_bytes = 0, ours[0].max_offset, FILE_BYTES

        def file_at(self, offset: int) -> tuple[memoryview, int]:
            if offset < ours[0].min_offset:
                raise ValueError(f"offset {offset} is not in the log")
            return ours[0].file_at(offset)

    class Cleaning(Master):
        async def record_at(self, offset: int) -> bytes | None:
            ours[0] = ours[0].delete(2)
            return await super().record_at(offset)

    comparison = LogComparison(Cleaning(log_of([]), "own"), LogRecords(Changing()))
    with pytest.raises(LogCleaned, match="offset 256 is not in the log: it was cleaned meanwhile"):
        trio.run(comparison.common_end)


def test_some_pairs_of_each_kind_are_tried() -> None:
    """The model itself: a record that is cut, a file that ends in a blank, a master that begins later."""
    log = log_of([(100, "c0"), (100, "c1"), (60, "c2"), (16, "c3")])
    assert log.offsets == [0, 100, 256, 316]
    assert [log.end(each) for each in log.offsets] == [100, 200, 316, 332]
    assert log.cut(320).offsets == [0, 100, 256]
    assert log.delete(1).offsets == [256, 316]
    assert list(itertools.chain(LogRecords(log.cut(260)).file_begins())) == [0]
