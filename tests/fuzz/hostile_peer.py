"""A peer in a simulated world that sends what it likes, reads as it likes, and leaves when it likes."""

from __future__ import annotations

from random import Random
from typing import Self

import attrs
import trio

from rmq_actors.wire.frame_reader import FrameReader
from tests.fuzz.mutations import pieces
from tests.worlds.fed_frames import feed

#: For how long a peer that reads nothing keeps its connection.
PATIENCE_S = 50.0


@attrs.define
class HostilePeer:
    """Sends what it has to, in pieces, whatever the server thinks of it."""

    parts: list[bytes]
    pause_s: float
    #: How it reads: "all", "slowly", "nothing".
    reads: str
    #: How it ends: "waits" for the server to close, says that it "finished" sending, or "leaves".
    ends: str
    address: str = ""
    answers: FrameReader = attrs.field(factory=FrameReader)

    @classmethod
    def of_frames(cls, random: Random, frames: list[bytes]) -> Self:
        """Sends these; how, and whether it reads, is drawn."""
        stream = b"".join(frames)
        if random.random() < 0.2:
            stream = stream[: random.randrange(len(stream) + 1)]
        return cls(
            pieces(random, stream),
            random.choice((0, 0, 0.001, 0.05)),
            random.choice(("all", "all", "slowly", "nothing")),
            random.choice(("waits", "finished", "leaves")),
        )

    @property
    def stays(self) -> bool:
        """Whether it leaves the server all the time it needs, and reads what it is answered."""
        return self.reads != "nothing" and self.ends != "leaves"

    async def attack(self, host: str, port: int) -> None:
        try:
            async with await trio.open_tcp_stream(host, port) as stream, trio.open_nursery() as nursery:
                own_host, own_port = stream.socket.getsockname()
                self.address = f"{own_host}:{own_port}"
                nursery.start_soon(self._read, stream)
                await self._send(stream)
                if self.ends == "finished":
                    await stream.send_eof()
                if self.ends == "leaves":
                    nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the server closed the connection, as it may

    async def _send(self, stream: trio.SocketStream) -> None:
        for part in self.parts:
            await stream.send_all(part)
            await trio.sleep(self.pause_s)

    async def _read(self, stream: trio.SocketStream) -> None:
        if self.reads == "nothing":
            await trio.sleep(PATIENCE_S)
        while data := await stream.receive_some(65_536 if self.reads == "all" else 2000):
            feed(self.answers, bytes(data))
            await trio.sleep(0 if self.reads == "all" else 0.01)
