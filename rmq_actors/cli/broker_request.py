"""One request of an operator to a broker, and why it failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.response_code import ResponseCode

if TYPE_CHECKING:
    from rmq_actors.remoting.client import RemotingClient

TIMEOUT_MS = 5_000


class RequestFailed(Exception):
    """The broker refused, or did not answer; the message says why. `code`: that of its answer."""

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


async def broker_request(
    client: RemotingClient,
    address: str,
    code: int,
    body: bytes = b"",
    timeout_ms: int = TIMEOUT_MS,
    ext_fields: dict[str, str] | None = None,
) -> RemotingCommand:
    """The answer to a request that went well. Raises `RequestFailed`."""
    from rmq_actors.remoting.connection import RemotingError

    try:
        answer = await client.invoke(address, RemotingCommand(code, ext_fields, body=body), timeout_ms)
    except RemotingError as error:
        raise RequestFailed(f"{address} does not answer: {str(error).removeprefix(f'{address}: ')}") from error
    if answer.code != ResponseCode.SUCCESS:
        raise RequestFailed(f"{address} refuses (code {answer.code}): {answer.remark}", answer.code)
    return answer
