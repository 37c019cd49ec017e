"""What happened in a world, in order: nodes, faults and the network's misfortunes.

The kinds, with their attributes; the column of an entry that names a node is `node`, empty for the world itself:

* node.boot, node.kill, node.stop, node.late_error(status)
* fault.begin(fault_id, fault.kind), fault.end(fault_id, fault.kind)
* net.connect(peer, status: ok, refused or timed_out), net.partial_write(peer, size), net.partial_read(peer, size),
  net.stall(peer), net.held(peer, size)
* net.reset(peer, status), of the end that sees it: killed (the peer's process), fault, unread_data (the peer closed
  without reading it), closed (the peer gave up a connection not yet accepted), no_connection (the peer knows of none)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sim_net.kernel import Kernel

AttributeValue = str | float


class JournalEntry(NamedTuple):
    """One entry: its place in the run, the virtual time in ns, the node, what happened, and the particulars."""

    seq: int
    time_ns: int
    node: str
    kind: str
    attributes: Mapping[str, AttributeValue]


class Journal:
    """The ordered entries of a run. Each enters the digest, is handed to the subscribers, and is kept if asked to."""

    def __init__(self, kernel: Kernel, *, keep: bool = True, entries_max: int = 100_000) -> None:
        self._kernel = kernel
        self._mix = kernel.digest.mix
        self._subscribers: list[Callable[[JournalEntry], object]] = []
        self._count = 0
        #: The latest `entries_max` entries, oldest first; empty unless `keep`.
        self.entries: deque[JournalEntry] = deque(maxlen=entries_max if keep else 0)

    def __len__(self) -> int:
        """How many entries were recorded, kept or not."""
        return self._count

    def subscribe(self, callback: Callable[[JournalEntry], object]) -> None:
        """Hand every later entry to `callback`, at once. Its exceptions fail the run, not the program under test."""
        self._subscribers.append(callback)

    def record(self, node: str, kind: str, **attributes: AttributeValue) -> None:
        """Append an entry for now."""
        entry = JournalEntry(self._count, self._kernel.now_ns, node, kind, attributes)
        self._count += 1
        self._mix(f"{node}\0{kind}\0{attributes}".encode())
        self.entries.append(entry)
        if self._subscribers:
            self._kernel.woken = True
            for callback in self._subscribers:
                try:
                    callback(entry)
                except BaseException as error:  # noqa: BLE001 - the caller may be the program under test
                    self._kernel.fail(error)

    def mix(self, data: bytes) -> None:
        """Let a program's own trace enter the digest."""
        self._mix(data)
