"""The requests and answers that were captured between RocketMQ 4.9.7 and its clients, as values."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

from rmq_actors.wire.record import StoredMessage, decode_message
from rmq_actors.wire.remoting_command import RemotingCommand, decode_command
from rmq_actors.wire.response_code import ResponseCode
from tests.worlds.golden_capture import GOLDEN

FRAMES = GOLDEN / "remoting" / "frames"
STREAMS = GOLDEN / "remoting" / "streams"
#: The digits of a message id that are the broker's address.
ADDRESS_DIGITS = 16
_ANSWER_FLAG, _ONEWAY_FLAG = 1, 2
#: A request by what it says: a frame of its own may be in a stream as well.
Key = tuple[int, int, tuple[tuple[str, str], ...], bytes]


@attrs.frozen
class Exchange:
    """A request, and RocketMQ's answer; None for a request that is one way, and where the answer was not captured."""

    request: RemotingCommand
    answer: RemotingCommand | None


def key_of(request: RemotingCommand) -> Key:
    """The same for each capture of one request."""
    return request.code, request.opaque, tuple(sorted((request.ext_fields or {}).items())), bytes(request.body)


def commands(name: str) -> list[RemotingCommand]:
    """The frames of one direction of a connection."""
    stream = (STREAMS / name).read_bytes()
    found, at = [], 0
    while at < len(stream):
        size = int.from_bytes(stream[at : at + 4], "big")
        found.append(decode_command(stream[at + 4 : at + 4 + size]))
        at += 4 + size
    return found


@functools.cache
def exchanges(connection: str) -> Sequence[Exchange]:
    """What a client asked, in order."""
    answers = {each.opaque: each for each in commands(f"{connection}.s2c.bin") if each.flag & _ANSWER_FLAG}
    asked = [each for each in commands(f"{connection}.c2s.bin") if not each.flag & _ANSWER_FLAG]
    return [Exchange(each, None if each.flag & _ONEWAY_FLAG else answers.get(each.opaque)) for each in asked]


def frame(code: int, answered: int = ResponseCode.SUCCESS) -> Exchange:
    """What was asked once, and what it was answered."""
    return Exchange(command_of(f"{code}_req_for_{answered}"), command_of(f"{code}_resp_{answered}"))


def command_of(name: str) -> RemotingCommand:
    """A request or an answer that has a file of its own."""
    return decode_command((FRAMES / f"{name}.bin").read_bytes()[4:])


def captured() -> Counter[int]:
    """How many requests of each code there are in all frames and streams."""
    keys = {key_of(decode_command(path.read_bytes()[4:])) for path in FRAMES.glob("*_req*.bin")}
    for path in STREAMS.glob("*.bin"):
        keys |= {key_of(each) for each in commands(path.name) if not each.flag & _ANSWER_FLAG}
    return count_of(keys)


def count_of(keys: Iterable[Key]) -> Counter[int]:
    """How many requests of each code these are."""
    return Counter(code for code, *_ in keys)


def without_times_and_addresses(record: bytes) -> StoredMessage:
    """A message; its properties are in no order, as RocketMQ's come in that of a Java HashMap."""
    return attrs.evolve(decode_message(memoryview(record)), born_host="", store_host="", store_timestamp_ms=0)


def told(answer: RemotingCommand) -> tuple[object, ...]:
    """All of an answer but times, addresses and which program it is from."""
    fields = dict(answer.ext_fields or {})
    if "msgId" in fields:
        fields["msgId"] = ",".join(each[ADDRESS_DIGITS:] for each in fields["msgId"].split(","))
    for time in ("indexLastUpdateTimestamp", "timestamp"):
        fields.pop(time, None)
    body, bodies = answer.body, []
    while body:
        size = int.from_bytes(body[:4], "big")
        bodies.append(without_times_and_addresses(body[:size]))
        body = body[size:]
    return answer.code, answer.flag, answer.remark, fields, bodies
