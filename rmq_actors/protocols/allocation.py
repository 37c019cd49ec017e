"""Which queues each consumer of a group gets (AllocateMessageQueueStrategy): the same answer at each of them.

Nobody assigns queues. Each consumer sorts the queues and the client ids as all others do, and asks the same strategy;
so a strategy must give what Java's class of its name gives. A consumer that is not among the ids gets nothing.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterable, Sequence
from typing import Protocol

import attrs

from rmq_actors.wire.bodies.message_queues import MessageQueue

#: How many places on the ring a consumer has, by default.
_VIRTUAL_NODES = 10


class AllocateMessageQueueStrategy(Protocol):
    """One way to share queues."""

    @property
    def name(self) -> str:
        """What RocketMQ calls it."""
        ...

    def allocate(
        self, consumer_group: str, current_cid: str, mq_all: Sequence[MessageQueue], cid_all: Sequence[str]
    ) -> list[MessageQueue]:
        """The queues of `current_cid`. Both sequences are sorted (`sorted_queues`, `sorted_ids`)."""
        ...


def sorted_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """In the order of Java's MessageQueue: topic, broker name, number."""
    return sorted(queues, key=lambda each: (_java_order(each.topic), _java_order(each.broker_name), each.queue_id))


def sorted_ids(client_ids: Iterable[str]) -> list[str]:
    """In the order of Java's String."""
    return sorted(client_ids, key=_java_order)


@attrs.frozen
class AllocateMessageQueueAveragely:
    """Neighbours go together: of 5 queues and 2 consumers the first gets 3, the second 2."""

    name = "AVG"

    def allocate(
        self, consumer_group: str, current_cid: str, mq_all: Sequence[MessageQueue], cid_all: Sequence[str]
    ) -> list[MessageQueue]:
        """See `AllocateMessageQueueStrategy`."""
        if not _is_member(current_cid, mq_all, cid_all):
            return []
        index = cid_all.index(current_cid)
        each, rest = divmod(len(mq_all), len(cid_all))
        begin = index * each + min(index, rest)
        return list(mq_all[begin : begin + each + (index < rest)])


@attrs.frozen
class AllocateMessageQueueAveragelyByCircle:
    """Queues are dealt out one by one."""

    name = "AVG_BY_CIRCLE"

    def allocate(
        self, consumer_group: str, current_cid: str, mq_all: Sequence[MessageQueue], cid_all: Sequence[str]
    ) -> list[MessageQueue]:
        """See `AllocateMessageQueueStrategy`."""
        if not _is_member(current_cid, mq_all, cid_all):
            return []
        return list(mq_all[cid_all.index(current_cid) :: len(cid_all)])


@attrs.frozen
class AllocateMessageQueueByConfig:
    """What is written here, whoever else is in the group."""

    message_queue_list: tuple[MessageQueue, ...]
    name = "CONFIG"

    def allocate(
        self, consumer_group: str, current_cid: str, mq_all: Sequence[MessageQueue], cid_all: Sequence[str]
    ) -> list[MessageQueue]:
        """See `AllocateMessageQueueStrategy`."""
        return list(self.message_queue_list)


@attrs.frozen
class AllocateMessageQueueByMachineRoom:
    """Only queues of some machine rooms, of brokers with names such as "room1@broker-a", dealt out evenly."""

    consumeridcs: frozenset[str]
    name = "MACHINE_ROOM"

    def allocate(
        self, consumer_group: str, current_cid: str, mq_all: Sequence[MessageQueue], cid_all: Sequence[str]
    ) -> list[MessageQueue]:
        """See `AllocateMessageQueueStrategy`."""
        if not _is_member(current_cid, mq_all, cid_all):
            return []
        index = cid_all.index(current_cid)
        near = [each for each in mq_all if self._is_near(each.broker_name)]
        count, rest = divmod(len(near), len(cid_all))
        found = near[count * index : count * (index + 1)]
        if rest > index:
            found.append(near[index + count * len(cid_all)])
        return found

    def _is_near(self, broker_name: str) -> bool:
        room, at, name = broker_name.rstrip("@").partition("@")  # Java's split drops what is empty at the end
        return bool(at) and bool(name) and "@" not in name and room in self.consumeridcs


@attrs.frozen
class AllocateMessageQueueConsistentHash:
    """Consumers and queues on a ring of MD5: one that comes or goes moves few queues, at the price of uneven shares."""

    virtual_node_cnt: int = _VIRTUAL_NODES
    name = "CONSISTENT_HASH"

    def __attrs_post_init__(self) -> None:
        if type(self.virtual_node_cnt) is not int or self.virtual_node_cnt < 0:
            raise ValueError(f"virtual_node_cnt {self.virtual_node_cnt!r} is not a whole number from 0 on")

    def allocate(
        self, consumer_group: str, current_cid: str, mq_all: Sequence[MessageQueue], cid_all: Sequence[str]
    ) -> list[MessageQueue]:
        """See `AllocateMessageQueueStrategy`."""
        if not _is_member(current_cid, mq_all, cid_all):
            return []
        ring, replicas = dict[int, str](), dict[str, int]()
        for cid in cid_all:
            for _ in range(self.virtual_node_cnt):
                number = replicas[cid] = replicas.get(cid, -1) + 1
                ring[_place(f"{cid}-{number}")] = cid
        places = sorted(ring)
        if not places:
            return []
        return [
            each
            for each in mq_all
            if ring[places[bisect.bisect_left(places, _place(_java_text(each))) % len(places)]] == current_cid
        ]


def _is_member(current_cid: str, mq_all: Sequence[MessageQueue], cid_all: Sequence[str]) -> bool:
    """Raises `ValueError` for what cannot be shared."""
    for what, value in (("current_cid", current_cid), ("mq_all", mq_all), ("cid_all", cid_all)):
        if not value:
            raise ValueError(f"{what} is empty")
    return current_cid in cid_all


def _java_order(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _java_text(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def _place(key: str) -> int:
    return int.from_bytes(hashlib.md5(key.encode(errors="replace"), usedforsecurity=False).digest()[:4], "big")
