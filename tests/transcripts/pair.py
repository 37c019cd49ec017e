"""A master and a slave as pure machines with two pipes of bytes between them, driven by the commands of a transcript.

Nothing here decides: every line that is printed comes out of a machine of `rmq_actors.protocols`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from rmq_actors.protocols.group_transfer import GroupTransfer, ReplicationState
from rmq_actors.protocols.ha_master import SlaveRefused, SlaveReports, TransferCursor, first_offset
from rmq_actors.protocols.ha_slave import HaSlave, MasterRefused
from rmq_actors.protocols.put_completion import Completed, PutCompletion
from rmq_actors.wire.ha_frames import encode_transfer_header
from tests.transcripts.comparison import Comparison

HEARTBEAT_S, HOUSEKEEPING_S, SLAVE_TIMEOUT_S = 5.0, 20.0, 3.0


def log_bytes(begin: int, end: int) -> bytes:
    """What every log here holds between two offsets."""
    return bytes(offset % 251 for offset in range(begin, end))


@attrs.define(eq=False)
class Connection:
    """The four machines' halves of one connection, and the bytes under way."""

    number: int
    reports: SlaveReports
    slave: HaSlave
    cursor: TransferCursor | None = None
    to_master: bytearray = attrs.field(factory=bytearray)
    to_slave: bytearray = attrs.field(factory=bytearray)


