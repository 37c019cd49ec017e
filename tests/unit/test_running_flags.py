"""RunningFlags: RocketMQ's bits, each set and taken back by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.store.running_flags import RunningFlag, RunningFlags

flags = st.sampled_from(list(RunningFlag))


def test_the_bits_are_rocketmqs() -> None:
    assert {flag.name: flag.value for flag in RunningFlag} == {
        "NOT_READABLE": 1,
        "NOT_WRITEABLE": 2,
        "WRITE_LOGICS_QUEUE_ERROR": 4,
        "WRITE_INDEX_FILE_ERROR": 8,
        "DISK_FULL": 16,
        "FENCED": 32,
    }


@given(st.lists(st.tuples(flags, st.booleans())))
def test_any_row_of_changes_leaves_what_was_set_last(changes: list[tuple[RunningFlag, bool]]) -> None:
    running, model = RunningFlags(), dict[RunningFlag, str]()
    for number, (flag, is_set) in enumerate(changes):
        if is_set:
            assert running.set(flag, f"reason {number}") == (flag not in model)
            model[flag] = f"reason {number}"
        else:
            assert running.clear(flag) == (model.pop(flag, None) is not None)
        assert running.bits == sum(model)
        assert running.is_readable == (RunningFlag.NOT_READABLE not in model)
        against = [model[flag] for flag in sorted(model) if flag is not RunningFlag.NOT_READABLE]
        assert running.is_writeable == (not against)
        assert running.why_not_writeable == "; ".join(against)
