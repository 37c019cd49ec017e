"""Frames of a real RocketMQ, spoiled: what a hostile or broken peer sends. Everything comes from one `Random`."""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import attrs

from rmq_actors.wire.remoting_command import SerializeType, decode_command, encode_command

FRAMES = Path(__file__).parents[1] / "golden" / "remoting" / "frames"

_I32 = struct.Struct(">i")
_NUMBERS = (
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    21,
    255,
    65_535,
    65_536,
    2**24 - 1,
    2**24,
    2**24 - 4,
    2**24 - 5,
    2**31 - 1,
    -1,
    -4,
    -(2**31),
)
#: Values of a header field that a careless reader stumbles over.
_TEXTS = (
    "", " ", "0", "-1", "+5", "007", "1e3", "5.0", "٣", "2147483648", "-2147483649", "9223372036854775808", "9" * 30,
    "NaN", "null", "true", "{}", "[", "{0:1}", "a;b;c", "127.0.0.1:99999", "\x00", "\x01\x02", "TopicTest\x02%s%n",
    "../../x", "ü", "\U0001f600", "\ud800", "x" * 300, "x" * 40_000,
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 5.5, 1e300, 2**31, 2**63, 2**64, 10**40, [], {}, [[]], {"a": {}}, [1, "x", None],
    {"": ""}, *_TEXTS,
)  # fmt: skip
_RAW_VALUES = (
    b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"01", b"'x'", b'"\\ud83d"', b'"\\u12"', b'"\xff\xfe"', b"{1:2}",
    b"{{}:1}", b'{{"a":{}}:1}', b"[" * 200, b"[" * 200 + b"]" * 200, b'{"a":' * 100 + b"1" + b"}" * 100, b"[1,]", b"",
    b"tru", b'"', b"/*", b"[" + b"[]," * 20_000 + b"[]]", b'{"a":1,"a":{}}', b'{"a":1,,}', b"\xef\xbb\xbf1",
)  # fmt: skip


@functools.cache
def golden_frames(*codes: int) -> tuple[bytes, ...]:
    """Whole frames of a real RocketMQ, in both encodings; of these request codes, or all of them."""
    names = sorted(path.name for path in FRAMES.glob("*.bin"))
    chosen = [name for name in names if not codes or (name.endswith("_req.bin") and int(name.split("_")[0]) in codes)]
    frames = [(FRAMES / name).read_bytes() for name in chosen]
    assert frames
    for frame in list(frames):
        command = decode_command(frame[4:])
        command.serialize_type = SerializeType.ROCKETMQ
        frames.append(encode_command(command))
    return tuple(frames)


