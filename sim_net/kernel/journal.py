"""What happened in a world, in order: nodes, faults and the network's misfortunes.

The kinds, with their attributes; the column of an entry that names a node is `node`, empty for the world itself:

* node.boot, node.kill, node.power_loss, node.stop, node.pause, node.resume, node.late_error(status)
* clock.jump(by_ms), clock.drift(rate_ppm)
* fault.begin and fault.end(fault_id, fault.kind, fault.nodes: their names, with commas between)
* net.connect(peer, status: ok, refused or timed_out), net.partial_write(peer, size), net.partial_read(peer, size),
  net.stall(peer), net.held(peer, size), net.lost(peer, size, count: of the losses), net.queued(peer, size, wait_s: the
  time that the bandwidth costs)
* net.duplicated(peer, size), net.reordered(peer, size), of datagrams; net.dropped(peer, size), of one that found the
  receive buffer full
* net.reset(peer, status), of the end that sees it: killed (the peer's process), fault, unread_data (the peer closed
  without reading it), closed (the peer gave up a connection not yet accepted), linger (the peer closed
  with SO_LINGER and no time), no_connection (the peer knows of none), timed_out (nothing was acknowledged for too long)
* storage.error(path, operation, status: the errno's name), storage.slow(path, operation, extra_s),
  storage.stuck(path, operation), storage.misdirected(path, offset, size, landed), storage.rot(path, offset)
* storage.lost(path, status: name, data or length, size: bytes of data), storage.torn(path, pages), at a power loss
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from sim_net.kernel.kernel import Kernel

AttributeValue = str | float

_LATEST: Final = 5


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
        self._latest: dict[str, deque[JournalEntry]] = {}
        kernel.describe_history = self.describe_latest
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
        latest = self._latest.get(node)
        if latest is None:
            latest = self._latest[node] = deque(maxlen=_LATEST)
        latest.append(entry)
        if self._subscribers:
            self._kernel.woken = True
            for callback in self._subscribers:
                try:
                    callback(entry)
                except BaseException as error:  # noqa: BLE001 - the caller may be the program under test
                    self._kernel.fail(error)

    def describe_latest(self) -> str:
        """The last few entries of each node, for reports; remembered even if no entries are kept."""
        lines = []
        for node, entries in self._latest.items():
            lines.append(f"node {node}:" if node else "the world:")
            for entry in entries:
                attributes = "".join(f" {name}={value}" for name, value in entry.attributes.items())
                lines.append(f"  {entry.time_ns / 1e9:.6f} s {entry.kind}{attributes}")
        return "\n".join(lines)

    def mix(self, data: bytes) -> None:
        """Let a program's own trace enter the digest."""
        self._mix(data)
