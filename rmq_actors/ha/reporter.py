"""The slave's reports to its master: up to which offset this log has everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import attrs
import trio

from rmq_actors.ha.sole_sender import SoleSender
from rmq_actors.ports.try_send import TrySend
from rmq_actors.protocols.ha_slave import HaSlave
from rmq_actors.store.message_store import MessageStore
from rmq_actors.tracing.events.ha import HaClientReport
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.ha_frames import REPORT


@attrs.define(eq=False, repr=False)
class Reporter:
    """Sends the reports of one connection, one at a time, whichever task asks: the reader, the flush, the heartbeat.

    `offset` gives what may be reported.
    """

    _slave: HaSlave
    _socket: trio.socket.SocketType
    _offset: Callable[[], int]
    _tracer: Tracer
    _try_send: TrySend
    _sender: SoleSender = attrs.field(init=False)
    #: Of the last report, what the socket has not taken.
    _rest: bytes = attrs.field(default=b"", init=False)

    def __attrs_post_init__(self) -> None:
        self._sender = SoleSender(self._send_due, lambda: self._slave.wake_at)

    async def report(self) -> None:
        """Send what is due, unless another task is sending: that one looks again after each send."""
        # Eight bytes hardly ever have to wait, and the task that reports has waited just before.
        if not self._sender.is_sending and not self._report_at_once():
            await self._sender.send()

    async def keep_alive(self) -> NoReturn:
        """Report when nothing was reported for a heartbeat's interval."""
        await self._sender.keep_alive()

    def _report_at_once(self) -> bool:
        """Send what is due, as far as that takes no waiting; whether nothing is left of it."""
        report = self._slave.report(self._offset(), trio.current_time())
        if report is None:
            return True
        # What is sent, not what should be: a machine that lies must show in the trace.
        (reported,) = REPORT.unpack(report)
        self._tracer.emit(HaClientReport(offset=reported))
        self._rest = report[self._try_send(self._socket, (report,)) :]
        if self._rest:
            return False
        self._slave.sent()
        return True

    async def _send_due(self) -> None:
        while self._rest or not self._report_at_once():
            while self._rest:
                self._rest = self._rest[await self._socket.send(self._rest) :]
            self._slave.sent()


async def until_flushed(store: MessageStore) -> None:
    """Wait until all of the log may be reported: the first report asks for bytes, and acknowledges those before them.

    Under SYNC_FLUSH the log must be synced for that. Raises what `MessageStore.check_follows` raises.
    """
    log = store.commit_log
    with store.flush_outcomes.subscribe() as outcomes:
        while store.visible_end.is_durable and log.flushed_where < log.max_offset:
            store.check_follows()  # a failed sync is the last outcome: nothing would end the wait
            await outcomes.receive()
