"""Every body that Java 4.9.7 put on the wire, in whole frames and in streams, as its type and back to its bytes."""

from __future__ import annotations

import collections
import functools
from pathlib import Path

import attrs
import pytest

from rmq_actors.wire.bodies import REQUEST_BODIES, RESPONSE_BODIES, BodyForm, decode_body, encode_body, unknown_members
from rmq_actors.wire.bodies.register_broker import RegisterBrokerBody
from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.frame_reader import FrameReader
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from tests.worlds.fed_frames import feed

REMOTING = Path(__file__).parents[1] / "golden" / "remoting"
#: Requests and responses that carry a body of JSON: the captured ones, by request code, with how many are different.
JSON_REQUESTS = {34: 13, 41: 1, 42: 1, 103: 25, 200: 1}
JSON_RESPONSES = {
    21: 4, 28: 1, 38: 3, 41: 1, 43: 5, 45: 3, 105: 3, 106: 1, 201: 3, 202: 1, 204: 1, 206: 1, 208: 1, 300: 1, 315: 1,
}  # fmt: skip
NO_JSON = {BodyForm.MESSAGE: 151, BodyForm.BATCH: 3, BodyForm.RECORDS: 42, BodyForm.PROPERTIES: 1}


@attrs.frozen
class Captured:
    """A body with the code of its request."""

    code: int
    is_response: bool
    body: bytes

    @property
    def kind(self) -> type[RemotingSerializable] | BodyForm:
        return (RESPONSE_BODIES if self.is_response else REQUEST_BODIES)[self.code]


def commands_of(path: Path) -> list[RemotingCommand]:
    reader = FrameReader()
    feed(reader, path.read_bytes())
    commands: list[RemotingCommand] = []
    while some := reader.commands():
        commands += some
    return commands


@functools.cache
def captured() -> tuple[Captured, ...]:
    """Every different body, in the order of the capture."""
    found: dict[Captured, None] = {}
    for path in sorted((REMOTING / "frames").iterdir()):
        (command,) = commands_of(path)
        found[Captured(int(path.stem.split("_")[0]), command.is_response, command.body)] = None
    for path in sorted((REMOTING / "streams").glob("*.c2s.bin")):
        there, back = commands_of(path), commands_of(path.with_name(path.name.replace("c2s", "s2c")))
        for sent, received in ((there, back), (back, there)):
            codes = {command.opaque: command.code for command in received if not command.is_response}
            for command in sent:
                code = codes[command.opaque] if command.is_response else command.code
                found[Captured(code, command.is_response, command.body)] = None
    return tuple(one for one in found if one.body)


def json_bodies() -> list[tuple[Captured, type[RemotingSerializable]]]:
    return [(one, one.kind) for one in captured() if not isinstance(one.kind, BodyForm)]


def test_all_captured_bodies_are_there() -> None:
    found = collections.Counter((one.is_response, one.code) for one, _ in json_bodies())
    assert found == {
        **{(False, code): count for code, count in JSON_REQUESTS.items()},
        **{(True, code): count for code, count in JSON_RESPONSES.items()},
    }
    forms = collections.Counter(one.kind for one in captured() if isinstance(one.kind, BodyForm))
    assert forms == NO_JSON


@pytest.mark.parametrize(
    ("is_response", "code"),
    [(False, code) for code in JSON_REQUESTS] + [(True, code) for code in JSON_RESPONSES],
    ids=lambda value: RequestCode(value).name if type(value) is int else ("response" if value else "request"),
)
def test_a_captured_body_has_its_type_and_comes_back_byte_for_byte(is_response: bool, code: int) -> None:
    for one, kind in json_bodies():
        if (one.is_response, one.code) == (is_response, code):
            body = decode_body(kind, one.body)
            assert (
                encode_body(body, standard_json=is_response and code == RequestCode.GET_ROUTEINFO_BY_TOPIC) == one.body
            )
            assert decode_body(kind, encode_body(body)) == body
            assert unknown_members(kind, one.body) == ()


def test_the_tolerant_reader_reads_captured_bodies_the_same() -> None:
    for one, kind in json_bodies():
        assert decode_body(kind, b'{"":{{}:1},' + one.body[1:]) == decode_body(kind, one.body)


def test_captured_registrations_can_be_compressed() -> None:
    registrations = [one.body for one, kind in json_bodies() if kind is RegisterBrokerBody]
    assert len(registrations) == JSON_REQUESTS[RequestCode.REGISTER_BROKER]
    for data in registrations:
        body = RegisterBrokerBody.decode(data, compressed=False)
        compressed = body.encode(compressed=True)
        assert len(compressed) < len(data)
        assert RegisterBrokerBody.decode(compressed, compressed=True) == body
