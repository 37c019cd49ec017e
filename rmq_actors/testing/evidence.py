"""What a test can look at in a simulated world without asking brokers: page caches, stores, what is left open."""

from __future__ import annotations

import contextlib
import contextvars
import json
from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.protocols.term import Term
from rmq_actors.store.check.check_store import check_store
from rmq_actors.store.files.layout import (
    COMMIT_LOG_DIRECTORY,
    CONSUMER_OFFSET_FILE,
    CUT_DIRECTORY,
    DELETED_TOPICS_FILE,
    EXCHANGE_FILE,
    SUBSCRIPTION_GROUP_FILE,
    TERM_FILE,
    TOPICS_FILE,
    file_name,
)
from rmq_actors.store.files.term_file import load_term
from rmq_actors.tracing.event import Event
from rmq_actors.tracing.events.node import NodePowerLoss
from rmq_actors.tracing.events.store import LogTruncate, StoreOpen
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.offsets import ConsumerOffsetSerializeWrapper
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupWrapper
from rmq_actors.wire.bodies.topic_configs import TopicConfigSerializeWrapper
from sim_net import Node, SimDisk, SimFile, World

#: After one of these events other files may have the same names: recovery, a truncation or a power cut made them.
FILES_CHANGE: tuple[type[Event], ...] = (StoreOpen, LogTruncate, NodePowerLoss)


