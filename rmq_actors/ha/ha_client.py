"""The slave's side of high availability (HAClient): follows a master, for as long as it runs."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import NamedTuple, NoReturn

import attrs
import trio

from rmq_actors.actors.restart import first_leaf
from rmq_actors.actors.services.channels import LatestChannel, LatestSender
from rmq_actors.actors.services.service import ServiceThread
from rmq_actors.ha.config import HaConfig
from rmq_actors.ha.first_record import first_record
from rmq_actors.ha.ha_connection import close_reason
from rmq_actors.ha.log_comparison import LogComparison, near_end
from rmq_actors.ha.master_evidence import MasterEvidence, MasterQuestions, NotFollowed
from rmq_actors.ha.master_record_lookup import LookupFailed, MasterLogLookup, NoAnswer
from rmq_actors.ha.read_socket_service import PeerClosed
from rmq_actors.ha.socket_options import set_buffer_sizes
from rmq_actors.ports.entropy import Entropy
from rmq_actors.ports.try_send import TrySend, try_sendmsg
from rmq_actors.protocols.backoff import Backoff
from rmq_actors.protocols.divergence import Ahead, Divergence
from rmq_actors.protocols.ha_slave import HaSlave, IllegalFrame, MasterRefused, MasterSilent
from rmq_actors.protocols.part_of_record import PartOfRecord
from rmq_actors.sockets.network_failure import network_failure
from rmq_actors.store.log.commit_log import AppendRefused, FileSizeMismatch
from rmq_actors.store.message_store import MessageStore
from rmq_actors.store.read.log_records import LogCleaned, LogRecords
from rmq_actors.tracing.events.ha import (
    HaClientClose,
    HaClientCompare,
    HaClientConnect,
    HaClientHalt,
    HaClientRedirect,
    HaClientReport,
)
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.address import parse_address
from rmq_actors.wire.ha_frames import REPORT

_log = logging.getLogger(__name__)

#: A master that serves its log, but refuses every question: for so long it is tried again, then followed unasked.
LOOKUP_PATIENCE_S = 10.0
#: The same for one that says nothing at all: longer than any stall, as a stall may hide that its log is another.
SILENCE_PATIENCE_S = 60.0
#: The pause before a failed search for where two logs part is made again.
_SEARCH_AGAIN_S = 1.0
#: A halt that no truncation can end is looked into again so much later, or up to a third of that sooner: the master may
#: have had nothing to compare with.
ASK_AGAIN_S = 45.0

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


HA_MASTERS = LatestChannel[str].declare(
    "ha.masters",
    carries="where the master serves its log: the slave follows that one from now on",
    sender="BrokerRegistrationService",
    receiver="HAClient",
)


@attrs.frozen
class Halt:
    """Why a slave has stopped to follow `master`: another attempt would end in the same way.

    `reason` is short and stable. This log ends at `end_offset`; up to `common_end` the master has the same, if that is
    known.
    """

    reason: str
    detail: str
    master: str
    end_offset: int
    common_end: int | None = None

    @property
    def may_end(self) -> bool:
        """Whether the same question to the same master may be answered in another way later."""
        return self.common_end is None and self.reason in {Diverged.reason, LogBeginsLater.reason}


class NotHalted(ValueError):
    """There is no halt that could end."""


HA_HALTS = LatestChannel[Halt].declare(
    "ha.halts",
    carries="why the slave has stopped to follow, and where its log may be cut",
    sender="HAClient",
    receiver="LogTruncationService",
)


class Diverged(MasterRefused):
    """The master has something else than this log, which it agrees with up to `common_end`, if anywhere."""

    reason = "diverged"

    def __init__(self, found: Divergence, end_offset: int, common_end: int | None) -> None:
        common = "nothing of it" if common_end is None else f"the log up to {common_end}"
        super().__init__(f"{found}; this slave's log ends at {end_offset}, the master is known to have {common}")
        self.common_end = common_end


class LogBeginsLater(MasterRefused):
    """The master has deleted what comes next in this log, and all that the two could be compared by."""

    reason = "offset_gone"


class AheadOfMaster(MasterRefused):
    """This log ends later than the master's; whether it is the same up to there, the master's next message tells."""

    reason = "slave_ahead"


class Unanswered(NamedTuple):
    """Since when each question to a master has failed in the same way."""

    since_s: float
    is_silent: bool


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


@attrs.define(eq=False)
class FollowedMaster:
    """Where a slave's master serves its log ("host:port"): as configured, or as `told` last. Outlives each HAClient."""

    address: str | None
    told: trio.MemoryReceiveChannel[str] | None = None
    #: Where each halt is told.
    halts: LatestSender[Halt] | None = None
    #: Why it is not followed now, until it changes, or is asked again and answers in another way.
    halted: Halt | None = attrs.field(default=None, init=False)
    #: Whether its log comes in now: it has been compared, and the connection stands.
    is_followed: bool = attrs.field(default=False, init=False)
    #: How often it was followed, and how many attempts ended, by reason: what `ha.client.close` says.
    connections: int = attrs.field(default=0, init=False)
    ends: dict[str, int] = attrs.field(factory=dict, init=False)
    #: Why the last attempt, or the last connection, ended, in words; and until when it was followed.
    last_end: str = attrs.field(default="", init=False)
    followed_until_s: float | None = attrs.field(default=None, init=False)
    #: The machine of the last connection, when that began, and with which offset.
    slave: HaSlave | None = attrs.field(default=None, init=False)
    followed_since_s: float = attrs.field(default=0.0, init=False)
    followed_from: int = attrs.field(default=0, init=False)
    _again: trio.Event = attrs.field(factory=trio.Event, init=False)

    def follow_again(self) -> None:
        """By command: ask the master again, and follow it if that ends well. Does nothing while it is followed."""
        self._again.set()

    async def wait_halted(self, halt: Halt, ask_again_s: float) -> None:
        """Return when it is to be asked again: by command, or after so long. It is halted until somebody says else."""
        self.halted, self._again = halt, trio.Event()
        if self.halts is not None:
            self.halts.put(halt)
        with trio.move_on_after(ask_again_s):
            await self._again.wait()

    def begun(self, slave: HaSlave) -> None:
        """It is followed from now on."""
        self.connections += 1
        self.halted = None
        self.is_followed = True
        self.slave, self.followed_since_s, self.followed_from = slave, slave.last_read, slave.max_offset

    def left(self, now_s: float) -> None:
        """It is followed no more."""
        if self.is_followed:
            self.is_followed, self.followed_until_s = False, now_s

    def ended(self, reason: str, detail: str) -> None:
        """An attempt to connect, or a connection, is over."""
        self.ends[reason] = self.ends.get(reason, 0) + 1
        self.last_end = f"{reason}: {detail}"

    def following(self, now_s: float) -> str:
        """Whether it is followed, for operators; else for how long it has not been, and why not."""
        if self.is_followed:
            return "yes"
        since = "never yet" if self.followed_until_s is None else f"not for {now_s - self.followed_until_s:.0f} s"
        if self.halted is not None:
            return f"no ({since}): it has halted"
        if self.address is None:
            return f"no ({since}): no master is known"
        return f"no ({since}): {self.last_end or 'no attempt has ended'}"

    async def changed(self) -> None:
        """Wait until it is told another address."""
        if self.told is None:
            await trio.sleep_forever()
        else:
            self.address = await self.told.receive()


