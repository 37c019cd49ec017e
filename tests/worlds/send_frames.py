"""SEND_MESSAGE_V2 frames, plain and odd ones, as Hypothesis draws them."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from rmq_actors.wire.remoting_command import ONEWAY_FLAG, RemotingCommand, SerializeType, encode_command
from rmq_actors.wire.request_code import RequestCode

TOPIC = "TopicOfRows"
PROPERTIES = (
    "UNIQ_KEY\x017F00000100002A139A5542CA1C6E0000\x02WAIT\x01true\x02TAGS\x01TagA",
    "KEYS\x01k1 k2\x02TAGS\x01t\x02",
    "",
    "WAIT\x01true",
    "WAIT\x01false\x02TAGS\x01t",
    "WAIT\x01TRUE",
    "XWAIT\x01true\x02WAIT\x01true",
    "KEYS\x01\u00e9\u4e2d\U0001f600",
    "A\x011\x02A\x012",
    "A\x01",
    "A",
    "\x01a",
    "A\x01b\x01c",
    "A\x01b\x02\x02B\x01c",
    "A\x01\0",
    "DELAY\x013",
    "DELAY\x010",
    "TRAN_MSG\x01true",
    "CLUSTER\x01other",
    "REAL_TOPIC\x01x",
    "INNER_MULTI_DISPATCH\x01a,b",
    "P\x01" + "x" * 33_000,
)
_PLAIN = {"a": "PG", "c": "TBW102", "d": "4", "g": "1700000000123", "k": "false", "m": "false", "bname": "broker-a"}


def frame(opaque: int, body: bytes = b"body", flag: int = 0, /, **fields: str) -> bytes:
    """A request as Java's client writes it."""
    ext_fields = {**_PLAIN, "b": TOPIC, "e": "1", "f": "0", "h": "7", "i": PROPERTIES[0], "j": "0", **fields}
    return encode_command(
        RemotingCommand(
            RequestCode.SEND_MESSAGE_V2, dict(sorted(ext_fields.items())), flag, "JAVA", opaque, None, 407, body
        )
    )


@st.composite
def plain_frames(draw: st.DrawFn) -> bytes:
    """One that is a row, or is not because of its properties."""
    return frame(
        draw(st.integers(0, 2**31 - 1)),
        draw(st.binary(max_size=40)),
        draw(st.sampled_from([0, 0, 0, ONEWAY_FLAG])),
        b=draw(st.sampled_from([TOPIC, TOPIC, "OtherTopic"])),
        e=draw(st.sampled_from(["0", "1", "3"])),
        f=draw(st.sampled_from(["0", "1", "2", "16", "32"])),
        i=draw(st.sampled_from(PROPERTIES[:6])),
    )


@st.composite
def odd_frames(draw: st.DrawFn) -> bytes:
    """One field of it is unlike what clients send."""
    name, values = draw(
        st.sampled_from(
            [
                ("b", ["", " ", "a/b", "%RETRY%CG", "%RETRY%" + "g" * 130, "SCHEDULE_TOPIC_XXXX", "NewTopic"]),
                ("e", ["-1", "4", "+1", "007", "1.0", "x", "2147483648", " 1"]),
                ("f", ["4", "8", "12", "-1"]),
                ("g", ["1e3", "9223372036854775807", "9223372036854775808"]),
                ("h", ["-5", "x"]),
                ("i", list(PROPERTIES)),
                ("j", ["2", "-1", "99"]),
                ("k", ["true", "TRUE", "1", "no"]),
                ("l", ["3"]),
                ("m", ["true", "1"]),
                ("n", ["broker-a"]),
                ("unknown", ["x"]),
            ]
        )
    )  # fmt: skip
    return frame(draw(st.integers(0, 2**31 - 1)), draw(st.binary(max_size=40)), **{name: draw(st.sampled_from(values))})


@st.composite
def other_frames(draw: st.DrawFn) -> bytes:
    """Other requests, another encoding, JSON that is odd."""
    opaque = draw(st.integers(0, 2**31 - 1))
    kind = draw(st.sampled_from(["unsupported", "rocketmq", "numbers", "spaces", "null", "text opaque", "too large"]))
    fields = {**_PLAIN, "b": TOPIC, "e": "1", "f": "0", "h": "7", "i": PROPERTIES[0], "j": "0"}
    code = RequestCode.SEND_MESSAGE_V2
    if kind == "unsupported":
        return encode_command(RemotingCommand(9_999, None, opaque=opaque))
    if kind == "rocketmq":
        return encode_command(RemotingCommand(code, fields, opaque=opaque, serialize_type=SerializeType.ROCKETMQ))
    if kind == "too large":
        return frame(opaque, bytes(5_000_000))
    header: dict[str, object] = {"code": int(code), "extFields": {**fields}, "flag": 0, "language": "JAVA"}
    header |= {"opaque": opaque, "serializeTypeCurrentRPC": "JSON", "version": 407}
    if kind == "numbers":
        header["extFields"] = {**fields, "e": 2, "k": draw(st.sampled_from([True, 1]))}
    if kind == "null":
        header["extFields"] = {**fields, "j": None, "i": None}
    if kind == "text opaque":
        header["opaque"] = str(opaque)
    data = json.dumps(header, separators=(", ", ": ") if kind == "spaces" else (",", ":")).encode()
    return (4 + len(data) + 3).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data + b"abc"


FRAMES = st.lists(
    st.one_of(plain_frames(), plain_frames(), plain_frames(), odd_frames(), other_frames()), min_size=1, max_size=12
)