@attrs.define(eq=False)
class Pair:
    """One master, one slave, at most one connection at a time. Each command yields the lines that it causes."""

    now: float = 0.0
    master_log: tuple[int, int] = (0, 0)
    slave_end: int = 0
    file_size: int = 1000
    batch: int = 400
    fallbehind_max: int = 1 << 28
    transfer: GroupTransfer = attrs.field(factory=GroupTransfer)
    completion: PutCompletion[str] = attrs.field(factory=PutCompletion)
    connection: Connection | None = None
    connections: int = 0
    comparison: Comparison = attrs.field(factory=Comparison)

    def run(self, command: str) -> Iterator[str]:
        name, *arguments = command.split()
        commands: dict[str, Callable[..., Iterator[str]]] = {
            "master": self.set_master,
            "slave": self.set_slave,
            "connect": self.connect,
            "deliver": self.deliver,
            "send": self.send,
            "stray": self.stray,
            "put": self.put,
            "wait": self.wait,
            "cut": self.cut,
            "records": self.comparison.set_records,
            "compare": self.comparison.compare,
        }
        yield from commands[name](*arguments)

    def set_master(self, log: str, *settings: str) -> Iterator[str]:
        """`master BEGIN..END [file=N] [batch=N] [fallbehind=N]`: the master's log and settings."""
        begin, end = log.split("..")
        self.master_log = int(begin), int(end)
        for setting in settings:
            name, value = setting.split("=")
            if name == "file":
                self.file_size = int(value)
            elif name == "batch":
                self.batch = int(value)
            else:
                self.fallbehind_max = int(value)
                yield f"master: a put waits for no slave that is {value} bytes behind"
        yield f"master: log {begin}..{end}, files of {self.file_size}, batches of {self.batch}"

    def set_slave(self, end: str) -> Iterator[str]:
        """`slave END`: where the slave's log ends."""
        self.slave_end = int(end)
        yield f"slave: log ends at {end}"

    def connect(self) -> Iterator[str]:
        """`connect`: a fresh connection with fresh machines; the slave speaks first."""
        self.connections += 1
        self.connection = Connection(
            self.connections,
            SlaveReports(self.now, HOUSEKEEPING_S),
            HaSlave(self.slave_end, self.now, HEARTBEAT_S, HOUSEKEEPING_S),
        )
        yield f"master: connection {self.connections}, {state_text(self.transfer.connected(self.connections))}"
        yield from self.slave_reports(self.connection)

    def deliver(self, direction: str, size: str = "all") -> Iterator[str]:
        """`deliver to-master|to-slave [N]`: that many bytes arrive."""
        connection = self.live()
        pipe = connection.to_master if direction == "to-master" else connection.to_slave
        count = len(pipe) if size == "all" else int(size)
        data = bytes(pipe[:count])
        del pipe[:count]
        yield f"wire: {len(data)} bytes {direction}, {len(pipe)} still under way"
        yield from self.at_master(connection, data) if direction == "to-master" else self.at_slave(connection, data)

    def send(self) -> Iterator[str]:
        """`send`: the master's writer runs once."""
        connection = self.live()
        if connection.cursor is None:
            yield "master: waits for the first report"
            return
        frames = connection.cursor.plan(self.master_log[1], self.now)
        for frame in frames:
            connection.to_slave += encode_transfer_header(frame.offset, frame.size)
            connection.to_slave += log_bytes(frame.offset, frame.offset + frame.size)
            yield f"master: sends {frame.offset}+{frame.size}" if frame.size else f"master: heartbeat at {frame.offset}"
        if frames:
            connection.cursor.sent(self.now)
        else:
            yield f"master: nothing to send, heartbeat due at {connection.cursor.wake_at:g} s"

    def stray(self, text: str) -> Iterator[str]:
        """`stray HEX`: bytes of somebody who is no slave, on a connection of their own."""
        self.connections += 1
        number, data = self.connections, bytes.fromhex(text)
        yield f"master: connection {number}, {state_text(self.transfer.connected(number))}"
        try:
            offset = SlaveReports(self.now, HOUSEKEEPING_S).receive(
                data, self.now, min_offset=self.master_log[0], max_offset=self.master_log[1]
            )
        except SlaveRefused as error:
            yield f"master: connection {number} refused, {error.reason}: {error}"
        else:
            yield f"master: connection {number} reports {offset}"
        yield from self.replicated(self.transfer.disconnected(number))

    def put(self, size: str) -> Iterator[str]:
        """`put N`: a SYNC_MASTER put of N bytes."""
        begin, end = self.master_log
        self.master_log = begin, end + int(size)
        available = self.transfer.state().is_slave_ok(self.master_log[1], self.fallbehind_max)
        yield f"master: put {end}+{size}"
        yield from answers(
            self.completion.add(
                f"put {end}+{size}",
                self.master_log[1],
                flush_deadline=None,
                replica_deadline=self.now + SLAVE_TIMEOUT_S,
                slave_available=available,
            )
        )

    def wait(self, seconds: str) -> Iterator[str]:
        """`wait S`: time passes and nothing arrives; whoever has something due does it."""
        self.now += float(seconds)
        yield f"time: {self.now:g} s"
        yield from answers(self.completion.expire(self.now))
        connection = self.connection
        if connection is None:
            return
        for check in (connection.reports.check_silence, connection.slave.check_silence):
            try:
                check(self.now)
            except (SlaveRefused, MasterRefused) as error:
                who = "master" if isinstance(error, SlaveRefused) else "slave"
                yield f"{who}: ends the connection, {error.reason}: {error}"
                yield from self.close()
                return
        yield from self.slave_reports(connection)

    def cut(self) -> Iterator[str]:
        """`cut`: the connection breaks, and what was under way is gone."""
        connection = self.live()
        lost = len(connection.to_master), len(connection.to_slave)
        yield f"wire: cut, lost {lost[0]} bytes to-master and {lost[1]} to-slave"
        yield from self.close()

    def live(self) -> Connection:
        assert self.connection is not None, "no connection"
        return self.connection

    def close(self) -> Iterator[str]:
        connection, self.connection = self.live(), None
        yield from self.replicated(self.transfer.disconnected(connection.number))

    def at_master(self, connection: Connection, data: bytes) -> Iterator[str]:
        begin, end = self.master_log
        try:
            offset = connection.reports.receive(data, self.now, min_offset=begin, max_offset=end)
        except SlaveRefused as error:
            yield f"master: refuses the slave, {error.reason}: {error}"
            yield from self.close()
            return
        if offset is None:
            yield "master: no whole report yet"
            return
        yield f"master: the slave reports {offset}"
        yield from self.replicated(self.transfer.reported(connection.number, offset))
        if connection.cursor is None:
            start = first_offset(offset, begin)
            connection.cursor = TransferCursor(start, self.now, self.file_size, HEARTBEAT_S, self.batch)
            yield f"master: will send from {start}"

    def at_slave(self, connection: Connection, data: bytes) -> Iterator[str]:
        connection.slave.free()[: len(data)] = data
        try:
            for append in connection.slave.received(len(data), self.now):
                end = append.offset + len(append.data)
                assert bytes(append.data) == log_bytes(append.offset, end), "other bytes than the master's"
                self.slave_end = end
                yield f"slave: appends {append.offset}+{len(append.data)}"
        except MasterRefused as error:
            yield f"slave: refuses the master, {error.reason}: {error}"
            yield from self.close()
            return
        yield from self.slave_reports(connection)

    def slave_reports(self, connection: Connection) -> Iterator[str]:
        report = connection.slave.report(self.slave_end, self.now)
        if report is not None:
            connection.to_master += report
            connection.slave.sent()
            yield f"slave: reports {self.slave_end}"

    def replicated(self, state: ReplicationState) -> Iterator[str]:
        yield f"master: {state_text(state)}"
        yield from answers(self.completion.replicated_to(state.replicated_to))


def state_text(state: ReplicationState) -> str:
    return f"{state.live_slaves} live, replicated to {state.replicated_to}"


def answers(done: list[Completed[str]]) -> Iterator[str]:
    for completed in done:
        yield f"{completed.token}: {completed.status.value}"
