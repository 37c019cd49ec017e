"""The chat server of the examples on real sockets: two friendly clients never meet its bug."""

from __future__ import annotations

import contextlib
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

CHAT = SimpleNamespace(**runpy.run_path(str(Path(__file__).resolve().parents[2] / "examples" / "chat_server.py")))


async def read_line(stream: trio.SocketStream) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        line += await stream.receive_some(1)
    return line


@pytest.mark.trio
@pytest.mark.parametrize("server_type", [CHAT.ChatServer, CHAT.FixedChatServer])
async def test_lines_go_to_all_the_others(server_type: type) -> None:
    server = server_type()
    async with contextlib.AsyncExitStack() as stack, trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, server.handle, 0)
        port = listeners[0].socket.getsockname()[1]
        clients = [await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", port)) for _ in range(3)]
        while len(server.clients) < 3:
            await trio.lowlevel.checkpoint()

        text = "Grüß Gott\nand good-bye\n".encode()
        await clients[0].send_all(text[:3])
        await clients[0].send_all(text[3:])
        for listener in clients[1:]:
            assert [await read_line(listener), await read_line(listener)] == text.splitlines(keepends=True)
        await clients[0].aclose()
        await clients[1].send_all(b"gone\n")
        assert await read_line(clients[2]) == b"gone\n"

        await clients[2].send_all(b"a line without an end".ljust(CHAT.LINE_BYTES_MAX + 1))
        while len(server.clients) > 1:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
