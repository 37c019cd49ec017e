"""The one event type of every trace, its columns, and the registry of kinds.

A trace is the list of events of one run, simulated or real. Arrow's and Spark's schemas and `docs/trace-schema.md` are
made from `COLUMNS`; a kind that `KINDS` does not list cannot be recorded. Columns that nothing fills yet are null: the
schema is whole from the first run on, so that old traces stay readable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal, NamedTuple

import attrs

SCHEMA_VERSION = 1

ColumnType = Literal["int8", "int16", "int32", "int64", "string", "dictionary", "links", "string_map"]


@attrs.frozen
class Column:
    """One column: its name, its type, and what it means."""

    name: str
    type: ColumnType
    meaning: str
    nullable: bool = True


#: Columns in file order. New ones are nullable and go to the end.
COLUMNS: tuple[Column, ...] = (
    Column("run_id", "int64", "stable hash of campaign, scenario, seed and config", nullable=False),
    Column("seed", "int64", "the integer that the run was made from; 0 for a real run", nullable=False),
    Column("seq", "int64", "position in the run, dense from 0 (dense per node for real brokers)", nullable=False),
    Column("sim_time_ns", "int64", "virtual time since the start of the run; null in real runs"),
    Column("wall_time_ns", "int64", "wall clock of the recording process, ns since the epoch", nullable=False),
    Column("node", "dictionary", "the node that the event happened on; empty for the world itself", nullable=False),
    Column("actor", "dictionary", "the actor, under RocketMQ's name for it", nullable=False),
    Column("kind", "dictionary", "what happened: a name of `KINDS`", nullable=False),
    Column("status", "dictionary", "how it ended, or why"),
    Column("state_from", "dictionary", "the state before a transition"),
    Column("state_to", "dictionary", "the state after a transition"),
    Column("task", "int32", "number of the Trio task, in order of spawning"),
    Column("parent_seq", "int64", "seq of the event that caused this one"),
    Column("link_id", "int64", "envelope number of an actor message"),
    Column("conn_id", "int32", "connection number, given by the master: from 1 in each life of the node"),
    Column("conn_dir", "int8", "0 from the slave or client, 1 from the master or server"),
    Column("offset", "int64", "physical offset in the commit log, bytes"),
    Column("size", "int32", "bytes"),
    Column("digest", "int64", "rolling digest of the log's prefix at offset + size"),
    Column("msg_id", "int64", "number of the put, given by the master: from 0 in each life of the node"),
    Column("msg_uid", "string", "UNIQ_KEY of the message (real brokers)"),
    Column("fault_id", "int32", "index of the fault in the run's schedule"),
    Column("lamport", "int64", "Lamport time"),
    Column("links", "links", "further causes, as (node, seq)"),
    Column("schema_version", "int16", "version of this table's meaning", nullable=False),
    Column("attrs", "string_map", "what the kind requires beyond columns; OpenTelemetry's names where it has one"),
)


class Event(NamedTuple):
    """One event in memory: the columns of `COLUMNS` without those that are constant in a run."""

    seq: int
    sim_time_ns: int | None
    wall_time_ns: int
    node: str
    actor: str
    kind: str
    status: str | None = None
    state_from: str | None = None
    state_to: str | None = None
    task: int | None = None
    parent_seq: int | None = None
    link_id: int | None = None
    conn_id: int | None = None
    conn_dir: int | None = None
    offset: int | None = None
    size: int | None = None
    digest: int | None = None
    msg_id: int | None = None
    msg_uid: str | None = None
    fault_id: int | None = None
    lamport: int | None = None
    links: tuple[tuple[str, int], ...] | None = None
    attrs: Mapping[str, str] | None = None


RUN_COLUMNS = frozenset({"run_id", "seed", "schema_version"})


@attrs.frozen
class Kind:
    """A kind of event: which columns and attributes it must carry, and who emits it."""

    name: str
    emitter: str
    meaning: str
    columns: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()


_KINDS: tuple[Kind, ...] = (
    # The run and its faults.
    Kind("run.start", "testing.scenarios, cli", "the run begins"),
    Kind("run.end", "testing.scenarios, cli", "the run ends; status is its outcome", ("status",)),
    Kind("fault.begin", "sim_net.nemesis", "a fault takes effect", ("fault_id",), ("fault.kind",)),
    Kind("fault.end", "sim_net.nemesis", "a fault is over", ("fault_id",), ("fault.kind",)),
    Kind(
        "fault.observed",
        "testing.observation, testing.replication_run",
        "the program under test met a fault",
        ("status",),
    ),
    Kind(
        "invariant.broken",
        "testing.replication_run",
        "an invariant does not hold; status names it",
        ("status",),
        ("detail",),
    ),
    # The operator of a scenario.
    Kind(
        "operator.promote",
        "testing.replication_run",
        "an operator makes this node the master; status says by what it was chosen: longest or shortest log",
        ("status",),
    ),
    Kind("operator.set_up_anew", "testing.replication_run", "an operator removes all that a slave has"),
    # Nodes and actors.
    Kind("node.boot", "sim_net.node, embedding", "a node starts"),
    Kind("node.kill", "sim_net.node", "a node dies; its page cache survives"),
    Kind(
        "node.late_error",
        "sim_net.node",
        "clean-up of a dead incarnation raised; status names the exception",
        ("status",),
    ),
    Kind("node.power_loss", "sim_net.node", "a node loses its power, and what its disk had not made durable"),
    Kind("node.stop", "sim_net.node", "a node has stopped in order"),
    Kind("node.pause", "sim_net.node", "a process takes no more steps, as in a long garbage collection"),
    Kind("node.resume", "sim_net.node", "a paused process goes on"),
    Kind("clock.jump", "sim_net.node_faults", "a wall clock is set forward or back", attributes=("by_ms",)),
    Kind("clock.drift", "sim_net.node_faults", "a wall clock begins to drift", attributes=("rate_ppm",)),
    Kind("actor.start", "actors.child", "an actor, a service or a supervisor is running"),
    Kind("actor.stop", "actors.child", "an actor has stopped; status finished: by itself"),
    Kind("actor.crash", "actors.child", "an actor raised; status: what", ("status",), ("detail",)),
    Kind("actor.restart", "actors.child", "an actor was made anew; parent_seq: the exit that made it necessary"),
    Kind("actor.stuck", "actors.child", "an actor ignores its cancellation; detail: where it waits", (), ("detail",)),
    Kind(
        "actor.handler_failed",
        "actors.incarnation",
        "a handler raised what its actor logs and goes on after",
        ("status",),
        ("detail",),
    ),
    Kind("actor.wakeup", "actors.service", "a wait ended; status: interval, or who woke it", ("status",)),
    # Messages between actors, where they were asked for.
    Kind("actor.send", "actors.cell", "a message was sent by this actor", ("link_id",), ("to", "message")),
    Kind(
        "actor.message",
        "actors.incarnation",
        "a message is handled; parent_seq: its actor.send",
        ("link_id",),
        ("message",),
    ),
    Kind("actor.dead_letter", "actors.cell", "a message was not handled; status says why", ("status",), ("message",)),
    # The simulated network.
    Kind("net.connect", "sim_net.stream_socket", "a connection attempt ended: ok, refused or timed_out", ("status",)),
    Kind("net.reset", "sim_net.connection", "a connection was reset", ("status",)),
    Kind("net.partial_write", "sim_net.connection", "a send took fewer bytes than offered", ("size",)),
    Kind("net.partial_read", "sim_net.connection", "a receive gave fewer bytes than there were", ("size",)),
    Kind("net.stall", "sim_net.stream_socket", "a sender waits: no room in the send buffer"),
    Kind("net.held", "sim_net.connection", "a packet could not pass a partitioned, held or stalled link", ("size",)),
    Kind("net.lost", "sim_net.connection", "a packet was lost, count times until it passed", ("size",), ("count",)),
    Kind("net.queued", "sim_net.connection", "a segment leaves wait_s late: a throttled link", ("size",), ("wait_s",)),
    Kind("net.duplicated", "sim_net.datagram_socket", "a datagram arrives twice", ("size",)),
    Kind("net.reordered", "sim_net.datagram_socket", "a datagram is overtaken by later ones", ("size",)),
    Kind("net.dropped", "sim_net.datagram_socket", "a datagram found a full receive buffer", ("size",)),
    # The simulated disk.
    Kind("storage.error", "sim_net.disk", "an operation failed by a fault", ("status",), ("path", "operation")),
    Kind(
        "storage.slow", "sim_net.disk_sync", "a sync takes extra_s longer", attributes=("path", "operation", "extra_s")
    ),
    Kind("storage.stuck", "sim_net.disk_sync", "a sync does not come to its end", attributes=("path", "operation")),
    Kind("storage.misdirected", "sim_net.disk", "a write landed elsewhere", ("size",), ("path", "offset", "landed")),
    Kind("storage.rot", "sim_net.disk", "a bit of a durable byte flipped", attributes=("path", "offset")),
    Kind(
        "storage.lost",
        "sim_net.disk",
        "a power loss undid what was not synced; status: name, data or length",
        ("status",),
        ("path",),
    ),
    Kind("storage.torn", "sim_net.disk", "a power loss tore pages at sector edges", attributes=("path", "pages")),
    # The store.
    Kind(
        "store.open",
        "store.commit_log",
        "recovery ended; offset is the log's end, status clean or torn_tail_cut",
        ("offset", "status"),
    ),
    Kind("log.append", "store.commit_log", "bytes were appended at offset", ("offset", "size")),
    Kind("log.roll", "store.commit_log", "a new file begins at offset", ("offset",)),
    Kind(
        "log.allocate",
        "store.allocate_mapped_file_service",
        "the next file was prepared; status ok, or what failed",
        ("offset", "status"),
    ),
    Kind(
        "log.delete",
        "store.clean_services",
        "the oldest file was removed; offset is where the log begins now, status why",
        ("offset", "status"),
    ),
    Kind(
        "queue.delete",
        "store.clean_services",
        "so many files of queues, index and transactions were removed: they spoke of nothing from offset on",
        ("offset", "size"),
    ),
    Kind(
        "store.disk_full",
        "store.clean_services",
        "the disk is so many percent full; status: puts are refused, or accepted again",
        ("status", "size"),
    ),
    Kind(
        "log.truncate",
        "store.truncation",
        "a slave's log was cut at offset; size bytes behind it were kept aside",
        ("offset", "size"),
    ),
    Kind("log.flush", "store.flush_services, store.store_files", "everything before offset is durable", ("offset",)),
    Kind("log.flush_failed", "store.flush_services", "a sync failed: the store refuses writes", ("offset", "status")),
    Kind(
        "store.term",
        "store.term_file",
        "the term of replication is another one, durably; status promoted, resigned, adopted",
        ("status",),
        ("term", "leads"),
    ),
    Kind(
        "store.dispatch",
        "store.reput_message_service",
        "every record before offset is in its queue and in the index; size: how many records this batch had",
        ("offset", "size"),
    ),
    Kind(
        "store.dispatch_failed",
        "store.reput_message_service",
        "records cannot be dispatched; it is tried again, and puts are refused meanwhile",
        ("offset", "status"),
        ("detail",),
    ),
    Kind(
        "store.checkpoint",
        "store.flush_consume_queue_service",
        "log, queues, index and transactions are durable before offset: a recovery begins there",
        ("offset",),
    ),
    Kind(
        "store.checkpoint_failed",
        "store.flush_consume_queue_service",
        "a sync failed: the recovery point stays where it is until the next start",
        ("status",),
    ),
    Kind(
        "put.begin",
        "store.message_puts",
        "a message was appended and its put waits",
        ("msg_id", "offset", "size"),
    ),
    Kind(
        "put.end",
        "store.message_puts",
        "a put was answered; offset is the record's end",
        ("msg_id", "offset", "status"),
    ),
    # High availability, the master's side.
    Kind("ha.connection.open", "ha.ha_connection", "a slave connected", ("conn_id",), ("network.peer.address",)),
    Kind(
        "ha.connection.close", "ha.ha_connection", "a slave's connection ended; status says why", ("conn_id", "status")
    ),
    Kind("ha.report", "ha.read_socket_service", "a slave reported its offset", ("conn_id", "offset")),
    Kind(
        "ha.transfer", "ha.write_socket_service", "log bytes were handed to the socket", ("conn_id", "offset", "size")
    ),
    Kind("ha.heartbeat", "ha.write_socket_service", "an empty frame was sent", ("conn_id", "offset")),
    Kind("ha.replicated", "ha.group_transfer_service", "enough live slaves have everything before offset", ("offset",)),
    # High availability, the slave's side.
    Kind("ha.client.connect", "ha.ha_client", "connected to the master", (), ("network.peer.address",)),
    Kind("ha.client.close", "ha.ha_client", "the connection to the master ended; status says why", ("status",)),
    Kind("ha.client.report", "ha.ha_client", "the slave reported its offset", ("offset",)),
    Kind(
        "ha.client.redirect",
        "ha.ha_client",
        "the slave is told where its master serves the log, for the first time or anew",
        (),
        ("network.peer.address",),
    ),
    Kind(
        "ha.client.compare",
        "ha.ha_client",
        "the slave asked the master about its log's end, at offset; "
        "status same, slave_ahead, diverged, no_master, role_changed, old_term, lookup_failed or no_answer",
        ("offset", "status"),
        ("questions",),
    ),
    Kind(
        "ha.client.halt",
        "ha.ha_client",
        "the slave follows no more, its log ends at offset; status says why",
        ("offset", "status"),
        ("network.peer.address", "detail"),
    ),
    # Registration with name servers.
    Kind(
        "broker.register",
        "broker.registration_service",
        "a request about this broker was made of a name server; status ok, or what it failed by",
        ("status",),
        ("network.peer.address", "request"),
    ),
    Kind(
        "broker.unregister",
        "broker.registration_service",
        "a stopping broker has asked a name server to forget it; status ok, or what that failed by",
        ("status",),
        ("network.peer.address",),
    ),
    Kind(
        "broker.master",
        "broker.registration_service",
        "a slave learned where its master is",
        (),
        ("master_addr", "ha_server_addr"),
    ),
    Kind(
        "broker.role",
        "broker.role_changes",
        "the broker changed its role, with its log ending at offset; status changed, reopened: it has the same one, or "
        "the step that failed",
        ("status", "offset"),
        ("role", "broker.id", "detail"),
    ),
    Kind(
        "broker.exchange",
        "broker.role_exchange",
        "a master that exchanges roles is at this step, with its log ending at offset; effect: what it is about to do",
        ("status", "offset"),
        ("effect", "network.peer.address", "detail"),
    ),
    Kind(
        "broker.exchange_partner",
        "broker.exchange_partner",
        "what a slave says to the master that exchanges roles with it: can, waits, ready, refuses, leads; is_promoted: "
        "it is about to become the master",
        ("status", "offset"),
        ("detail",),
    ),
    Kind(
        "broker.slave_synchronize",
        "broker.slave_synchronize, broker.last_round",
        "a slave has asked its master for a table; status changed, unchanged, or what that failed by",
        ("status",),
        ("part", "network.peer.address", "detail"),
    ),
    Kind(
        "broker.persist_offsets",
        "broker.offset_persist_service",
        "offsets that changed were written; status written, or what that failed by",
        ("status",),
        ("part",),
    ),
    # Remoting.
    Kind("remoting.open", "remoting.server", "a peer connected", ("conn_id",), ("network.peer.address",)),
    Kind("remoting.close", "remoting.server", "a peer's connection ended; status says why", ("conn_id", "status")),
    Kind("remoting.refused", "remoting.server", "a connection too many was closed", (), ("network.peer.address",)),
    Kind("remoting.busy", "remoting.processor", "a request was answered SYSTEM_BUSY", ("conn_id", "status"), ("code",)),
    Kind(
        "remoting.failed",
        "remoting.processor",
        "a request was answered SYSTEM_ERROR; status: bad_request, or what its processor raised",
        ("conn_id", "status"),
        ("code", "detail"),
    ),
    Kind("remoting.client.connect", "remoting.client", "connected to a peer", ("conn_id",), ("network.peer.address",)),
    Kind(
        "remoting.client.connect_failed",
        "remoting.client",
        "an attempt to connect failed",
        (),
        ("network.peer.address", "detail"),
    ),
    Kind("remoting.client.close", "remoting.client", "the connection ended; status says why", ("conn_id", "status")),
    # The name server.
    Kind(
        "namesrv.register",
        "namesrv.requests",
        "a broker registered; status new, renewed, late: another process has its address by now, or superseded: "
        "another address has its name and id",
        ("conn_id", "status"),
        ("broker.cluster", "broker.name", "broker.id", "broker.address"),
    ),
    Kind(
        "namesrv.remove",
        "namesrv.requests, namesrv.broker_housekeeping_service",
        "a broker left the routes; status unregistered, closed: its connection, expired, or not_live: it was not there",
        ("conn_id", "status"),
        ("broker.cluster", "broker.name", "broker.id", "broker.address"),
    ),
    # Access control.
    Kind(
        "remoting.denied",
        "remoting.acl",
        "access control refused a request",
        (),
        ("network.peer.address", "code", "detail"),
    ),
    Kind(
        "acl.load",
        "remoting.plain_acl_file",
        "the files of accounts changed; status ok, or kept: they cannot be used, and the rules stay",
        ("status",),
        ("detail",),
    ),
)

#: Every kind by name.
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _KINDS}


@attrs.frozen
class RunInfo:
    """What identifies a run. `run_id` is the same for the same four values, in every process."""

    campaign: str
    scenario: str
    seed: int
    config: str = "{}"
    source: Literal["sim", "broker"] = "sim"
    git_revision: str = ""

    @property
    def run_id(self) -> int:
        """A stable signed 64-bit hash of campaign, scenario, seed and config."""
        text = "\x00".join((self.campaign, self.scenario, str(self.seed), self.config))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)
