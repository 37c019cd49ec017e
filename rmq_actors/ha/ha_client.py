"""The slave's side of high availability (HAClient): follows a master, for as long as it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NoReturn

import attrs
import trio

from rmq_actors.actors.restart import first_leaf
from rmq_actors.actors.services.service import ServiceThread
from rmq_actors.ha.config import HaConfig
from rmq_actors.ha.connection_end import PeerClosed, close_reason
from rmq_actors.ha.followed_master import FollowedMaster
from rmq_actors.ha.master_check import Diverged, LogBeginsLater, MasterCheck
from rmq_actors.ha.master_evidence import MasterQuestions
from rmq_actors.ha.reporter import Reporter, until_flushed
from rmq_actors.ha.socket_options import set_buffer_sizes
from rmq_actors.ha.tls import HaTls
from rmq_actors.ports.entropy import Entropy
from rmq_actors.ports.receive import Receive, receive_into
from rmq_actors.ports.try_send import TrySend, try_sendmsg
from rmq_actors.protocols.backoff import Backoff
from rmq_actors.protocols.following import Halt, Patience
from rmq_actors.protocols.ha_slave import RECEIVE_BYTES, HaSlave, IllegalFrame, MasterRefused, MasterSilent
from rmq_actors.protocols.part_of_record import PartOfRecord
from rmq_actors.sockets.network_failure import network_failure
from rmq_actors.store.log.received_records import AppendRefused, FileSizeMismatch
from rmq_actors.store.message_store import MessageStore
from rmq_actors.store.read.log_records import LogCleaned
from rmq_actors.tracing.events.ha import (
    HaClientClose,
    HaClientConnect,
    HaClientHalt,
    HaClientRedirect,
)
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.address import parse_address

_log = logging.getLogger(__name__)

#: What else is said of a connection on which no frame came: anybody may listen there.
_NO_FRAME = "no frame came: it refuses this slave, and logs why, or what listens there is no master's HA port"
#: What else is said of a halt: what may be done about it.
_CUT = (
    "`rmq-actors broker-admin truncate` cuts this log where the two part, and keeps what is cut in cut/; so does"
    " `rmq-actors store truncate` for a broker that is stopped"
)
_NO_CUT = (
    "where the two part is not known, so nothing cuts this log. The master is asked again now and then, and at once by"
    " `rmq-actors broker-admin follow-again`; or move the store aside, and start with an empty one"
)

#: Makes the machine of one connection from the log's end and the time.
MakeSlave = Callable[[int, float, HaConfig], HaSlave]


class ConnectTimeout(ConnectionError):
    """The master did not answer within connect_timeout_ms."""

    reason = "connect_timeout"


def make_ha_slave(max_offset: int, now: float, config: HaConfig) -> HaSlave:
    """A fresh machine for a fresh connection."""
    return HaSlave(
        max_offset, now, config.heartbeat_interval_s, config.housekeeping_interval_s, config.read_buffer_bytes
    )


def _with_remedy(halt: Halt) -> str:
    """Why it has halted, and what may be done about it."""
    if halt.may_end:
        return f"{halt.detail}; {_NO_CUT}"
    return f"{halt.detail}; {_CUT}" if halt.reason == Diverged.reason else halt.detail


@attrs.define(eq=False, repr=False)
class HAClient(ServiceThread):
    """Connects, follows, and on any end of the connection waits a little and connects again.

    Without an address it waits for one; told another one, it leaves the master that it follows. With a `lookup` it
    compares the end of its log with the master's first, and halts where that has something else; where it has no log
    it begins with the master's first record.
    """

    name = "HAClient"
    config: HaConfig
    master: FollowedMaster
    _store: MessageStore
    _entropy: Entropy
    _tracer: Tracer
    _make_slave: MakeSlave = make_ha_slave
    _questions: MasterQuestions | None = None
    _try_send: TrySend = try_sendmsg
    _receive: Receive = receive_into
    _tls: HaTls | None = None
    #: With the master that is tried now.
    _patience: Patience = attrs.field(factory=Patience, init=False)
    #: The machine of the present connection, once it follows.
    _slave: HaSlave | None = attrs.field(default=None, init=False)
    #: What was warned of last; nothing once a master has sent something.
    _warned: str = attrs.field(default="", init=False)

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Follow the master."""
        task_status.started()
        if self.master.told is None and self.master.address is not None:
            await self._follow_forever(self.master.address)
        while True:
            async with trio.open_nursery() as nursery:
                if self.master.address is not None:
                    nursery.start_soon(self._follow_forever, self.master.address)
                await self.master.changed()
                nursery.cancel_scope.cancel()
            self._tracer.emit(HaClientRedirect(peer_address=self.master.address or ""))

    async def _follow_forever(self, address: str) -> NoReturn:
        config = self.config
        backoff = Backoff(config.reconnect_pause_min_ms / 1000, config.reconnect_pause_max_ms / 1000)
        self._patience = Patience()
        told: Halt | None = None
        try:
            while True:
                halt = await self._follow(address, backoff)
                self.master.judged(halt)
                if halt is None:
                    await trio.sleep(backoff.next_pause_s(self._entropy.random()))
                    continue
                level = logging.DEBUG if halt == told else logging.ERROR
                _log.log(level, "master %s is not followed any more: %s: %s", address, halt.reason, _with_remedy(halt))
                told = halt
                self._tracer.emit(
                    HaClientHalt(status=halt.reason, offset=halt.end_offset, peer_address=address, detail=halt.detail)
                )
                chance = self._entropy.random() if halt.may_end else 0.0
                await self.master.wait_halted(halt, halt.ask_again_after_s(chance))
        finally:
            self.master.judged(None)

    async def _follow(self, address: str, backoff: Backoff) -> Halt | None:
        """One connection, to its end; a `Halt` if there shall be no other."""
        halts: list[Halt] = []
        try:
            await self._one_connection(address, backoff)
        except* (Diverged, LogBeginsLater, FileSizeMismatch) as group:
            cause = first_leaf(group)
            self._tracer.emit(HaClientClose(status=close_reason(cause)))
            self.master.ended(close_reason(cause), str(cause))
            end = self._store.commit_log.max_offset
            common_end = cause.common_end if isinstance(cause, Diverged) else None
            halts.append(Halt(close_reason(cause), str(cause), address, end, common_end))
        except* (MasterRefused, AppendRefused, LogCleaned, OSError) as group:
            cause = first_leaf(group)
            self._tracer.emit(HaClientClose(status=close_reason(cause)))
            self.master.ended(close_reason(cause), self._detail(cause))
            self._warn(f"master {address}: {self.master.last_end}")
        return halts[0] if halts else None

    def _detail(self, cause: BaseException) -> str:
        """Why a connection ended, for operators."""
        text = network_failure(cause)
        is_mute = self._slave is not None and not self._slave.frames
        return f"{text}; {_NO_FRAME}" if is_mute and isinstance(cause, IllegalFrame | MasterSilent | OSError) else text

    def _warn(self, text: str) -> None:
        """Once: a master that is down for hours ends each attempt in the same way."""
        _log.log(logging.DEBUG if text == self._warned else logging.WARNING, "%s", text)
        self._warned = text

    async def _one_connection(self, address: str, backoff: Backoff) -> None:
        self._slave = None
        await self._store.commit_log.remove_unwritten_file()
        await until_flushed(self._store)
        try:
            socket = await self._connect(address)
        except OSError:
            self._patience.absent()
            raise
        self._tracer.emit(HaClientConnect(peer_address=address))
        with socket:
            # A master that dies after its answer takes this connection along.
            if self._questions is not None:
                check = MasterCheck(self._questions, self.config, self._store, self._tracer, self._patience)
                await check.check(address)
            try:
                await self._follow_master(socket, backoff)
            finally:
                self.master.left(trio.current_time())

    async def _connect(self, address: str) -> trio.socket.SocketType:
        """Raises `OSError`, `ConnectTimeout`."""
        host, port = parse_address(address)
        stream: trio.SocketStream | None = None
        with trio.move_on_after(self.config.connect_timeout_ms / 1000):
            stream = await trio.open_tcp_stream(host, port)
        if stream is None:
            raise ConnectTimeout(f"no answer within {self.config.connect_timeout_ms} ms")
        try:
            set_buffer_sizes(stream.socket, self.config)
        except BaseException:
            stream.socket.close()
            raise
        return stream.socket if self._tls is None else await self._tls.connect(stream, host)

    async def _follow_master(self, socket: trio.socket.SocketType, backoff: Backoff) -> None:
        slave = self._make_slave(self._store.commit_log.max_offset, trio.current_time(), self.config)
        self.master.begun(slave)
        self._slave = slave
        reporter = Reporter(slave, socket, self._store.visible_end.offset, self._tracer, self._try_send)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reporter.keep_alive)
            nursery.start_soon(self._watch, slave)
            if self._store.visible_end.is_durable:
                nursery.start_soon(self._report_flushed, reporter)
            await reporter.report()
            await self._read(socket, slave, reporter, backoff)

    async def _read(self, socket: trio.socket.SocketType, slave: HaSlave, reporter: Reporter, backoff: Backoff) -> None:
        part = PartOfRecord(self._store.commit_log.file_size_bytes)
        is_known = False
        most_bytes = RECEIVE_BYTES if self._tls is None else self._tls.record_bytes
        while True:
            room = slave.free()
            size = await self._receive(socket, room)
            if not size:
                raise PeerClosed("the master closed the connection")
            now = trio.current_time()
            self._store.receiving.received(size, now, more_waits=size == min(len(room), most_bytes))
            for append in part.joined(slave.received(size, now)):
                part.hold(append, self._store.append_to_commit_log(*append, whole_records=True))
            if not is_known and slave.frames:
                backoff.succeeded()
                is_known, self._warned = True, ""
                _log.info("master %s is followed from offset %d", self.master.address, self.master.followed_from)
            await reporter.report()

    async def _watch(self, slave: HaSlave) -> None:
        while True:
            await trio.sleep_until(slave.silent_at)
            slave.check_silence(trio.current_time())

    async def _report_flushed(self, reporter: Reporter) -> None:
        with self._store.flush_outcomes.subscribe() as outcomes:
            await reporter.report()
            async for _ in outcomes:
                await reporter.report()
