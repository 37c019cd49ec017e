"""Topics as brokers keep and report them (TopicConfig), and the version of such a table (DataVersion)."""

from __future__ import annotations

import enum
import re

from msgspec import field

from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.java_numbers import INT32, Int32, Int64
from rmq_actors.wire.remoting_command import RemotingCommandError

#: What Integer.parseInt takes, in ASCII.
_INTEGER = re.compile(r"[+-]?\d{1,10}", re.ASCII)


class DataVersion(RemotingSerializable, frozen=True, kw_only=True, eq=False):
    """The version of a table: two are equal when `counter` and `timestamp` (ms since the epoch) are.

    `state_version` is what 5.x adds; it is kept, and written again, but does not count.
    """

    counter: Int64 = 0
    state_version: Int64 | None = None
    timestamp: Int64 = 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DataVersion):
            return NotImplemented
        return self.counter == other.counter and self.timestamp == other.timestamp

    def __ne__(self, other: object) -> bool:  # msgspec's own compares identities
        return not self == other

    def __hash__(self) -> int:
        return hash((self.counter, self.timestamp))

    def next_version(self, timestamp_ms: int) -> DataVersion:
        """The version after this one (nextVersion)."""
        return DataVersion(counter=self.counter + 1, state_version=self.state_version, timestamp=timestamp_ms)


class TopicFilterType(enum.Enum):
    """How many tags a message may have: one, for every broker so far."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


class TopicConfig(RemotingSerializable, frozen=True, kw_only=True, gc=False):
    """One topic. `perm`: 4 read, 2 write, 1 inherit."""

    order: bool = False
    perm: Int32 = 6
    read_queue_nums: Int32 = 16
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_name: str
    topic_sys_flag: Int32 = 0
    write_queue_nums: Int32 = 16

    def encode(self) -> str:
        """The text of compressed registrations: `topic readQueueNums writeQueueNums perm SINGLE_TAG`."""
        numbers = f"{self.read_queue_nums} {self.write_queue_nums} {self.perm}"
        return f"{self.topic_name} {numbers} {self.topic_filter_type.value}"

    @staticmethod
    def decode(text: str) -> TopicConfig:
        """Read such a text; what 5.x writes after it (attributes) is dropped. Raises `RemotingCommandError`."""
        try:
            name, read_queue_nums, write_queue_nums, perm, filter_type = text.split(" ", 5)[:5]
            config = TopicConfig(
                topic_name=name,
                read_queue_nums=_int32(read_queue_nums),
                write_queue_nums=_int32(write_queue_nums),
                perm=_int32(perm),
                topic_filter_type=TopicFilterType(filter_type),
            )
        except ValueError as error:
            raise RemotingCommandError(
                f"{text[:120]!r} is no 'topic readQueueNums writeQueueNums perm topicFilterType'"
            ) from error
        return config


def _int32(text: str) -> int:
    number = int(text) if _INTEGER.fullmatch(text) else 2**31
    if number not in INT32:
        raise ValueError(f"{text} is no integer of 32 bits")
    return number


class TopicConfigSerializeWrapper(RemotingSerializable, frozen=True, kw_only=True):
    """All topics of a broker, by name, with their version."""

    data_version: DataVersion = DataVersion()
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
