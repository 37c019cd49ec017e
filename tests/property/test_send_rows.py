"""Rows say what the general door would read of the same bytes, however those were split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.wire.frame_reader import FrameReader
from rmq_actors.wire.headers import decode_header, encode_header
from rmq_actors.wire.headers.messages import SendMessageRequestHeaderV2, SendMessageResponseHeader
from rmq_actors.wire.message_id import create_message_id
from rmq_actors.wire.properties import decode_properties, encode_properties
from rmq_actors.wire.record import encode_host
from rmq_actors.wire.remoting_command import RemotingCommand, encode_command
from rmq_actors.wire.send_rows import SendAnswers, SendRow, decode_row_or_command, row_properties
from tests.worlds.send_frames import FRAMES, PROPERTIES, frame

Found = RemotingCommand | SendRow


def split(data: bytes, sizes: list[int]) -> list[tuple[Found, RemotingCommand]]:
    """Each frame as the lane sees it, and as the general door would; received so many bytes at a time."""
    found: list[tuple[Found, RemotingCommand]] = []
    reader, rest, turn = FrameReader(), memoryview(data), 0
    while rest:
        with reader.free_space() as space:
            count = min(sizes[turn % len(sizes)], len(space), len(rest))
            space[:count] = rest[:count]
        reader.received(count)
        rest, turn = rest[count:], turn + 1
        while frames := reader.copied_frames(decode_row_or_command):
            for each in frames:
                if isinstance(each, SendRow):
                    check_row(each, each.command())
                found.append((each, each.command() if isinstance(each, SendRow) else each))
    return found


def check_row(row: SendRow, command: RemotingCommand) -> None:
    header = decode_header(SendMessageRequestHeaderV2, command)
    assert (row.opaque, row.is_oneway, row.version) == (command.opaque, command.is_oneway, command.version)
    assert (row.topic, row.queue_id, row.flag, row.sys_flag) == (
        header.topic,
        header.queue_id,
        header.flag,
        header.sys_flag,
    )
    assert (row.born_timestamp_ms, row.reconsume_times) == (header.born_timestamp, header.reconsume_times or 0)
    assert bytes(row.body) == command.body
    assert not header.batch
    properties = decode_properties((header.properties or "").encode())
    assert row.properties == encode_properties(properties, without="WAIT")
    assert properties.get("WAIT", "true") == "true"
    assert row.names == properties


@given(FRAMES, st.lists(st.integers(1, 3_000), min_size=1, max_size=5))
def test_any_split_gives_the_rows_and_commands_of_the_general_door(frames: list[bytes], sizes: list[int]) -> None:
    data = b"".join(frames)
    whole = FrameReader()
    expected: list[RemotingCommand] = []
    for each in frames:
        rest = memoryview(each)
        while rest:
            with whole.free_space() as space:
                count = min(len(space), len(rest))
                space[:count] = rest[:count]
            whole.received(count)
            rest = rest[count:]
            try:
                expected += whole.commands()
            except ValueError:
                return
    assert [command for _, command in split(data, [size * 100 for size in sizes])] == expected


def test_what_java_sends_is_a_row_and_what_is_special_is_none() -> None:
    def is_row(data: bytes) -> bool:
        return isinstance(decode_row_or_command(memoryview(data), 4, len(data)), SendRow)

    assert is_row(frame(1))
    assert is_row(frame(1, b"", 2))
    for text in PROPERTIES[4:]:
        plain = text.startswith(("XWAIT", "KEYS", "P\x01"))
        assert is_row(frame(1, i=text)) == plain, text
    for fields in ({"b": "%RETRY%CG"}, {"e": "-1"}, {"f": "4"}, {"f": "8"}, {"m": "true"}, {"unknown": "x"}):
        assert not is_row(frame(1, **fields)), fields


@given(st.text(alphabet="AWIT\x01\x02true\0\u00e9=", max_size=30) | st.sampled_from(PROPERTIES))
def test_properties_that_are_kept_are_those_that_were_decoded_and_encoded_again(text: str) -> None:
    kept = row_properties(text) if text else None
    if kept is not None:
        assert kept == (
            encode_properties(decode_properties(text.encode()), without="WAIT"),
            decode_properties(text.encode()),
        )


@pytest.mark.parametrize("region", ["DefaultRegion", 'a"%d\\ \u00e9'])
def test_an_answer_is_that_of_the_general_door(region: str) -> None:
    answers = SendAnswers.of(region, "true", encode_host("10.0.0.1:10911"))
    assert answers is not None
    for opaque, queue_id, queue_offset, offset in ((0, 0, 0, 0), (2**31 - 1, 7, 2**40, 2**45), (-1, 3, 5, 1000)):
        msg_id = create_message_id("10.0.0.1:10911", offset)
        header = encode_header(SendMessageResponseHeader(msg_id, queue_id, queue_offset))
        request = RemotingCommand(310, opaque=opaque)
        answer = request.response(0, None, header | {"MSG_REGION": region, "TRACE_ON": "true"})
        assert answers.frames([(offset, queue_id, queue_offset, opaque)]) == encode_command(answer)
