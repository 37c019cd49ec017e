"""Any bytes to the frame reader: frames or one clear error, the same however they are split; never more memory."""

from __future__ import annotations

from random import Random

import attrs

from rmq_actors.wire.frame_reader import BUFFER_BYTES, FrameReader
from rmq_actors.wire.remoting_command import RemotingCommand, RemotingCommandError, decode_command, encode_command
from tests.fuzz.mutations import Mutator, golden_frames, pieces
from tests.worlds.fed_frames import feed

#: An error that repeats what it was sent would be a weapon of its own.
ERROR_TEXT_CHARS = 500


def buffer_bytes_max(frame_max_length_bytes: int) -> int:
    """The stated limit of what a reader holds, which doubles until what is pending has room."""
    return max(BUFFER_BYTES, 2 * (frame_max_length_bytes + 1024))


@attrs.define
class Reading:
    """What a reader made of a stream."""

    commands: list[RemotingCommand] = attrs.field(factory=list)
    error: str | None = None
    pending_bytes: int = 0


def read(parts: list[bytes], frame_max_length_bytes: int) -> Reading:
    """Read a stream as a connection does, and check the reader's limits at every step."""
    reader = FrameReader(frame_max_length_bytes)
    reading = Reading()
    for part in parts:
        feed(reader, part)
        try:
            while commands := reader.commands():
                reading.commands += commands
        except RemotingCommandError as error:
            reading.error = str(error)
            assert len(reading.error) <= ERROR_TEXT_CHARS, f"an error of {len(reading.error)} characters"
            return reading
        assert reader.pending_bytes < frame_max_length_bytes
        assert reader.buffer_bytes <= buffer_bytes_max(frame_max_length_bytes)
    reading.pending_bytes = reader.pending_bytes
    return reading


def check_stream(stream: bytes, parts: list[bytes], frame_max_length_bytes: int) -> Reading:
    """Whole or in parts: the same. What could be decoded can be sent on, and says the same."""
    assert b"".join(parts) == stream
    whole, split = read([stream], frame_max_length_bytes), read(parts, frame_max_length_bytes)
    assert split == whole
    for command in whole.commands:
        frame = encode_command(command)
        assert encode_command(decode_command(frame[4:])) == frame
    return whole


def run(seed: int) -> None:
    """One stream of golden frames, some of them spoiled."""
    random = Random(f"decoder {seed}")
    mutator = Mutator(random)
    frames = mutator.stream(golden_frames(), random.randint(1, 6), spoiled=0.5)
    stream = b"".join(frames)
    check_stream(stream, pieces(random, stream), random.choice((64, 1024, 65_536, 16 * 1024 * 1024)))
