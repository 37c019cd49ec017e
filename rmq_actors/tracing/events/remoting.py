"""Remoting and its access control."""

from __future__ import annotations

from rmq_actors.tracing.event import Event, attribute


class RemotingOpen(Event, kind="remoting.open", emitter="remoting.server"):
    """A peer connected."""

    conn_id: int
    peer_address: str = attribute("network.peer.address")


class RemotingClose(Event, kind="remoting.close", emitter="remoting.server"):
    """A peer's connection ended; status says why."""

    conn_id: int
    status: str


class RemotingRefused(Event, kind="remoting.refused", emitter="remoting.server"):
    """A connection too many was closed."""

    peer_address: str = attribute("network.peer.address")


class RemotingBusy(Event, kind="remoting.busy", emitter="remoting.processor, broker.processors.send_message"):
    """A request was answered SYSTEM_BUSY."""

    conn_id: int
    status: str
    code: int


class RemotingFailed(Event, kind="remoting.failed", emitter="remoting.processor", actor="ProcessorTable"):
    """A request was answered SYSTEM_ERROR; status: bad_request, or what its processor raised."""

    conn_id: int
    status: str
    code: int
    detail: str


class RemotingClientConnect(Event, kind="remoting.client.connect", emitter="remoting.client"):
    """Connected to a peer."""

    conn_id: int
    peer_address: str = attribute("network.peer.address")


class RemotingClientConnectFailed(Event, kind="remoting.client.connect_failed", emitter="remoting.client"):
    """An attempt to connect failed."""

    peer_address: str = attribute("network.peer.address")
    detail: str


class RemotingClientClose(Event, kind="remoting.client.close", emitter="remoting.client"):
    """The connection ended; status says why."""

    conn_id: int
    status: str


class RemotingDenied(Event, kind="remoting.denied", emitter="remoting.acl", actor="PlainAccessValidator"):
    """Access control refused a request."""

    peer_address: str = attribute("network.peer.address")
    code: int
    detail: str


class AclLoad(Event, kind="acl.load", emitter="remoting.plain_acl_file", actor="AclFileWatchService"):
    """The files of accounts changed; status ok, or kept: they cannot be used, and the rules stay."""

    status: str
    detail: str
