"""A small replicated log: a program to be tested that knows of no fault, and says what troubles it.

A primary and a backup keep a log each; a client writes to the primary, which answers when both have it on disk. What
goes wrong, as errors or as measurements that are out of the ordinary, is counted in `Symptoms`, as a monitoring system
would. In a world without faults (`STEADY`) there are none.
"""

from __future__ import annotations

import errno
import struct
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

import trio

from sim_net import LinkConfig, Node, SimDisk, WorldConfig

STEADY = WorldConfig(
    link=LinkConfig(latency_min_s=0.0002, latency_max_s=0.001, segment_bytes=500),
    send_buffer_bytes=1000,
    receive_buffer_bytes=1000,
    connect_timeout_s=1.0,
)

PORT = 7000
BEAT_PORT = 7001
TICK_S = 0.25
ANSWER_S = 1.0
BULK_BYTES = 3000

_RECORD_BYTES = 512  # a sector
_RECORDS_MAX = 512
_PAGE_BYTES = 4096
_STRIDE = 601  # coprime to the page, and more than a sector: one hint here, the next one there
_HEADER = struct.Struct(">II")  # number, CRC-32 of the body
_REQUEST = struct.Struct(">cI")  # what, size of the body
_BEAT = struct.Struct(">IId")  # incarnation, number, virtual time of sending


class Symptoms:
    """What the programs of a world have complained of, and how often."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def note(self, symptom: str) -> None:
        self.counts[symptom] = self.counts.get(symptom, 0) + 1

    def __enter__(self) -> None:
        """Survive trouble with sockets and disks, but note it."""

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> bool:
        if isinstance(error, OSError):
            self.note(errno.errorcode.get(error.errno or 0, "OSError"))
        elif isinstance(error, EOFError):
            self.note("end of stream")
        return isinstance(error, OSError | EOFError)

    @contextmanager
    def if_longer_than(self, limit_s: float, symptom: str) -> Iterator[None]:
        """Note it if what is within takes too long, whether it succeeds or not."""
        started_s = trio.current_time()
        try:
            yield
        finally:
            if trio.current_time() - started_s > limit_s:
                self.note(symptom)


class Wire:
    """A connection, byte for byte, with an eye on the time."""

    def __init__(self, sock: trio.socket.SocketType, symptoms: Symptoms) -> None:
        self.sock = sock
        self._symptoms = symptoms

    async def send(self, data: bytes) -> None:
        rest = memoryview(data)
        with self._symptoms.if_longer_than(0.2, "slow send"):
            while rest:
                sent = await self.sock.send(rest)
                if sent < len(rest) <= _REQUEST.size:
                    self._symptoms.note("short send")
                rest = rest[sent:]

    async def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = await self.sock.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    async def ask(self, what: bytes, body: bytes = b"") -> int:
        """Send a request; the number that answers it. TimeoutError after `ANSWER_S`."""
        with trio.move_on_after(ANSWER_S):
            await self.send(_REQUEST.pack(what, len(body)))
            await self.send(body)
            return int.from_bytes(await self.receive(4), "big")
        self._symptoms.note("no answer")
        raise TimeoutError(errno.ETIMEDOUT, "no answer")


class Log:
    """Records of one sector each. They are read again and again: what was written must stay what it was."""

    def __init__(self, disk: SimDisk, symptoms: Symptoms) -> None:
        self._file = disk.open("log", allocate_bytes=_RECORD_BYTES * _RECORDS_MAX)
        self._symptoms = symptoms
        self.count = -(-len(bytes(self._file.map()).rstrip(b"\0")) // _RECORD_BYTES)

    async def append(self, body: bytes) -> int:
        """Return the record's number once it is on disk."""
        number = self.count
        body = body.ljust(_RECORD_BYTES - _HEADER.size, b".")
        self._file.write_at(number * _RECORD_BYTES, _HEADER.pack(number, zlib.crc32(body)) + body)
        self.count += 1
        started_s = trio.current_time()
        await self._file.sync()
        took_s = trio.current_time() - started_s
        if took_s > 0.0045:
            self._symptoms.note("slow sync" if took_s < 0.7 else "stuck sync")
        return number

    def scrub(self) -> None:
        data = self._file.map()
        for number in range(self.count):
            record = data[number * _RECORD_BYTES : (number + 1) * _RECORD_BYTES]
            stored, crc = _HEADER.unpack_from(record)
            if stored != number or crc != zlib.crc32(record[_HEADER.size :]):
                self._symptoms.note("corrupt record")
        if bytes(data[self.count * _RECORD_BYTES :]).strip(b"\0"):
            self._symptoms.note("corrupt record")


class Hints:
    """A count that is never synced: it survives the process, but not the machine."""

    def __init__(self, disk: SimDisk) -> None:
        self._file = disk.open("hints", allocate_bytes=_PAGE_BYTES)
        self._count = sum(map(bool, self._file.map()))

    def add(self) -> int:
        self._file.write_at(self._count * _STRIDE % _PAGE_BYTES, b"\1")
        self._count += 1
        return self._count