@attrs.define(eq=False)
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
    #: That of the master which is tried now.
    _unanswered: Unanswered | None = attrs.field(default=None, init=False)
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
        self._unanswered = None
        told: Halt | None = None
        try:
            while True:
                halt = await self._follow(address, backoff)
                self.master.halted = halt
                if halt is None:
                    await trio.sleep(backoff.next_pause_s(self._entropy.random()))
                    continue
                level = logging.DEBUG if halt == told else logging.ERROR
                _log.log(level, "master %s is not followed any more: %s: %s", address, halt.reason, _with_remedy(halt))
                told = halt
                self._tracer.emit(
                    HaClientHalt(status=halt.reason, offset=halt.end_offset, peer_address=address, detail=halt.detail)
                )
                ask_again_s = ASK_AGAIN_S * (1 - self._entropy.random() / 3) if halt.may_end else math.inf
                await self.master.wait_halted(halt, ask_again_s)
        finally:
            self.master.halted = None

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
        host, port = parse_address(address)
        self._slave = None
        self._store.commit_log.remove_unwritten_file()
        await self._until_flushed()
        # A master that was away may have another log now, and serves it before it answers: its time begins again.
        unanswered, self._unanswered = self._unanswered, None
        with trio.move_on_after(self.config.connect_timeout_ms / 1000) as connecting:
            stream = await trio.open_tcp_stream(host, port)
        if connecting.cancelled_caught:
            raise ConnectTimeout(f"no answer within {self.config.connect_timeout_ms} ms")
        self._unanswered = unanswered
        self._tracer.emit(HaClientConnect(peer_address=address))
        with stream.socket:
            set_buffer_sizes(stream.socket, self.config)
            # A master that dies after its answer takes this connection along.
            if self._questions is not None:
                if self._store.commit_log.max_offset:
                    await self._compare(self._questions, address)
                else:
                    await self._begin_log(self._questions, address)
            try:
                await self._follow_master(stream.socket, backoff)
            finally:
                self.master.left(trio.current_time())

    async def _compare(self, questions: MasterQuestions, address: str) -> None:
        """Return if the master has what this log ends with, or cannot be asked.

        Raises `Diverged`, `LogBeginsLater`, `AheadOfMaster`, `NotFollowed`, `LookupFailed`, `TermNotKept`.
        """
        comparison = LogComparison(questions.lookup, LogRecords(self._store.commit_log))
        try:
            evidence = await self._evidence(questions)
            found = await comparison.divergence(near_end(self._store))
        except LookupFailed as error:
            self._note_comparison(comparison, error.reason)
            if self._waits_for_answers(error):
                raise
            _log.warning("master %s is followed, and not asked whether it has the same log: %s", address, error)
            return
        self._unanswered = None
        if isinstance(found, Ahead):
            self._note_comparison(comparison, AheadOfMaster.reason)
            raise AheadOfMaster(f"{found}; this slave's log ends at {self._store.commit_log.max_offset}")
        if found is None:
            self._note_comparison(comparison, "same")
            await evidence.keep_term()
            return
        try:
            evidence.check_master(found)
            common_end = await self._common_end(comparison)
            await evidence.confirm(found)
            # Else this broker, promoted by hand instead, would lead the term that this master leads.
            await evidence.keep_term()
        except (NotFollowed, LookupFailed) as error:
            self._note_comparison(comparison, error.reason)
            raise
        self._note_comparison(comparison, Diverged.reason)
        await self._check_begin(questions.lookup, common_end)
        raise Diverged(found, self._store.commit_log.max_offset, common_end)

    async def _evidence(self, questions: MasterQuestions) -> MasterEvidence:
        try:
            return await questions.evidence()
        except NotFollowed:
            self._unanswered = None  # it did answer
            raise

    @staticmethod
    async def _common_end(comparison: LogComparison) -> int | None:
        """Where the two logs part, if that can be known. A search that fails is made again: nobody else will."""
        give_up_at = trio.current_time() + LOOKUP_PATIENCE_S
        while True:
            try:
                return await comparison.common_end()
            except LookupFailed as error:
                _log.warning("where this log parts from the master's is not known: %s", error)
                if trio.current_time() >= give_up_at:
                    return None
                await trio.sleep(_SEARCH_AGAIN_S)

    async def _check_begin(self, lookup: MasterLogLookup, common_end: int | None) -> None:
        """Raise `LogBeginsLater` if that is why nothing is known of where the logs part."""
        end = self._store.commit_log.max_offset
        try:
            begin = await lookup.min_offset() if common_end is None else None
        except LookupFailed as error:
            _log.warning("where the master's log begins is not known: %s", error)
            return
        if begin is not None and begin > end:
            raise LogBeginsLater(f"the master's log begins at {begin}, this slave's ends at {end}: too long away")

    async def _begin_log(self, questions: MasterQuestions, address: str) -> None:
        """Take the master's first record, if it tells where that is: a Java master sends an empty log its last file.

        A slave that reports another offset than 0 gets all that follows it. Raises `NotFollowed`, `LookupFailed`,
        `AppendRefused`, `TermNotKept`.
        """
        try:
            evidence = await self._evidence(questions)
            record = None if self.config.sync_from_last_file else await first_record(questions.lookup)
        except LookupFailed as error:
            if self._waits_for_answers(error):
                raise
            _log.warning("master %s is followed, and may send its last file alone: %s", address, error)
            return
        self._unanswered = None
        await evidence.keep_term()
        if record is not None:
            self._store.append_to_commit_log(*record)
            await self._until_flushed()

    def _waits_for_answers(self, failure: LookupFailed) -> bool:
        """Whether a master that could not be asked just now is to be tried again."""
        is_silent, now = isinstance(failure, NoAnswer), trio.current_time()
        if self._unanswered is None or self._unanswered.is_silent is not is_silent:
            self._unanswered = Unanswered(now, is_silent)
        return now - self._unanswered.since_s < (SILENCE_PATIENCE_S if is_silent else LOOKUP_PATIENCE_S)

    def _note_comparison(self, comparison: LogComparison, status: str) -> None:
        end = self._store.commit_log.max_offset
        self._tracer.emit(HaClientCompare(status=status, offset=end, questions=comparison.questions))

    async def _follow_master(self, socket: trio.socket.SocketType, backoff: Backoff) -> None:
        slave = self._make_slave(self._store.commit_log.max_offset, trio.current_time(), self.config)
        self.master.begun(slave)
        self._slave = slave
        reporter = Reporter(slave, socket, self._reportable, self._tracer, self._try_send)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reporter.keep_alive)
            nursery.start_soon(self._watch, slave)
            if self._acks_synced_only:
                nursery.start_soon(self._report_flushed, reporter)
            await reporter.report()
            await self._read(socket, slave, reporter, backoff)

    async def _read(self, socket: trio.socket.SocketType, slave: HaSlave, reporter: Reporter, backoff: Backoff) -> None:
        part = PartOfRecord(self._store.commit_log.file_size_bytes)
        is_known = False
        while True:
            room = slave.free()
            size = await socket.recv_into(room)
            if not size:
                raise PeerClosed("the master closed the connection")
            if size == len(room):
                self._store.receiving.more_waits()
            for append in part.joined(slave.received(size, trio.current_time())):
                part.hold(append, self._store.append_to_commit_log(*append, whole_records=True))
            if slave.frames:
                backoff.succeeded()
                if not is_known:
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

    def _reportable(self) -> int:
        return self._store.visible_end.offset()

    @property
    def _acks_synced_only(self) -> bool:
        return self._store.visible_end.is_durable

    async def _until_flushed(self) -> None:
        """The first report asks for bytes and acknowledges them: under SYNC_FLUSH the log must be synced before it."""
        log = self._store.commit_log
        with self._store.flush_outcomes.subscribe() as outcomes:
            while self._acks_synced_only and log.flushed_where < log.max_offset:
                self._store.check_follows()  # a failed sync is the last outcome: nothing would end the wait
                await outcomes.receive()


