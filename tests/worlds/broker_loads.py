"""What loads a broker: `python -m tests.worlds.broker_loads KIND PORT`, in a process of its own until it is killed.

It prints a line when the load is under way. The kinds are the keys of `LOADS`; each function says what it does. All
go on for as long as they are let, and none takes an answer for wrong: they are not what is tested, but what disturbs.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from rmq_actors.testing.thin_client import send_request
from rmq_actors.wire.headers import encode_header
from rmq_actors.wire.headers.offsets import GetMaxOffsetRequestHeader, PullMessageRequestHeader
from rmq_actors.wire.pull_sys_flag import PullSysFlag
from rmq_actors.wire.remoting_command import RemotingCommand, decode_command, encode_command
from rmq_actors.wire.request_code import RequestCode

#: Has messages of 1 KiB, once `fill` has put them.
FULL_TOPIC = "TopicFull"
HELD_TOPIC = "TopicHeld"
BIG_TOPIC = "TopicBig"
QUEUES = 4
CONNECTIONS = 20
HELD_PULLS = 1_000
BIG_BODY_BYTES = 4_000_000
_HELD_A_CONNECTION = 10
_HOLD_MS = 600_000
_FULL_MESSAGES = 2_000
_PULLS_AT_ONCE = 100
#: A slow consumer takes so much, and then nothing for a while.
_SLOW_BYTES, _SLOW_PAUSE_S = 1_024, 0.01
_BIG_PAUSE_S = 0.25
_HELD_PAUSE_S = 0.5
_SMALL_BUFFER_BYTES = 4_096
_TIMEOUT_S = 120.0


def pull_frame(topic: str, offset: int, queue_id: int = 0, *, hold_ms: int = 0, opaque: int = 0) -> bytes:
    """A pull of 32 messages."""
    flags = PullSysFlag.SUBSCRIPTION | (PullSysFlag.SUSPEND if hold_ms else PullSysFlag(0))
    header = PullMessageRequestHeader("CG_load", topic, queue_id, offset, 32, int(flags), 0, hold_ms, 0, "*")
    return encode_command(RemotingCommand(RequestCode.PULL_MESSAGE, encode_header(header), opaque=opaque))


def send_frame(topic: str, body: bytes, queue_id: int = 0, opaque: int = 0) -> bytes:
    """A message."""
    command = send_request(topic, body, queue_id)
    command.opaque = opaque
    return encode_command(command)


def answers(peer: socket.socket) -> Iterator[RemotingCommand]:
    """What a broker sends, until it closes the connection."""
    data = bytearray()
    while received := peer.recv(1 << 20):
        data += received
        while len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:4], "big")):
            yield decode_command(bytes(data[4:end]))
            del data[:end]


@contextlib.contextmanager
def connections(port: int, count: int, receive_bytes: int | None = None) -> Iterator[Sequence[socket.socket]]:
    """So many, for the length of a block; with a small buffer, the kernel takes little for a peer that does not."""
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            peer = stack.enter_context(socket.socket())
            if receive_bytes is not None:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            peer.settimeout(_TIMEOUT_S)
            peer.connect(("127.0.0.1", port))
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.append(peer)
        yield made


def send_all(port: int, frames: Sequence[bytes]) -> None:
    """Have messages stored; as many are under way as the broker takes."""
    with connections(port, 1) as (peer,):
        at_once = 500
        received = answers(peer)
        for begin in range(0, len(frames), at_once):
            some = frames[begin : begin + at_once]
            peer.sendall(b"".join(some))
            for answer in itertools.islice(received, len(some)):
                if answer.code:
                    raise RuntimeError(f"a message was answered {answer.code}, {answer.remark!r}")


def fill(port: int) -> None:
    """Put the messages that consumers pull."""
    send_all(port, [send_frame(FULL_TOPIC, bytes(1_024)) for _ in range(_FULL_MESSAGES)])


def say_under_way() -> None:
    """For who waits for it."""
    sys.stdout.write("under way\n")
    sys.stdout.flush()


def slow_consumers(port: int) -> None:
    """Pulls of 32 KiB each, many of them under way on every connection, and answers that are taken by drops."""
    pulls = pull_frame(FULL_TOPIC, 0)
    with connections(port, CONNECTIONS, _SMALL_BUFFER_BYTES) as peers:
        for peer in peers:
            peer.sendall(pulls * _PULLS_AT_ONCE)
        say_under_way()
        while True:
            readable, _, _ = select.select(peers, [], [])
            for peer in readable:
                peer.recv(_SLOW_BYTES)
            time.sleep(_SLOW_PAUSE_S)


def never_reads(port: int) -> None:
    """Pulls and messages as long as the broker takes any; not one answer is read."""
    requests = pull_frame(FULL_TOPIC, 0) * 32 + send_frame(FULL_TOPIC, bytes(128))
    with connections(port, CONNECTIONS, _SMALL_BUFFER_BYTES) as peers:
        rests = dict.fromkeys(peers, requests)
        for peer in peers:
            peer.setblocking(False)
        blocked = False
        while True:
            _, writable, _ = select.select([], peers, [], 0.5)
            if not writable and not blocked:
                say_under_way()
                blocked = True
            for peer in writable:
                rests[peer] = rests[peer][peer.send(rests[peer]) :] or requests


def held_pulls(port: int) -> None:
    """A thousand that wait for a message, and are made again when one has come. One comes twice a second."""
    count = HELD_PULLS // _HELD_A_CONNECTION
    send_all(port, [send_frame(HELD_TOPIC, b"first", queue) for queue in range(QUEUES)])
    with connections(port, count) as peers, connections(port, 1) as (producer,):
        received = {peer: answers(peer) for peer in peers}
        for peer in peers:
            pulls = [
                pull_frame(HELD_TOPIC, 1, number % QUEUES, hold_ms=_HOLD_MS, opaque=number)
                for number in range(_HELD_A_CONNECTION)
            ]
            ask = RemotingCommand(
                RequestCode.GET_MAX_OFFSET, encode_header(GetMaxOffsetRequestHeader(HELD_TOPIC, 0)), opaque=99
            )
            peer.sendall(b"".join(pulls) + encode_command(ask))
        for peer in peers:
            # It came after the pulls on its connection: those are held.
            while next(received[peer]).opaque != 99:
                pass
        say_under_way()
        for number in itertools.count():
            next_put_s = time.monotonic() + _HELD_PAUSE_S
            producer.sendall(send_frame(HELD_TOPIC, b"wakes", number % QUEUES))
            while (left_s := next_put_s - time.monotonic()) > 0:
                readable, _, _ = select.select([*peers, producer], [], [], left_s)
                for peer in readable:
                    if peer is producer:
                        peer.recv(65_536)
                        continue
                    answer = next(received[peer])
                    at = int((answer.ext_fields or {})["nextBeginOffset"])
                    peer.sendall(
                        pull_frame(HELD_TOPIC, at, answer.opaque % QUEUES, hold_ms=_HOLD_MS, opaque=answer.opaque)
                    )


def big_bodies(port: int) -> None:
    """Messages of 4 MB on four connections at a time, sixteen a second, and pulls of them on as many others."""
    body = bytes(BIG_BODY_BYTES)
    send_all(port, [send_frame(BIG_TOPIC, body)])
    frame, pull = send_frame(BIG_TOPIC, body), pull_frame(BIG_TOPIC, 0)
    with connections(port, 8) as peers:
        received = {peer: answers(peer) for peer in peers}
        for number in itertools.count():
            for peer in peers[:4]:
                peer.sendall(pull)
            for peer in peers[4:]:
                peer.sendall(frame)
            for peer in peers:
                next(received[peer])
            if not number:
                say_under_way()
            time.sleep(_BIG_PAUSE_S)


def bad_frames(port: int) -> None:
    """What is no frame, or no request: one each connection, which the broker closes; and then the next connection."""
    good = send_frame(FULL_TOPIC, bytes(128))
    (header_bytes,) = struct.unpack_from(">i", good, 4)
    bad = [
        bytes(range(256)) * 16,
        struct.pack(">ii", -1, 10) + bytes(100),
        struct.pack(">ii", 2**31 - 1, 10) + bytes(4_000),
        struct.pack(">ii", 100, 2**24 - 1) + bytes(100),
        struct.pack(">ii", 8, 4) + b"null",
        struct.pack(">ii", 104, 100) + b"{" * 100,
        good[:8] + b"\xff" * header_bytes + good[8 + header_bytes :],
        good[: len(good) // 2],
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    ]
    for number in itertools.count():
        if number == 2 * CONNECTIONS:
            say_under_way()
        with connections(port, CONNECTIONS) as peers, contextlib.suppress(ConnectionError):
            for other, peer in enumerate(peers):
                peer.sendall(bad[(number + other) % len(bad)])
                peer.shutdown(socket.SHUT_WR)
            for peer in peers:
                while peer.recv(65_536):
                    pass


LOADS: Mapping[str, Callable[[int], None]] = {
    "slow_consumers": slow_consumers,
    "held_pulls": held_pulls,
    "big_bodies": big_bodies,
    "never_reads": never_reads,
    "bad_frames": bad_frames,
}

if __name__ == "__main__":
    LOADS[sys.argv[1]](int(sys.argv[2]))