class Program:
    """What runs on each node."""

    def __init__(self, symptoms: Symptoms) -> None:
        self._symptoms = symptoms
        self._hints_acknowledged = 0

    def main(self, name: str) -> Callable[[Node], Awaitable[None]]:
        """The program of the node that is called `name`."""
        return {"primary": self._primary, "backup": self._backup, "client": self._client}[name]

    async def _primary(self, node: Node) -> None:
        backup: list[Wire] = []

        async def replicate(record: bytes) -> None:
            with self._symptoms:
                if not backup:
                    backup.append(await self._connect("backup"))
                wire = backup.pop()
                await wire.ask(b"W", record)
                backup.append(wire)

        await self._serve(node, replicate)

    async def _backup(self, node: Node) -> None:
        async def no_further(record: bytes) -> None:
            await trio.lowlevel.checkpoint()

        await self._serve(node, no_further)

    async def _serve(self, node: Node, replicate: Callable[[bytes], Awaitable[None]]) -> None:
        log, hints = await self._start(node)

        async def answer(wire: Wire) -> None:
            while True:
                what, size = _REQUEST.unpack(await wire.receive(_REQUEST.size))
                body = await wire.receive(size)
                result = 0
                with self._symptoms:
                    if what == b"W":
                        result = await log.append(body)
                        await replicate(body)
                    elif what == b"H":
                        result = hints.add()
                await wire.send(result.to_bytes(4, "big"))

        async def handle(sock: trio.socket.SocketType) -> None:
            with sock, self._symptoms:
                await answer(Wire(sock, self._symptoms))

        listener = trio.socket.socket()
        await listener.bind((node.address, PORT))
        listener.listen()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, node, log)
            nursery.start_soon(self._hear_beats, node)
            while True:
                sock, _ = await listener.accept()
                nursery.start_soon(handle, sock)

    async def _client(self, node: Node) -> None:
        log, _ = await self._start(node)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, node, log)
            nursery.start_soon(self._beat, node)
            nursery.start_soon(self._upload)
            while True:
                with self._symptoms:
                    wire = await self._connect("primary")
                    with wire.sock:
                        await self._talk(wire, log)
                await trio.sleep(TICK_S)

    async def _talk(self, wire: Wire, log: Log) -> None:
        for number in range(1_000_000):
            with self._symptoms.if_longer_than(0.0025, "slow ping"):
                await wire.ask(b"P")
            await wire.ask(b"W", b"%d" % number)
            count = await wire.ask(b"H")
            if count and count <= self._hints_acknowledged:
                self._symptoms.note("lost hint")
            self._hints_acknowledged = count
            if number % 2 == 0:
                await log.append(b"%d" % number)
            await trio.sleep(TICK_S)

    async def _upload(self) -> None:
        """Send the primary something large each tick."""
        while True:
            with self._symptoms:
                wire = await self._connect("primary")
                with wire.sock:
                    while True:
                        with self._symptoms.if_longer_than(0.02, "slow bulk"):
                            await wire.ask(b"P", bytes(BULK_BYTES))
                        await trio.sleep(TICK_S)
            await trio.sleep(TICK_S)

    async def _connect(self, name: str) -> Wire:
        sock = trio.socket.socket()
        await sock.connect((name, PORT))
        return Wire(sock, self._symptoms)

    async def _start(self, node: Node) -> tuple[Log, Hints]:
        """Open the files, as often as it takes, and see how the last life ended."""
        while True:
            with self._symptoms:
                log, hints = Log(node.disk, self._symptoms), Hints(node.disk)
                if node.disk.exists("running"):
                    self._symptoms.note("unclean start")
                else:
                    node.disk.open("running", allocate_bytes=0).close()
                    await node.disk.sync_directory("")
                return log, hints
            await trio.sleep(TICK_S)

    async def _watch(self, node: Node, log: Log) -> None:
        """Look at the time, and at what was written, each tick."""
        ticks = 0
        off_ms: int | None = None
        while True:
            started_s = trio.current_time()
            await trio.sleep(TICK_S)
            if trio.current_time() - started_s > TICK_S + 0.001:
                self._symptoms.note("step gap")
            now_off_ms = node.wall_clock.now_ms() - round(trio.current_time() * 1000)
            if off_ms is None or abs(now_off_ms - off_ms) >= 500:
                if off_ms is not None:
                    self._symptoms.note("wall clock step")
                off_ms = now_off_ms
            elif abs(now_off_ms - off_ms) >= 2:
                self._symptoms.note("wall clock rate")
            ticks += 1
            if ticks % 4 == 0:
                log.scrub()

    async def _beat(self, node: Node) -> None:
        """Send the primary a datagram each tick."""
        with trio.socket.socket(type=trio.socket.SOCK_DGRAM) as sock:
            for number in range(1_000_000):
                with self._symptoms:
                    beat = _BEAT.pack(node.incarnation, number, trio.current_time())
                    await sock.sendto(beat, ("primary", BEAT_PORT))
                await trio.sleep(TICK_S)

    async def _hear_beats(self, node: Node) -> None:
        seen: set[tuple[int, int]] = set()
        with trio.socket.socket(type=trio.socket.SOCK_DGRAM) as sock:
            await sock.bind((node.address, BEAT_PORT))
            while True:
                incarnation, number, sent_s = _BEAT.unpack(await sock.recv(_BEAT.size))
                if trio.current_time() - sent_s > 0.002:
                    self._symptoms.note("late datagram")
                if (incarnation, number) in seen:
                    self._symptoms.note("second datagram")
                elif (incarnation, number + 1) in seen:
                    self._symptoms.note("overtaken datagram")
                elif number and seen and (incarnation, number - 1) not in seen:
                    self._symptoms.note("missed datagram")
                seen.add((incarnation, number))
