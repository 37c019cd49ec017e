"""What strangers ask of brokers, as values: requests that most clients never send, and which answers to them are right.

Pure: all of it is drawn from an `Entropy`. The codes are RocketMQ's, in its order of checks: those that
`tests/conformance`, the golden requests and the tests of each processor hold this broker to.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import attrs

from rmq_actors.ports.entropy import Entropy
from rmq_actors.wire.dispatch_request import (
    PROPERTY_DELAY,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    SCHEDULE_TOPIC,
)
from rmq_actors.wire.headers import CommandHeader, encode_header
from rmq_actors.wire.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmq_actors.wire.record import decode_message
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.response_code import ResponseCode

#: The topic that strangers send to, and how many queues it has.
STRANGE_TOPIC, STRANGE_QUEUES = "Strange", 2
#: The group that they pull for.
GROUP = "Strangers"
#: How many memberships in groups clients may have at a broker, all together (clientGroupsMax).
CLIENT_GROUPS_MAX = 100
#: What the ids of members begin with that answer nothing.
DEAF = "deaf"
#: So many puts may wait at a broker at once (waitingPutsMax).
WAITING_PUTS_MAX = 8
#: What the names of topics and groups begin with that no request of a stranger may make.
STRAY = "Stray"
#: Tags of good messages; pulls choose by them.
TAGS = ("A", "B", "C")
#: Texts that are numbers, of 32 bits or not, and one that is none.
FAR_NUMBERS = ("7", "3000000000", "-3000000000", "seven")
_BODY_BYTES_MAX = 200
#: What the bodies of all messages of strangers begin with that have one.
MARK = b"stranger "
_BODY_LENGTH_POSITION, _FLAG_POSITION = 84, 16
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">H")
#: What a broker adds to the properties of a message, or changes.
_OF_BROKERS = frozenset(
    name.encode()
    for name in (
        *("CLUSTER", PROPERTY_DELAY, PROPERTY_REAL_TOPIC, PROPERTY_REAL_QUEUE_ID),
        PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    )
)

#: The status of a request whose connection the broker has ended in order, without an answer that was due before.
UNANSWERED = "unanswered"
#: None was made, as an answer before it was a refusal.
NOT_ASKED = "not_asked"
#: A request is told to come again: too many wait, or the store is closed, or takes nothing now.
AGAIN = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})
#: The message is in the log.
STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)


@attrs.frozen
class Left:
    """A message that a request may leave in the log. `queue_id` -1: in a queue that the broker chooses."""

    topic: str
    queue_id: int
    body: bytes
    properties: Sequence[tuple[bytes, bytes]]
    flag: int = 0
    is_delayed: bool = False

    @classmethod
    def of(cls, queue_id: int, body: bytes, properties: Mapping[str, str]) -> Left:
        """One of the strangers' topic."""
        return cls(
            STRANGE_TOPIC, queue_id, body, [(name.encode(), value.encode()) for name, value in properties.items()]
        )

    @property
    def checksum(self) -> int:
        """What tells it from all others, wherever it stands."""
        return content_checksum(self.topic, self.body, self.properties, self.flag)


@attrs.frozen
class Found:
    """A message of a log, as far as strangers care: `topic` and `queue_id` are those that it was sent to."""

    topic: str
    queue_id: int
    body: bytes
    checksum: int
    #: Whether it waits for its time.
    waits: bool
    #: Where it stands in the log, and in its queue.
    offset: int
    queue_offset: int


def content_checksum(topic: str, body: bytes, properties: Iterable[tuple[bytes, bytes]], flag: int) -> int:
    """The checksum of all that a producer has said of a message, but for its queue."""
    pairs = sorted(pair for pair in properties if pair[0] not in _OF_BROKERS)
    return zlib.crc32(repr((topic, body, pairs, flag)).encode())


def read_message(record: bytes) -> Found:
    """What a record is, with its properties as they stand there: a name may be there twice."""
    message = decode_message(memoryview(record))
    at = _BODY_LENGTH_POSITION + _INT.size + len(message.body)
    at += 1 + record[at]
    (size,) = _SHORT.unpack_from(record, at)
    pairs = split_properties(record[at + _SHORT.size :][:size])
    (flag,) = _INT.unpack_from(record, _FLAG_POSITION)
    topic, queue_id = message.topic, message.queue_id
    waits = topic == SCHEDULE_TOPIC
    if waits:
        topic = message.properties.get(PROPERTY_REAL_TOPIC, topic)
        queue_id = int(message.properties.get(PROPERTY_REAL_QUEUE_ID, "-1"))
    checksum = content_checksum(topic, message.body, pairs, flag)
    return Found(topic, queue_id, message.body, checksum, waits, message.physical_offset, message.queue_offset)


def split_properties(data: bytes) -> list[tuple[bytes, bytes]]:
    """Names and values, as they are."""
    entries = [entry for entry in data.split(PROPERTY_SEPARATOR.encode()) if entry]
    parted = [entry.partition(NAME_VALUE_SEPARATOR.encode()) for entry in entries]
    return [(name, value) for name, _, value in parted]


