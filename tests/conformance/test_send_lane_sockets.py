"""The send lane on real sockets: answers go out at once, or when there is room, and all of them in order."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import attrs
import pytest
import trio
import trio.lowlevel

from rmq_actors.embedding.broker import load_broker_config, open_configured_broker
from rmq_actors.remoting.transport import SocketTransport
from rmq_actors.wire.frame_reader import FrameReader
from tests.worlds.send_frames import frame

_CONFIGURATION = """\
brokerName=broker-a
brokerRole=ASYNC_MASTER
flushDiskType={flush}
fetchNamesrvAddrByAddressServer=false
brokerIP1=127.0.0.1
listenPort=0
storePathRootDir={directory}
mappedFileSizeCommitLog=16777216
"""


@pytest.fixture(params=["ASYNC_FLUSH", "SYNC_FLUSH"])
def configuration(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text(_CONFIGURATION.format(directory=tmp_path / "store", flush=request.param), encoding="utf-8")
    return path


@attrs.define(eq=False)
class Answers:
    """What a broker answers, in order; all of them must say that a message was stored."""

    stream: trio.SocketStream
    _reader: FrameReader = attrs.field(factory=FrameReader)
    _opaques: list[int] = attrs.field(factory=list)

    async def next(self) -> int:
        while not self._opaques:
            with self._reader.free_space() as space:
                count = await self.stream.socket.recv_into(space)
            assert count, "the connection has ended"
            self._reader.received(count)
            for command in self._reader.commands():
                assert command.code == 0, command.remark
                self._opaques.append(command.opaque)
        return self._opaques.pop(0)


@pytest.mark.trio
@pytest.mark.parametrize("takes_bytes", [1 << 30, 100, 0])
async def test_a_peer_that_reads_late_gets_every_answer_in_order(
    configuration: Path, takes_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`takes_bytes`: as many as the socket takes of each send that may not wait."""
    count = 1000
    async with open_configured_broker(load_broker_config(configuration)) as broker:
        assert broker.remoting is not None
        try_send = SocketTransport.try_send

        def narrow(self: SocketTransport, data: bytes) -> int:
            return try_send(self, data[:takes_bytes]) if takes_bytes else 0

        monkeypatch.setattr(SocketTransport, "try_send", narrow)
        stream = await trio.open_tcp_stream("127.0.0.1", broker.remoting.remoting_server.port)
        with trio.fail_after(60):
            async with stream:
                answers = Answers(stream)
                await stream.send_all(frame(0))
                assert await answers.next() == 0
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(stream.send_all, b"".join(frame(number) for number in range(1, count)))
                    for number in range(1, count):
                        assert await answers.next() == number


@pytest.mark.trio
async def test_a_peer_that_resets_its_connection_ends_only_that(configuration: Path) -> None:
    async with open_configured_broker(load_broker_config(configuration)) as broker:
        assert broker.remoting is not None
        server = broker.remoting.remoting_server
        with trio.fail_after(60):
            for _ in range(10):
                stream = await trio.open_tcp_stream("127.0.0.1", server.port)
                await stream.send_all(b"".join(frame(number) for number in range(100)))
                stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                stream.socket.close()
            while server.connections:
                await trio.lowlevel.checkpoint()
            stream = await trio.open_tcp_stream("127.0.0.1", server.port)
            async with stream:
                await stream.send_all(frame(7))
                assert await Answers(stream).next() == 7
