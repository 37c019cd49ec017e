"""The frames that Java processes exchanged: each decodes, says what its JSON says, and is written again to the byte."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.wire.frame_reader import FrameReader
from rmq_actors.wire.headers import REQUEST_HEADERS, RESPONSE_HEADERS, CommandHeader, decode_header, encode_header
from rmq_actors.wire.remoting_command import RemotingCommand, decode_command, encode_command
from rmq_actors.wire.request_code import RequestCode
from tests.worlds.fed_frames import feed

REMOTING = Path(__file__).parents[1] / "golden" / "remoting"
FRAMES = sorted(path.name for path in (REMOTING / "frames").glob("*.bin"))
STREAMS = sorted(path.name for path in (REMOTING / "streams").glob("*.bin"))
SMALL_STREAMS = [name for name in STREAMS if (REMOTING / "streams" / name).stat().st_size < 20_000]

#: What is in `ext_fields` and in no header: whoever needs it looks there.
FOREIGN_FIELDS = {
    "bname": "the broker's name, which a client from 4.9.5 on sends with whatever is about a queue",
    "ReqT": "the kind of request, set by the hook of a pull or lite-pull consumer",
    "_UNIQUE_KEY_QUERY": "whether the key of QUERY_MESSAGE is the client's own message id",
    "MSG_REGION": "regionId of the broker, in the answer to a message",
    "TRACE_ON": "traceOn of the broker, in the answer to a message",
}


@attrs.frozen
class Seen:
    """A command of the capture, and what it asks or answers."""

    place: str
    request_code: int
    command: RemotingCommand

    @property
    def header_type(self) -> type[CommandHeader] | None:
        return (RESPONSE_HEADERS if self.command.is_response else REQUEST_HEADERS)[self.request_code]


@functools.cache
def bytes_of(name: str) -> bytes:
    return (REMOTING / ("frames" if name in FRAMES else "streams") / name).read_bytes()


@functools.cache
def index() -> dict[str, Any]:
    value: dict[str, Any] = json.loads((REMOTING / "index.json").read_text())
    return value


def split_by_length(stream: bytes) -> Iterator[bytes]:
    while stream:
        end = 4 + int.from_bytes(stream[:4], "big")
        yield stream[:end]
        stream = stream[end:]


@functools.cache
def frames_of(name: str) -> list[bytes]:
    return list(split_by_length(bytes_of(name)))


@functools.cache
def commands_of(name: str) -> list[RemotingCommand]:
    return [decode_command(frame[4:]) for frame in frames_of(name)]


@functools.cache
def everything() -> list[Seen]:
    """Frames are named after their request; in a stream an answer bears the opaque of its request."""
    seen = []
    for name in FRAMES:
        code = int(name.partition("_")[0])
        seen += [Seen(name, code, command) for command in commands_of(name)]
    for name in STREAMS:
        connection = name.rpartition(".")[0].rpartition(".")[0]
        other = f"{connection}.{'s2c' if 'c2s' in name else 'c2s'}.bin"
        asked = {command.opaque: command.code for command in commands_of(other) if not command.is_response}
        for command in commands_of(name):
            code = asked[command.opaque] if command.is_response else command.code
            seen.append(Seen(name, code, command))
    return seen


def wire_names(header_type: type[CommandHeader] | None) -> set[str]:
    return set() if header_type is None else set(header_type.__struct_encode_fields__)


def json_of(frame: bytes) -> tuple[dict[str, Any], bytes]:
    header_end = 8 + int.from_bytes(frame[5:8], "big")
    header: dict[str, Any] = json.loads(frame[8:header_end])
    return header, frame[header_end:]


def as_json(command: RemotingCommand) -> dict[str, Any]:
    header = {
        "code": command.code,
        "extFields": command.ext_fields,
        "flag": command.flag,
        "language": command.language,
        "opaque": command.opaque,
        "remark": command.remark,
        "serializeTypeCurrentRPC": command.serialize_type.name,
        "version": command.version,
    }
    return {name: value for name, value in header.items() if value is not None}


def test_the_capture_is_whole() -> None:
    assert len(FRAMES) == 127
    assert sum(len(frames_of(name)) for name in STREAMS) == 1042


@pytest.mark.parametrize("name", FRAMES + STREAMS)
def test_each_command_says_what_its_json_says_and_is_written_again_to_the_byte(name: str) -> None:
    for frame, command in zip(frames_of(name), commands_of(name), strict=True):
        assert (as_json(command), command.body) == json_of(frame)
        assert command.unknown_fields == ()
        assert encode_command(command) == frame


def test_each_header_decodes_and_gives_its_fields_back() -> None:
    """But for the fields that no header knows: they are named above, and each is seen."""
    foreign, decoded = set(), 0
    for seen in everything():
        ext_fields, header_type = seen.command.ext_fields or {}, seen.header_type
        own = {name: text for name, text in ext_fields.items() if name in wire_names(header_type)}
        foreign |= ext_fields.keys() - own.keys()
        refused = seen.command.is_response and seen.command.code != 0 and not own
        if header_type is not None and not refused:
            assert encode_header(decode_header(header_type, seen.command)) == own, seen
            decoded += 1
    assert foreign == FOREIGN_FIELDS.keys()
    assert decoded > 900


def test_every_field_of_the_index_is_known_or_named() -> None:
    """The index counts all connections of the run, also those whose streams are not here."""
    for code, entry in index()["request_codes"].items():
        assert RequestCode(int(code)).name == entry["name"]
        own = wire_names(REQUEST_HEADERS[int(code)])
        assert entry["extFields_seen"].keys() - own <= FOREIGN_FIELDS.keys(), entry["name"]


def test_the_headers_of_the_index_are_written_again_to_the_byte() -> None:
    texts = re.findall(r'"header_json": "(.*)"', (REMOTING / "index.json").read_text())
    assert len(texts) > 80
    for text in texts:
        header = json.loads(f'"{text}"').encode()
        frame = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
        assert encode_command(decode_command(frame[4:])) == frame


def pieces(data: bytes, cuts: Iterable[int]) -> Iterator[bytes]:
    """`data` cut at the given positions; those outside of it do nothing."""
    begin = 0
    for cut in [*sorted(cut for cut in cuts if 0 < cut < len(data)), len(data)]:
        if cut > begin:
            yield data[begin:cut]
            begin = cut


def fed(stream: bytes, cuts: Iterable[int]) -> list[RemotingCommand]:
    """What a reader makes of the pieces, which it is handed as they are."""
    reader, found = FrameReader(), []
    for piece in pieces(stream, cuts):
        feed(reader, piece)
        found += reader.commands()
    assert reader.pending_bytes == 0
    return found


def received(stream: bytes, sizes: Iterator[int]) -> list[RemotingCommand]:
    """What a reader makes of the stream when a socket gives so many bytes at a time, as far as there is room."""
    reader, found, rest = FrameReader(), list[RemotingCommand](), memoryview(stream)
    while rest:
        with reader.free_space() as space:
            count = min(next(sizes), len(space), len(rest))
            space[:count] = rest[:count]
        reader.received(count)
        rest = rest[count:]
        found += reader.commands()
    assert reader.pending_bytes == 0
    return found


def endless(sizes: list[int]) -> Iterator[int]:
    while True:
        yield from sizes


@pytest.mark.parametrize("name", STREAMS)
def test_a_whole_stream_gives_its_frames(name: str) -> None:
    stream = bytes_of(name)
    assert fed(stream, []) == received(stream, endless([len(stream)])) == commands_of(name)


@pytest.mark.parametrize("name", SMALL_STREAMS)
def test_byte_by_byte_a_stream_gives_the_same_frames(name: str) -> None:
    stream = bytes_of(name)
    assert fed(stream, range(len(stream))) == received(stream, endless([1])) == commands_of(name)


@given(st.sampled_from(STREAMS), st.lists(st.integers(0, 400_000), max_size=200))
def test_cut_anywhere_a_stream_gives_the_same_frames(name: str, cuts: list[int]) -> None:
    stream = bytes_of(name)
    assert fed(stream, (cut % len(stream) for cut in cuts)) == commands_of(name)


@given(
    st.sampled_from(STREAMS),
    st.lists(st.one_of(st.integers(1, 100), st.integers(100, 100_000)), min_size=1, max_size=9),
)
def test_received_in_any_sizes_a_stream_gives_the_same_frames(name: str, sizes: list[int]) -> None:
    assert received(bytes_of(name), endless(sizes)) == commands_of(name)
