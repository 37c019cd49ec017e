"""A chat server in plain Trio: every line that a client sends goes to all the others. No line of it knows this project.

It needs Trio alone. On real sockets: python examples/chat_server.py, then `nc 127.0.0.1 7777` in two terminals.

It has a bug, which no test of two friendly clients meets. `examples/simulated_chat.py` finds it.
"""

from __future__ import annotations

import contextlib
from functools import partial

import trio

PORT = 7777
LINE_BYTES_MAX = 4096


class Client:
    """One connection; several tasks may send on it."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._sending = trio.Lock()

    async def send(self, line: bytes) -> None:
        """Send a whole line, after those that others are sending."""
        async with self._sending:
            await self.stream.send_all(line)


class ChatServer:
    """The clients that are here."""

    def __init__(self) -> None:
        self.clients: list[Client] = []

    async def handle(self, stream: trio.SocketStream) -> None:
        """Serve one client until it leaves; for `trio.serve_tcp`."""
        client = Client(stream)
        self.clients.append(client)
        rest = b""
        try:
            async for data in stream:
                *lines, rest = (rest + data).split(b"\n")
                if len(rest) > LINE_BYTES_MAX:
                    return
                for line in lines:
                    await self.tell_others(client, line + b"\n")
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client's connection was reset
        finally:
            self.clients.remove(client)

    async def tell_others(self, speaker: Client, line: bytes) -> None:
        """Send a line to everybody but its speaker."""
        for client in list(self.clients):
            if client is not speaker:
                await client.send(line)


class FixedChatServer(ChatServer):
    """The same without the bug."""

    async def tell_others(self, speaker: Client, line: bytes) -> None:
        """Send a line to everybody but its speaker; one who is gone is no concern of the speaker's."""
        for client in list(self.clients):
            if client is not speaker:
                with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await client.send(line)


if __name__ == "__main__":
    print(f"chat at 127.0.0.1:{PORT}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        trio.run(partial(trio.serve_tcp, ChatServer().handle, PORT, host="127.0.0.1"))
