"""What strangers do to a broker's ports besides asking: `ACTS_AT_REMOTING` and `ACTS_AT_HA`, as bytes and pauses.

Pure: a `StrangeAct` says which bytes go out, how long the peer then stays without a word, and whether it reads.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

import attrs

from rmq_actors.testing.strange_requests import DEAF, STRANGE_TOPIC, STRAY, Dice
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from rmq_actors.wire.headers import encode_header
from rmq_actors.wire.headers.offsets import PullMessageRequestHeader
from rmq_actors.wire.remoting_command import RESPONSE_FLAG, RemotingCommand, encode_command
from rmq_actors.wire.request_code import RequestCode

_WORD, _REPORT = struct.Struct(">i"), struct.Struct(">q")
#: Longer than any log of a run is.
_FAR = 10**9
_PULLS = 20
#: Bytes that are no frame.
NO_FRAME = _WORD.pack(-1)


@attrs.frozen
class StrangeAct:
    """`data` goes out as soon as there is a connection, `then` after a pause; the peer stays, and reads or does not."""

    data: bytes
    stays_s: float
    reads: bool = False
    then: bytes = b""


def _request(dice: Dice) -> bytes:
    return encode_command(RemotingCommand(RequestCode.HEART_BEAT, opaque=dice.randrange(1000), body=b"{}"))


def _silence(dice: Dice) -> StrangeAct:
    return StrangeAct(b"", dice.random() * 3)


def _half_a_frame(dice: Dice) -> StrangeAct:
    frame = _request(dice)
    return StrangeAct(frame[: 1 + dice.randrange(len(frame) - 1)], dice.random() * 2)


def _no_frame(dice: Dice) -> StrangeAct:
    """A length that nobody takes, or a header that is none."""
    length = dice.choice((-1, 0, 3, 1 << 30, 20))
    return StrangeAct(_WORD.pack(length) + dice.entropy.token_bytes(20), 0.5, reads=True)


def _torn_header(dice: Dice) -> StrangeAct:
    """A frame with one byte altered."""
    frame = bytearray(_request(dice))
    frame[dice.randrange(len(frame))] ^= 1 << dice.randrange(8)
    return StrangeAct(bytes(frame), 0.5, reads=True)


def _answer_unasked(dice: Dice) -> StrangeAct:
    answer = RemotingCommand(dice.choice((0, 1, -1)), flag=RESPONSE_FLAG, opaque=dice.randrange(100), body=b"x")
    return StrangeAct(encode_command(answer) * 3, 0.5, reads=True, then=_request(dice))


def _deaf_member(dice: Dice) -> StrangeAct:
    """It registers in groups, and answers nothing that it is asked or told."""
    subscribed = SubscriptionData(topic=STRANGE_TOPIC, sub_string="*", sub_version=1)
    consumer = ConsumerData(
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        group_name="ChaosGroup",
        message_model=MessageModel.CLUSTERING,
        subscription_data_set=[subscribed],
    )
    data = HeartbeatData(
        client_id=f"{DEAF}-{dice.randrange(3)}",
        consumer_data_set=[consumer],
        producer_data_set=[ProducerData(group_name="PG")],
    )
    beat = encode_command(RemotingCommand(RequestCode.HEART_BEAT, opaque=1, body=encode_body(data)))
    return StrangeAct(beat, dice.choice((3.0, 9.0)), then=beat)


def _greedy(dice: Dice) -> StrangeAct:
    """Many pulls, held and not, and no answer is taken."""
    frames = []
    for number in range(_PULLS):
        topic = dice.choice(("Chaos", STRANGE_TOPIC, f"{STRAY}-none"))
        header = PullMessageRequestHeader("ChaosGroup", topic, dice.randrange(2), 0, 32, 6, 0, 2_000, 0, "*")
        frames.append(encode_command(RemotingCommand(RequestCode.PULL_MESSAGE, encode_header(header), opaque=number)))
    return StrangeAct(b"".join(frames), 2.0)


def _first_report(dice: Dice) -> StrangeAct:
    """An offset that no slave has."""
    return StrangeAct(_REPORT.pack(dice.choice((-1, -(2**63), _FAR, 2**63 - 1))), 1.0)


def _single_bytes(dice: Dice) -> StrangeAct:
    return StrangeAct(b"\0", 2.0 + dice.random(), then=b"\0")


def _cut_report(dice: Dice) -> StrangeAct:
    """A part of a first report, and what makes an odd offset of it."""
    report = _REPORT.pack(_FAR)
    cut = 1 + dice.randrange(len(report) - 1)
    return StrangeAct(report[:cut], 1.0, then=b"\xff" * (len(report) - cut))


def _like_a_slave(dice: Dice) -> StrangeAct:
    """What a slave says that has some of the log, or all: for ports that let slaves alone in."""
    return StrangeAct(_REPORT.pack(0), 2.0, then=_REPORT.pack(dice.randrange(3000)))


_Act = Callable[[Dice], StrangeAct]
#: By name.
ACTS_AT_REMOTING: Mapping[str, _Act] = {
    "silence": _silence,
    "half_a_frame": _half_a_frame,
    "no_frame": _no_frame,
    "torn_header": _torn_header,
    "answer_unasked": _answer_unasked,
    "deaf_member": _deaf_member,
    "greedy": _greedy,
}
ACTS_AT_HA: Mapping[str, _Act] = {
    "silence": _silence,
    "first_report": _first_report,
    "single_bytes": _single_bytes,
    "cut_report": _cut_report,
}
#: For ports that let slaves alone in.
ACTS_AT_SHUT_HA: Mapping[str, _Act] = {**ACTS_AT_HA, "like_a_slave": _like_a_slave}
