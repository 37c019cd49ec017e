"""One request on a connection of its own, from a node of a simulated world."""

from __future__ import annotations

import trio

from rmq_actors.wire.headers import CommandHeader, encode_header
from rmq_actors.wire.remoting_command import RemotingCommand, decode_command, encode_command
from sim_net import Node


async def ask_once(node: Node, address: str, code: int, header: CommandHeader | None = None) -> RemotingCommand:
    """The answer of a server at "host:port", whatever its code. `node` runs for as long as that takes."""
    host, _, port = address.rpartition(":")
    answers: list[RemotingCommand] = []

    async def ask(_: Node) -> None:
        stream = await trio.open_tcp_stream(host, int(port))
        request = RemotingCommand(code, encode_header(header) if header is not None else None, opaque=7)
        await stream.send_all(encode_command(request))
        data = b""
        async with stream:
            while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
                received = await stream.receive_some()
                assert received, f"{address} closed the connection"
                data += received
        answers.append(decode_command(data[4:]))

    node.boot(ask)
    await node.wait_down()
    (answer,) = answers
    assert answer.opaque == 7
    return answer
