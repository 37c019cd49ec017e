"""A census of the live tree: what there is, in which state, how full, how often restarted; as values and as text."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import attrs

from rmq_actors.actors.messages.cell import Cell, Envelope, Notice
from rmq_actors.actors.messages.mailbox import EMPTY
from rmq_actors.actors.messages.spawner import ActorChild
from rmq_actors.actors.restart import Terminated
from rmq_actors.actors.services.child import Child, Kind, State
from rmq_actors.actors.services.supervisor import Supervisor, nested


@runtime_checkable
class HasQueue(Protocol):
    """A service with a bounded queue of work: the census shows it as a mailbox."""

    @property
    def queue_length(self) -> int:
        """How much waits in it."""
        ...

    @property
    def queue_capacity(self) -> int:
        """How much it holds."""
        ...


@attrs.frozen
class Entry:
    """One child. `handles` and `waits_for` are empty for what is not an actor, and mailbox fields 0.

    The queue of a service that `HasQueue` is shown as its mailbox.

    `parent` is the path of its supervisor or parent actor, "" for the root; `handles` the type of the message under
    way; `waits_for` the paths of those whose replies its handler awaits.
    """

    path: str
    parent: str
    kind: Kind
    state: State
    restarts: int
    mailbox_messages: int = 0
    mailbox_messages_max: int = 0
    control_messages: int = 0
    waiting_senders: int = 0
    handles: str = ""
    waits_for: tuple[str, ...] = ()


@attrs.frozen
class Census:
    """All children of a system, each parent before its children, in the order of their start."""

    system: str
    entries: tuple[Entry, ...]
    dead_letters: int

    @property
    def paths(self) -> list[str]:
        """The path of each."""
        return [entry.path for entry in self.entries]

    def __getitem__(self, path: str) -> Entry:
        for entry in self.entries:
            if entry.path == path:
                return entry
        raise KeyError(path)

    def __str__(self) -> str:
        rows = [("actor", "kind", "state", "restarts", "mailbox", "handles", "waits for")]
        for entry in self.entries:
            depth = entry.path.count("/")
            mailbox = f"{entry.mailbox_messages}/{entry.mailbox_messages_max}" if entry.mailbox_messages_max else ""
            name = "  " * depth + entry.path.rpartition("/")[2]
            waits_for = ", ".join(entry.waits_for)
            rows.append((name, entry.kind, entry.state, str(entry.restarts), mailbox, entry.handles, waits_for))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([f"{self.system}: {len(self.entries)} actors, {self.dead_letters} dead letters", *lines])


def take_census(root: Supervisor, dead_letters: int) -> Census:
    """The tree below `root`, now."""
    return Census(root.name, tuple(_below(root)), dead_letters)


def _below(supervisor: Supervisor) -> list[Entry]:
    found = []
    for child in supervisor.children:
        found.append(_entry(child, supervisor.path))
        if (below := nested(child)) is not None:
            found += _below(below)
    return found


def _entry(child: Child, parent: str) -> Entry:
    if not isinstance(child, ActorChild):
        service = child.service
        queue = (service.queue_length, service.queue_capacity) if isinstance(service, HasQueue) else (0, 0)
        return Entry(child.path, parent, child.kind, child.state, child.restarts, *queue)
    cell = child.cell
    mailbox = cell.mailbox
    return Entry(
        child.path,
        parent,
        child.kind,
        child.state,
        child.restarts,
        len(mailbox),
        mailbox.messages_max,
        mailbox.control_messages,
        mailbox.waiting_senders,
        _handles(cell),
        tuple(dict.fromkeys(asked.path for asked in cell.waits_for.values())),
    )


def _handles(cell: Cell) -> str:
    item = cell.under_way
    if item is EMPTY:
        return ""
    if isinstance(item, Notice):
        return Terminated.__name__
    return type(item.message if isinstance(item, Envelope) else item).__name__
