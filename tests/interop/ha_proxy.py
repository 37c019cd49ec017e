"""Stands between a slave and its master, and holds the transfer where a test asks: at a byte of a frame."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Callable, Iterator

import attrs

from rmq_actors.wire.ha_frames import REPORT, TRANSFER_HEADER, TRANSFER_HEADER_BYTES

#: How much the machine may take for anything.
WAIT_TIMEOUT_S = 120.0

#: How many bytes of a frame are passed on, its header among them, by the size of its body.
Part = Callable[[int], int]


@attrs.frozen
class Held:
    """A frame of which `passed` bytes went to the slave, and no more."""

    offset: int
    size: int
    passed: int

    @property
    def end_offset(self) -> int:
        """Where the slave's log ends, which takes whole frames alone."""
        return self.offset + self.size if self.passed == TRANSFER_HEADER_BYTES + self.size else self.offset


@attrs.define(eq=False)
class HaProxy:
    """Threads that pass bytes on. Create with `open_ha_proxy`."""

    _listener: socket.socket
    _master: tuple[str, int]
    _part: Part | None = attrs.field(default=None, init=False)
    _held: queue.Queue[Held] = attrs.field(factory=queue.Queue, init=False)
    _released: threading.Event = attrs.field(factory=threading.Event, init=False)
    _first_reports: queue.Queue[int] = attrs.field(factory=queue.Queue, init=False)
    _sockets: list[socket.socket] = attrs.field(factory=list, init=False)

    @property
    def address(self) -> str:
        """Where slaves connect to."""
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def hold_at(self, part: Part) -> None:
        """Hold the next frame with a body at this part; what earlier connections said first is forgotten."""
        while not self._first_reports.empty():
            self._first_reports.get()
        self._released.clear()
        self._part = part

    def wait_held(self) -> Held:
        """Return when a frame is held."""
        return self._held.get(timeout=WAIT_TIMEOUT_S)

    def release(self) -> None:
        """End the connection that is held: the slave reads all that was passed on, then its end."""
        self._released.set()

    def next_first_report(self) -> int:
        """What a slave says first on the next connection."""
        return self._first_reports.get(timeout=WAIT_TIMEOUT_S)

    def serve(self) -> None:
        """Take connections until closed."""
        with contextlib.suppress(OSError):
            while True:
                slave, _ = self._listener.accept()
                self._sockets.append(slave)
                threading.Thread(target=self._connection, args=(slave,), daemon=True).start()

    def close(self) -> None:
        """End everything."""
        self._released.set()
        for each in (self._listener, *self._sockets):
            _shut(each)
            each.close()

    def _connection(self, slave: socket.socket) -> None:
        try:
            master = socket.create_connection(self._master, timeout=WAIT_TIMEOUT_S)
        except OSError:  # it was killed: the slave comes again
            slave.close()
            return
        master.settimeout(None)
        self._sockets.append(master)
        reports = threading.Thread(target=self._pass_reports, args=(slave, master), daemon=True)
        reports.start()
        with contextlib.suppress(OSError):
            self._pass_frames(master, slave)
        _shut(master)
        # What the slave still says must be read: unread, it would take along what the slave has not read yet.
        with contextlib.suppress(OSError):
            slave.shutdown(socket.SHUT_WR)
        reports.join()
        master.close()
        slave.close()

    def _pass_frames(self, master: socket.socket, slave: socket.socket) -> None:
        while header := _receive(master, TRANSFER_HEADER_BYTES):
            offset, size = TRANSFER_HEADER.unpack(header)
            frame = header + _receive(master, size)
            part, self._part = (self._part, None) if size else (None, self._part)
            if part is None:
                slave.sendall(frame)
                continue
            held = Held(offset, size, part(size))
            slave.sendall(frame[: held.passed])
            self._held.put(held)
            self._released.wait()
            return

    def _pass_reports(self, slave: socket.socket, master: socket.socket) -> None:
        with contextlib.suppress(OSError):
            first = _receive(slave, REPORT.size)
            if first:
                self._first_reports.put(REPORT.unpack(first)[0])
                master.sendall(first)
            while data := slave.recv(65_536):
                with contextlib.suppress(OSError):
                    master.sendall(data)
        _shut(master)


def _receive(connection: socket.socket, size: int) -> bytes:
    """So many bytes; none if the connection ends before."""
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            return b""
        data += part
    return data


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def open_ha_proxy(listen: tuple[str, int], master: tuple[str, int]) -> Iterator[HaProxy]:
    """A proxy for the length of a block; port 0 lets the system choose."""
    listener = socket.create_server(listen)
    with contextlib.closing(HaProxy(listener, master)) as proxy:
        threading.Thread(target=proxy.serve, daemon=True).start()
        yield proxy