@attrs.define(eq=False, repr=False)
class WorldEvidence:
    """Reads the disks of `nodes`; subscribe `forget_files` to the run's recorder, for `FILES_CHANGE`."""

    world: World
    nodes: Mapping[str, Node]
    brokers: Mapping[str, BrokerController]
    log_file_bytes: int
    max_hash_slot_num: int
    #: By node and path, files that an operator has taken away or spoilt, and will put back; and terms by node.
    _aside: dict[tuple[str, str], bytes] = attrs.field(factory=dict, init=False)
    _terms_aside: dict[str, Term] = attrs.field(factory=dict, init=False)
    #: Outside of every node, so that a dead node's page cache can be read too.
    _outside: contextvars.Context = attrs.field(factory=contextvars.Context, init=False)
    _files: dict[tuple[str, int], SimFile] = attrs.field(factory=dict, init=False)

    def read_log(self, node: str, begin: int, end: int) -> bytes:
        """The bytes of the node's log in its page cache."""
        parts, size = [], self.log_file_bytes
        while begin < end:
            first = begin - begin % size
            stop = min(end, first + size)
            parts.append(bytes(self._log_file(node, first)[begin - first : stop - first]))
            begin = stop
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _log_file(self, node: str, first: int) -> memoryview:
        path = f"{COMMIT_LOG_DIRECTORY}/{file_name(first)}"
        aside = self._aside.get((node, path)) if self._aside else None
        if aside is not None:
            return memoryview(aside)
        file = self._files.get((node, first))
        if file is None:
            file = self._outside.run(self.nodes[node].disk.open, path, read_only=True)
            self._files[node, first] = file
        return file.map()

    def forget_files(self, _: Event) -> None:
        """Open the files again when they are read next."""
        for file in self._files.values():
            self._outside.run(file.close)
        self._files.clear()

    def is_kept(self, node: str, offset: int, data: bytes, *, except_at: Collection[int] = ()) -> bool:
        """Whether `cut/` has the bytes of the node's log from `offset` on, in one file per file of the log."""
        disk, size = self.nodes[node].disk, self.log_file_bytes
        names = self._outside.run(disk.list, CUT_DIRECTORY)
        while data:
            part = data[: size - offset % size]
            own = [name for name in names if name.partition(".")[0] == file_name(offset)]
            differ = [at - offset for at in except_at if offset <= at < offset + len(part)]
            # A cut keeps only a blank's head, as nothing was written after it.
            kept = _without(part, differ).rstrip(b"\0")
            if not any(_without(self._content(disk, name), differ).startswith(kept) for name in own):
                return False
            offset, data = offset + len(part), data[len(part) :]
        return True

    def _content(self, disk: SimDisk, name: str) -> bytes:
        file = self._outside.run(disk.open, f"{CUT_DIRECTORY}/{name}", read_only=True)
        with contextlib.closing(file):
            return bytes(file.map())

    def table(self, node: str, part: str) -> frozenset[str]:
        """The names of a table's entries, as the node's file has them."""
        if part == "topics":
            text = self._read(node, TOPICS_FILE)
            return frozenset(decode_body(TopicConfigSerializeWrapper, text).topic_config_table if text else ())
        text = self._read(node, SUBSCRIPTION_GROUP_FILE)
        return frozenset(decode_body(SubscriptionGroupWrapper, text).subscription_group_table if text else ())

    def consumer_offsets(self, node: str) -> Mapping[str, Mapping[int, int]]:
        """The offsets of the node's file, by "topic@group" and queue."""
        text = self._read(node, CONSUMER_OFFSET_FILE)
        return decode_body(ConsumerOffsetSerializeWrapper, text).offset_table if text else {}

    def _read(self, node: str, path: str) -> bytes:
        """What a broker would load: the content of a file, or of its `.bak`; empty if there is none.

        A disk that is full between the two renames of a change leaves the `.bak` alone.
        """
        disk = self.nodes[node].disk
        for name in (path, f"{path}.bak"):
            try:
                file = self._outside.run(disk.open, name, read_only=True)
            except FileNotFoundError:
                continue
            with contextlib.closing(file):
                if file.size_bytes:
                    return bytes(file.map())
        return b""

    def term(self, node: str) -> Term:
        """The term of replication that the node's file has."""
        aside = self._terms_aside.get(node)
        return self._outside.run(load_term, self.nodes[node].disk) if aside is None else aside

    def set_aside(self, node: str, files: Mapping[str, bytes | None]) -> None:
        """Until `put_back` the log and the term of a node are those of now, whatever becomes of these files."""
        if TERM_FILE in files:
            self._terms_aside[node] = self.term(node)
        self._aside.update({(node, path): data for path, data in files.items() if data is not None})

    def put_back(self, node: str) -> None:
        """What was set aside of a node is there again."""
        self._terms_aside.pop(node, None)
        self._aside = {key: data for key, data in self._aside.items() if key[0] != node}

    def has_exchange_note(self, node: str) -> bool:
        """Whether a start would find the note of an exchange of roles."""
        return bool(self._read(node, EXCHANGE_FILE))

    def deletions_under_way(self, node: str) -> frozenset[str]:
        """The topics that the node has begun to delete, as its file has them: their queues are gone, and no more is."""
        return frozenset(json.loads(self._read(node, DELETED_TOPICS_FILE) or b"{}").get("deleting", ()))

    def fallbehind_max_bytes(self, node: str) -> int:
        """haSlaveFallbehindMax of the node's broker, which runs."""
        return self.brokers[node].config.store.ha_slave_fallbehind_max_bytes

    def offsets_past_ends(self, node: str) -> Sequence[tuple[str, int, int, int]]:
        """Consumers' offsets that the node's broker, which runs, has in memory past their queues' ends."""
        broker = self.brokers[node]
        if broker.remoting is None:
            return []
        table, end_of = broker.remoting.metadata.consumer_offsets.wrapper().offset_table, broker.store.offsets
        return [
            (key, queue_id, offset, end)
            for key, offsets in table.items()
            for queue_id, offset in offsets.items()
            if offset > (end := end_of.get_max_offset_in_queue(key.rpartition("@")[0], queue_id))
        ]

    def damage(self, node: str) -> Sequence[str]:
        """What `store check` finds wrong in the store of a node that has stopped."""
        findings = check_store(self.nodes[node].disk, max_hash_slot_num=self.max_hash_slot_num)
        return [str(finding) for finding in findings if finding.severity != "note"]

    def leaks(self) -> Sequence[str]:
        """Tasks, connections, entries of connections, ports, files and locks that are left at any node."""
        return [
            *self.world.leaks(),
            *(
                f"{name}: HAService has connections {sorted(broker.ha_service.connections)}"
                for name, broker in self.brokers.items()
                if broker.ha_service.connections
            ),
        ]


def _without(data: bytes, positions: Iterable[int]) -> bytes:
    """Zeros at these positions."""
    changed = bytearray(data)
    for position in positions:
        changed[position : position + 1] = bytes(len(changed[position : position + 1]))
    return bytes(changed)
