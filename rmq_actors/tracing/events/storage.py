"""The simulated disks: the journal of sim_net tells of them."""

from __future__ import annotations

from rmq_actors.tracing.event import Event, attribute


class StorageError(Event, kind="storage.error", emitter="sim_net.disk.disk", actor="sim_net"):
    """An operation failed by a fault."""

    status: str
    path: str
    operation: str


class StorageSlow(Event, kind="storage.slow", emitter="sim_net.disk.disk_sync", actor="sim_net"):
    """A sync takes extra_s longer."""

    path: str
    operation: str
    extra_s: float


class StorageStuck(Event, kind="storage.stuck", emitter="sim_net.disk.disk_sync", actor="sim_net"):
    """A sync does not come to its end."""

    path: str
    operation: str


class StorageMisdirected(Event, kind="storage.misdirected", emitter="sim_net.disk.disk", actor="sim_net"):
    """A write landed elsewhere."""

    size: int
    path: str
    file_offset: int = attribute("offset")
    landed: int


class StorageRot(Event, kind="storage.rot", emitter="sim_net.disk.disk", actor="sim_net"):
    """A bit of a durable byte flipped."""

    path: str
    file_offset: int = attribute("offset")


class StorageLost(Event, kind="storage.lost", emitter="sim_net.disk.disk", actor="sim_net"):
    """A power loss undid what was not synced; status: name, data or length."""

    status: str
    path: str
    size: int | None = None


class StorageTorn(Event, kind="storage.torn", emitter="sim_net.disk.disk", actor="sim_net"):
    """A power loss tore pages at sector edges."""

    path: str
    pages: int
