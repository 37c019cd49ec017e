"""What may be removed when: the decision, and how old a file of the log is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.lifecycle.clean_services import CleaningDecision, decide, last_store_timestamp, used_percent
from rmq_actors.store.read.queue_offsets import NO_TIME
from rmq_actors.wire.record import Message, encode_blank, encode_message

DEFAULT = MessageStoreConfig()


@pytest.mark.parametrize(
    ("percent", "hour", "manual", "expected"),
    [
        (10, 3, False, ("", False, False)),
        (10, 4, False, ("deleteWhen", False, False)),
        (10, 3, True, ("by hand", False, False)),
        (75, 3, False, ("", False, False)),
        (76, 3, False, ("disk used 76 %", False, False)),
        (85, 4, True, ("disk used 85 %", False, False)),
        (86, 3, False, ("disk used 86 %", True, False)),
        (90, 3, False, ("disk used 90 %", True, False)),
        (91, 3, False, ("disk used 91 %", True, True)),
        (None, 3, False, ("disk usage unknown", False, None)),
    ],
)
def test_the_decision_is_49s(
    percent: int | None, hour: int, manual: bool, expected: tuple[str, bool, bool | None]
) -> None:
    assert decide(DEFAULT, percent, hour, manual=manual) == CleaningDecision(*expected)


def test_settings_of_the_decision() -> None:
    careful = MessageStoreConfig(clean_file_forcibly_enable=False, delete_when="00;13")
    assert decide(careful, 99, 1, manual=False) == CleaningDecision("disk used 99 %", False, True)
    assert [hour for hour in range(24) if decide(careful, 0, hour, manual=False).reason] == [0, 13]


@pytest.mark.parametrize("text", ["", "24", "4;", "-1", "four", "4,5", "٤"])
def test_hours_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"deleteWhen .* is not a list of hours"):
        MessageStoreConfig(delete_when=text)


@given(st.integers(0, 10**15), st.integers(0, 10**15))
def test_used_is_rounded_up_and_never_over(used: int, available: int) -> None:
    percent = used_percent(used, available)
    assert 0 <= percent <= 100
    assert percent * (used + available) >= 100 * used
    assert (percent - 1) * (used + available) < 100 * used or not used


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=40), st.integers(0, 5), st.booleans())
def test_the_last_record_of_a_file_is_found_from_its_end(bodies: list[bytes], files_before: int, exact: bool) -> None:
    begin, data = files_before * (1 << 20), bytearray()
    for number, body in enumerate(bodies):
        encoded = encode_message(Message("T", body))
        encoded.place(queue_offset=number, physical_offset=begin + len(data), store_timestamp_ms=1000 + number)
        data += encoded.data
    if not exact:
        data += encode_blank(100_000) + bytes(100_000 - 8)
    assert last_store_timestamp(memoryview(data), begin) == 999 + len(bodies)
    # Elsewhere in the log these are no records.
    assert last_store_timestamp(memoryview(data), begin + 1) == NO_TIME


def test_a_body_that_holds_records_is_not_taken_for_the_end() -> None:
    inner = encode_message(Message("T", b"in"))
    inner.place(queue_offset=0, physical_offset=88, store_timestamp_ms=7)
    outer = encode_message(Message("T", bytes(inner.data) + bytes(10)))
    outer.place(queue_offset=0, physical_offset=0, store_timestamp_ms=5)
    assert last_store_timestamp(memoryview(outer.data), 0) == 5


def test_an_empty_file_has_no_last_record() -> None:
    assert last_store_timestamp(memoryview(bytes(100_000)), 0) == NO_TIME
