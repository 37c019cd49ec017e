"""Hostile peers of servers, clients and name servers: some seeds of `tests.fuzz`, and what they have found."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_actors.wire.frame_reader import BUFFER_BYTES, FrameReader
from rmq_actors.wire.remoting_command import (
    FRAME_MAX_LENGTH_BYTES,
    HEADER_MAX_LENGTH_BYTES,
    RemotingCommand,
    RemotingCommandError,
    decode_command,
    encode_command,
)
from tests.fuzz import CASES, decoder_case
from tests.fuzz.mutations import Mutator, golden_frames, pieces
from tests.worlds.fed_frames import feed

HELD, FAIL, POOLED, BIG = 901, 902, 903, 904
LIMITS = st.sampled_from((64, 1000, 100_000, FRAME_MAX_LENGTH_BYTES))


@given(st.lists(st.binary(max_size=200), max_size=8), LIMITS)
def test_any_bytes_are_frames_or_one_error(parts: list[bytes], frame_max_length_bytes: int) -> None:
    decoder_case.check_stream(b"".join(parts), parts, frame_max_length_bytes)


@given(st.sampled_from((b"\0\0\0\x40\0\0\0\x3c", b"\0\0\0\x40\x01\0\0\x3c")), st.binary(min_size=60, max_size=80))
def test_any_header_is_a_command_or_one_error(lengths: bytes, data: bytes) -> None:
    decoder_case.check_stream(lengths + data, [lengths, data], 1000)


@given(st.integers(0, 2**32))
def test_spoiled_frames_are_frames_or_one_error(seed: int) -> None:
    decoder_case.run(seed)


@given(st.integers(0, 2**32))
def test_spoiled_requests_are_allowed_or_refused(seed: int) -> None:
    CASES["access_control"](seed)


@given(st.integers(0, 2**32), st.sampled_from(golden_frames()))
def test_the_spoiling_spares_no_part_and_lengths_come_right(seed: int, frame: bytes) -> None:
    """The mutations are worth their name: a spoiled frame is another one, and pieces are the whole."""
    random = Random(seed)
    spoiled = b"".join(Mutator(random).stream([frame], 3, spoiled=1.0))
    assert b"".join(pieces(random, spoiled)) == spoiled
    assert decode_command(frame[4:]) is not None


@pytest.mark.parametrize("case", ["server", "client", "name_server"])
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_hostile_peers(case: str, seed: int) -> None:
    CASES[case](seed)


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":1,"a":[' + b"[]," * 1000 * 1000 + b"[]]}",
        b'{"code":1,' + b",".join(b'"%d":1' % number for number in range(2000)) + b"}",
        b'{"code":1,"extFields":{' + b",".join(b'"%d":"1"' % number for number in range(2000)) + b"}}",
        b'{"code":1,"extFields":{' + b",".join(b'"%d":null' % number for number in range(2000)) + b"}}",
        b'{"code":1,"extFields":{"a":"' + bytes([65]) * HEADER_MAX_LENGTH_BYTES + b'"}}',
        b'{"code":' + b"1" * 4000 + b"}",
    ],
    ids=["slow", "unknown fields", "fields", "odd fields", "long", "number"],
)
def test_a_header_that_would_cost_seconds_or_megabytes_is_refused(header: bytes) -> None:
    with pytest.raises(RemotingCommandError) as refused:
        decode_command(len(header).to_bytes(4, "big") + header)
    assert len(str(refused.value)) < decoder_case.ERROR_TEXT_CHARS


def test_half_of_a_surrogate_pair_comes_back_as_java_writes_it() -> None:
    header = b'{"code":1,"extFields":{"\\udc00":"\\ud83d"},"opaque":7,"remark":"a\\ud800b"}'
    command = decode_command(len(header).to_bytes(4, "big") + header)
    again = decode_command(encode_command(command)[4:])
    assert (again.ext_fields, again.remark, again.opaque) == ({"?": "?"}, "a?b", 7)


def test_behind_a_big_frame_small_ones_come_a_piece_at_a_time() -> None:
    """What one receive brings is handled without a pause: megabytes of it would stop everybody else."""
    big, small = encode_command(RemotingCommand(1, body=bytes(5_000_000))), encode_command(RemotingCommand(2))
    reader = FrameReader()
    feed(reader, big[:-1])
    stream = big[-1:] + small * 50_000
    at, most = 0, 0
    while at < len(stream):
        with reader.free_space() as space:
            count = min(len(space), len(stream) - at)
            space[:count] = stream[at : at + count]
        at += count
        reader.received(count)
        while commands := reader.commands():
            most = max(most, len(commands))
    assert most < 4000
    assert reader.buffer_bytes <= BUFFER_BYTES
