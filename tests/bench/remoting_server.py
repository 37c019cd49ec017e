"""A server in a process of its own, for `remoting_requests`: `python -m tests.bench.remoting_server remoting|bare`.

`remoting` is this project's server with an empty processor. `bare` is what no server in Trio does without: a task a
connection, every frame of a receive split off by its length, and as many fixed answers in one send.
"""

from __future__ import annotations

import contextlib
import struct
import sys

import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.real_io.entropy import SystemEntropy
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.remoting.server import RemotingServer
from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.remoting_command import RemotingCommand, encode_command
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

_BUFFER_BYTES = 64 * 1024
_LENGTH = struct.Struct(">i")


def answer(request: RemotingCommand) -> RemotingCommand:
    """What both answer."""
    return request.response(ResponseCode.SUCCESS)


async def serve_remoting() -> None:
    """Serve until killed; prints the port."""
    tracer = Recorder(RunInfo("bench", "remoting", 0), lambda: (None, 0)).tracer("server")

    def process(request: RemotingRequest) -> RemotingCommand:
        return answer(request.command)

    processors = ProcessorTable(tracer)
    processors.register([RequestCode.SEND_MESSAGE_V2], process)
    async with open_actor_system("server", tracer, entropy=SystemEntropy()) as system:
        server = RemotingServer(RemotingServerConfig(listen_port=0), processors, tracer)
        await system.start(server)
        _print_port(server.port)
        await trio.sleep_forever()


async def serve_bare(opaque: int, body_bytes: int) -> None:
    """The same of the bare loop, whose answers have this opaque and such bodies."""
    command = answer(RemotingCommand(RequestCode.SEND_MESSAGE_V2, opaque=opaque))
    command.body = bytes(body_bytes)
    response = encode_command(command)

    async def serve(stream: trio.SocketStream) -> None:
        with contextlib.suppress(ConnectionError):
            await answer_all(stream)

    async def answer_all(stream: trio.SocketStream) -> None:
        sock = stream.socket
        buffer = bytearray(_BUFFER_BYTES)
        view = memoryview(buffer)
        end = 0
        while count := await sock.recv_into(view[end:]):
            end += count
            begin = frames = 0
            while end - begin >= 4:
                frame_end = begin + 4 + _LENGTH.unpack_from(buffer, begin)[0]
                if frame_end > end:
                    break
                frames += 1
                begin = frame_end
            view[: end - begin] = view[begin:end]
            end -= begin
            answers = memoryview(response * frames)
            while answers:
                answers = answers[await sock.send(answers) :]

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    _print_port(listener.socket.getsockname()[1])
    await trio.serve_listeners(serve, [listener])


def _print_port(port: int) -> None:
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "remoting":
        trio.run(serve_remoting)
    else:
        trio.run(serve_bare, int(sys.argv[2]), int(sys.argv[3]))