@attrs.define(eq=False)
class Reporter:
    """Sends the reports of one connection, one at a time, whichever task asks: the reader, the flush, the heartbeat.

    `offset` gives what may be reported.
    """

    _slave: HaSlave
    _socket: trio.socket.SocketType
    _offset: Callable[[], int]
    _tracer: Tracer
    _try_send: TrySend
    _sending: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def report(self) -> bool:
        """Send what is due, unless another task is at it: that one looks again after each send. Whether it was done."""
        try:
            self._sending.acquire_nowait()
        except trio.WouldBlock:
            return False
        try:
            await self._send_due()
        finally:
            self._sending.release()
        return True

    async def keep_alive(self) -> None:
        """Report when nothing was for a heartbeat's interval. Never returns."""
        while True:
            await trio.sleep_until(self._slave.wake_at)
            if not await self.report():
                async with self._sending:  # a heartbeat is due for as long as a send is stuck
                    await self._send_due()

    async def _send_due(self) -> None:
        while report := self._slave.report(self._offset(), trio.current_time()):
            # What is sent, not what should be: a machine that lies must show in the trace.
            (reported,) = REPORT.unpack(report)
            self._tracer.emit(HaClientReport(offset=reported))
            # Eight bytes hardly ever have to wait, and the task that reports has waited just before.
            report = report[self._try_send(self._socket, [report]) :]
            while report:
                report = report[await self._socket.send(report) :]
            self._slave.sent()
