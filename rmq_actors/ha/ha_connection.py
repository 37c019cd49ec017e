"""One slave's connection on the master (HAConnection): a reader and a writer that live and die together."""

from __future__ import annotations

import logging

import attrs
import trio

from rmq_actors.actors.restart import first_leaf
from rmq_actors.ha.config import HaConfig
from rmq_actors.ha.connection_end import PeerClosed, close_reason
from rmq_actors.ha.group_transfer_service import GroupTransferService
from rmq_actors.ha.read_socket_service import ReadSocketService
from rmq_actors.ha.slave_status import SlaveStatus
from rmq_actors.ha.write_socket_service import FIRST_REPORT, WriteSocketService
from rmq_actors.ports.receive import Receive
from rmq_actors.ports.try_send import TrySend
from rmq_actors.protocols.ha_master import SlaveRefused, SlaveReports, TransferCursor, first_offset
from rmq_actors.sockets.network_failure import network_failure
from rmq_actors.store.config import BrokerRole
from rmq_actors.store.message_store import MessageStore
from rmq_actors.tracing.events.ha import HaConnectionClose, HaConnectionOpen
from rmq_actors.tracing.recorder import Tracer

_log = logging.getLogger(__name__)


@attrs.define(eq=False, repr=False)
class HAConnection:
    """Serves one slave until its connection ends; the end is traced and logged with its reason."""

    conn_id: int
    peer: str
    _socket: trio.socket.SocketType
    _config: HaConfig
    _store: MessageStore
    _group_transfer: GroupTransferService
    _tracer: Tracer
    _try_send: TrySend
    _receive: Receive
    _reader: ReadSocketService = attrs.field(init=False)
    _writer: WriteSocketService = attrs.field(init=False)
    _connected_s: float = attrs.field(factory=trio.current_time, init=False)

    def __attrs_post_init__(self) -> None:
        self._reader, self._writer = self._services()

    def status(self) -> SlaveStatus:
        """How the slave is doing."""
        now, ack = trio.current_time(), self._reader.reported
        return SlaveStatus(
            self.conn_id,
            self.peer,
            now - self._connected_s,
            self._writer.sent_bytes,
            ack,
            None if ack is None else self._store.commit_log.max_offset - ack,
            None if ack is None else now - self._reader.last_read_s,
            self._writer.next_offset,
        )

    @property
    def sent_bytes(self) -> int:
        """Log bytes sent to the slave."""
        return self._writer.sent_bytes

    async def run(self) -> str:
        """Return when the connection is over, and why. A failure that is not the network's or the peer's is raised."""
        reason = "stopped"
        self._tracer.emit(HaConnectionOpen(conn_id=self.conn_id, peer_address=self.peer))
        try:
            with self._socket:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._reader.run)
                    await self._writer.run()
        except* (SlaveRefused, OSError) as group:
            cause = first_leaf(group)
            reason = close_reason(cause)
            # An orderly end is no cause for worry; everything else is somebody's trouble.
            level = logging.INFO if isinstance(cause, PeerClosed) else logging.WARNING
            _log.log(level, "slave %s (connection %d): %s: %s", self.peer, self.conn_id, reason, network_failure(cause))
        except* Exception:
            reason = "crashed"
            raise
        finally:
            self._tracer.emit(HaConnectionClose(conn_id=self.conn_id, status=reason))
        return reason

    def _services(self) -> tuple[ReadSocketService, WriteSocketService]:
        config, store, log = self._config, self._store, self._store.commit_log

        def make_cursor(requested: int, now: float) -> TransferCursor:
            last_file = log.max_offset - log.max_offset % log.file_size_bytes if config.sync_from_last_file else None
            first = first_offset(requested, log.min_offset, last_file)
            _log.info("slave %s (connection %d) follows from offset %d", self.peer, self.conn_id, first)
            return TransferCursor(
                first,
                now,
                log.file_size_bytes,
                config.heartbeat_interval_s,
                config.ha_transfer_batch_size_bytes,
                housekeeping_interval_s=config.housekeeping_interval_s,
            )

        send, receive = FIRST_REPORT.open()
        reports = SlaveReports(trio.current_time(), config.housekeeping_interval_s)
        writer = WriteSocketService(
            self.conn_id,
            self._socket,
            make_cursor,
            log,
            # A slave must not get ahead of what a power cut leaves on this master.
            store.visible_end,
            receive,
            self._tracer,
            # Where no put waits for a slave, none takes the time to send.
            self._try_send if store.config.broker_role is BrokerRole.SYNC_MASTER else None,
        )

        def reported(offset: int) -> None:
            writer.reported(offset)
            self._group_transfer.reported(self.conn_id, offset)

        reader = ReadSocketService(
            self.conn_id,
            self._socket,
            reports,
            log,
            reported,
            send,
            writer.check_taken,
            self._tracer,
            self._receive,
        )
        return reader, writer