@attrs.frozen
class Rule:
    """Which codes are right for a kind of request, at a broker that is the master all the while, or a slave."""

    at_master: Collection[int]
    at_slave: Collection[int]
    #: Whether it is of `STRANGE_TOPIC`, which a promoted slave may not know.
    needs_topic: bool = False
    #: Whether it is of `GROUP`, which a slave may not know yet, and does not make.
    needs_group: bool = False
    #: Whether it follows from a setting that was changed before, and that a broker forgets with its process.
    is_by_setting: bool = False
    #: Whether the broker itself may wait for an answer, longer than a stranger does.
    may_be_silent: bool = False
    #: With these codes of a master, all that the request may leave is in its log.
    stored: Collection[int] = ()

    @property
    def may_be_taken(self) -> bool:
        """Whether any broker may do what is asked."""
        return ResponseCode.SUCCESS in {*self.at_master, *self.at_slave}


#: The answers so far, and the request that is made then; None: no more is asked.
Step = Callable[[Sequence[RemotingCommand]], RemotingCommand | None]


def _nothing_wrong(_: str, __: Sequence[RemotingCommand]) -> str:
    return ""


@attrs.frozen
class StrangeRequest:
    """What is asked, one step after the other; `judged` is the step whose answer must be right.

    `leaves`: what may be in the log of whoever was asked. `wrong(role, answers)` says what else is wrong.
    """

    kind: str
    steps: Sequence[Step]
    leaves: Sequence[Left] = ()
    judged: int = 0
    wrong: Callable[[str, Sequence[RemotingCommand]], str] = _nothing_wrong


T = TypeVar("T")


@attrs.frozen
class Dice:
    """Draws from a node's entropy."""

    entropy: Entropy

    def random(self) -> float:
        """From 0 to less than 1."""
        return self.entropy.random()

    def randrange(self, count: int) -> int:
        """From 0 to less than `count`."""
        return int(self.entropy.random() * count)

    def choice(self, values: Sequence[T]) -> T:
        """One of them."""
        return values[self.randrange(len(values))]


@attrs.frozen
class Draft:
    """What a request is drawn from; `key` is no other's. A file of the broker's log has `file_bytes`."""

    rng: Dice
    key: str
    file_bytes: int

    @property
    def queue_id(self) -> int:
        """One that there is."""
        return self.rng.randrange(STRANGE_QUEUES)

    @property
    def body(self) -> bytes:
        """A short one."""
        return self.body_of(self.rng.randrange(_BODY_BYTES_MAX))

    def body_of(self, size: int) -> bytes:
        """One of at least so many bytes."""
        return (MARK + self.key.encode() + b" ").ljust(size, b"x")

    @property
    def properties(self) -> dict[str, str]:
        """Those of a usual message."""
        far = self.rng.choice(FAR_NUMBERS)
        return {"KEYS": self.key, "TAGS": self.rng.choice(TAGS), "n": str(self.rng.randrange(10)), "far": far}


Drawn = Callable[[Draft], StrangeRequest]


def command_of(code: int, header: CommandHeader | None = None, body: bytes = b"") -> RemotingCommand:
    """A request."""
    return RemotingCommand(code, None if header is None else encode_header(header), body=body)


def step(command: RemotingCommand) -> Step:
    """A request that is known from the beginning."""
    return lambda _: command


#: What a broker serves in a pool of its own (RocketMQ's replyMessageExecutor): other messages may overtake it.
_IN_OTHER_POOLS = frozenset({"reply"})


def overtaken(answered: Sequence[tuple[StrangeRequest, RemotingCommand | None]]) -> str:
    """What is wrong with the places of messages that were sent one after the other on one connection, in words."""
    last: dict[str, int] = {}
    for request, answer in answered:
        fields = None if answer is None else answer.ext_fields
        if not request.leaves or request.leaves[0].is_delayed or fields is None or "queueOffset" not in fields:
            continue
        if request.kind in _IN_OTHER_POOLS:
            continue
        queue_id, offset = fields["queueId"], int(fields["queueOffset"])
        if offset <= last.get(queue_id, -1):
            return f"a message got offset {offset} of queue {queue_id} after one that got {last[queue_id]}"
        last[queue_id] = offset
    return ""


def put_rule(*codes: int) -> Rule:
    """A message that is refused with these codes; without any, one that is taken. A slave takes none."""
    stored = () if codes else STORED
    return Rule(frozenset(codes) or STORED, {ResponseCode.SERVICE_NOT_AVAILABLE}, needs_topic=True, stored=stored)


def rule(at_master: Iterable[int], at_slave: Iterable[int] | None = None, *, needs_topic: bool = False) -> Rule:
    """These codes; at a slave the same, if nothing is said of one."""
    master = frozenset(at_master)
    return Rule(master, master if at_slave is None else frozenset(at_slave), needs_topic)


def pull_rule(at_master: Iterable[int], at_slave: Iterable[int] | None = None, *, needs_topic: bool = False) -> Rule:
    """The same for a pull of `GROUP`."""
    return attrs.evolve(rule(at_master, at_slave, needs_topic=needs_topic), needs_group=True)