@attrs.frozen
class Mutator:
    """Spoils frames, mildly most of the time: what is refused by its first byte reaches nothing."""

    random: Random

    def frame(self, frame: bytes) -> bytes:
        """A frame that was changed in one to three places, and may be none any more."""
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            frame = self.random.choice(_FRAME_MUTATIONS)(self, frame)
        return frame

    def stream(self, frames: Sequence[bytes], count: int, spoiled: float) -> list[bytes]:
        """`count` frames one after another, each spoiled with probability `spoiled`."""
        chosen = [self.random.choice(frames) for _ in range(count)]
        return [self.frame(frame) if self.random.random() < spoiled else frame for frame in chosen]

    def noise(self, bytes_max: int = 16) -> bytes:
        """A few bytes, of all values or of few."""
        count = self.random.randint(1, bytes_max)
        return bytes(self.random.choice((0, 1, 34, 44, 93, 123, 127, 128, 255)) for _ in range(count))

    def bits(self, frame: bytes) -> bytes:
        """A bit flipped, in the lengths or anywhere."""
        if not frame:
            return frame
        end = min(8, len(frame)) if self.random.random() < 0.3 else len(frame)
        at = self.random.randrange(end)
        return frame[:at] + bytes([frame[at] ^ 1 << self.random.randrange(8)]) + frame[at + 1 :]

    def number(self, frame: bytes) -> bytes:
        """A telling number at one of the places of a length, or anywhere."""
        at = self.random.choice((0, 0, 4, 8, 13, 17, 21, 25, self.random.randrange(max(len(frame), 1))))
        near = (len(frame) - 4 + self.random.randint(-5, 5), len(frame) * 2)
        return frame[:at] + _I32.pack(self.random.choice((*_NUMBERS, *near))) + frame[at + 4 :]

    def insert(self, frame: bytes) -> bytes:
        """Bytes too many."""
        at = self.random.randint(0, len(frame))
        return frame[:at] + self.noise() + frame[at:]

    def cut(self, frame: bytes) -> bytes:
        """Bytes that are missing, within or at the end."""
        at = self.random.randint(0, len(frame))
        return frame[:at] + (frame[at + self.random.randint(1, 20) :] if self.random.random() < 0.5 else b"")

    def repeat(self, frame: bytes) -> bytes:
        """A piece twice."""
        begin = self.random.randint(0, len(frame))
        piece = frame[begin : begin + self.random.randint(1, 64)]
        return frame[:begin] + piece + frame[begin:]

    def splice(self, frame: bytes) -> bytes:
        """The beginning of one frame and the end of another."""
        other = self.random.choice(golden_frames())
        return frame[: self.random.randint(0, len(frame))] + other[self.random.randint(0, len(other)) :]

    def oneway(self, frame: bytes) -> bytes:
        """Another flag: one-way, an answer, bits that mean nothing."""
        return self._with_member(frame, "flag", self.random.choice((0, 1, 2, 3, 4, -1, 2**31 - 1)))

    def member(self, frame: bytes) -> bytes:
        """A header whose lengths are right and one of whose members is not: gone, of another type, unheard of."""
        names = (
            "code",
            "flag",
            "opaque",
            "language",
            "remark",
            "version",
            "serializeTypeCurrentRPC",
            "extFields",
            "new",
        )
        return self._with_member(frame, self.random.choice(names), self.random.choice(_VALUES))

    def ext_field(self, frame: bytes) -> bytes:
        """An extField that is gone, new, or has a telling text; in both encodings."""
        try:
            command = decode_command(frame[4:])
        except ValueError:
            return frame
        fields = command.ext_fields = command.ext_fields or {}
        name = self.random.choice([*fields, "new"])
        if self.random.random() < 0.2:
            fields.pop(name, None)
        else:
            fields[name] = self.random.choice([text for text in _TEXTS if text != "\ud800"])
        return encode_command(command)

    def raw_value(self, frame: bytes) -> bytes:
        """Broken JSON in place of a value, with the right lengths."""
        header, body, serialize_type = _split(frame)
        colons = [at for at, byte in enumerate(header) if byte == ord(":")]
        if not colons:
            return frame
        at = self.random.choice(colons) + 1
        end = min(at + self.random.randint(0, 8), len(header))
        return _join(header[:at] + self.random.choice(_RAW_VALUES) + header[end:], body, serialize_type)

    def body(self, frame: bytes) -> bytes:
        """A spoiled body after a good header, with the right lengths."""
        header, body, serialize_type = _split(frame)
        if self.random.random() < 0.4:
            try:
                value = json.loads(body)
            except ValueError:
                value = None
            return _join(header, _json(self._spoiled(value)), serialize_type)
        change = self.random.choice((self.bits, self.insert, self.cut, self.repeat))
        return _join(header, change(body) if body else self.noise(), serialize_type)

    def _spoiled(self, value: Any) -> Any:
        """A JSON value that has another value somewhere."""
        if not isinstance(value, dict | list) or not value or self.random.random() < 0.2:
            return self.random.choice(_VALUES)
        key = self.random.choice(list(value) if isinstance(value, dict) else range(len(value)))
        value[key] = self._spoiled(value[key])
        return value

    def _with_member(self, frame: bytes, name: str, value: Any) -> bytes:
        header, body, serialize_type = _split(frame)
        try:
            members = json.loads(header)
        except ValueError:
            return self.number(frame)
        if not isinstance(members, dict):
            return frame
        members[name] = value
        return _join(_json(members), body, serialize_type)


_FRAME_MUTATIONS: tuple[Callable[[Mutator, bytes], bytes], ...] = (
    Mutator.bits, Mutator.number, Mutator.insert, Mutator.cut, Mutator.repeat, Mutator.splice, Mutator.oneway,
    Mutator.member, Mutator.ext_field, Mutator.ext_field, Mutator.raw_value, Mutator.body, Mutator.body,
)  # fmt: skip


def pieces(random: Random, stream: bytes) -> list[bytes]:
    """The stream as it may arrive: whole, in few pieces, or byte by byte at its beginning."""
    style = random.randrange(4)
    if style == 0:
        return [stream]
    if style == 1:
        return [*(stream[at : at + 1] for at in range(min(64, len(stream)))), stream[64:]]
    cuts = sorted(random.randint(0, len(stream)) for _ in range(random.choice((1, 3, 20))))
    return [stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


def _json(value: Any) -> bytes:
    # Half of a surrogate pair can be written as an escape alone.
    return json.dumps(value, separators=(",", ":")).encode()


def _split(frame: bytes) -> tuple[bytes, bytes, int]:
    """Header, body and serialize type, wherever the lengths point."""
    if len(frame) < 8:
        return b"", frame, 0
    word = int.from_bytes(frame[4:8], "big")
    end = 8 + (word & 0xFFFFFF)
    return frame[8:end], frame[end:], word >> 24


def _join(header: bytes, body: bytes, serialize_type: int) -> bytes:
    word = serialize_type << 24 | len(header) & 0xFFFFFF
    return _I32.pack(4 + len(header) + len(body)) + word.to_bytes(4, "big") + header + body
