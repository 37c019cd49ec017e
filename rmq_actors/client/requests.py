"""Requests of a client, with one deadline each, and errors that a caller can act upon (MQClientAPIImpl).

Deadlines are Trio's time, so that a call that needs several requests gives each what is left.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs
import trio

from rmq_actors.client.client_error import (
    BadAnswer,
    BrokerRefused,
    BrokerUnreachable,
    ClientTimeout,
    ConnectionLost,
    MessageRefused,
    TooManyRequests,
)
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.connection import (
    RemotingBadFrameError,
    RemotingConnectError,
    RemotingError,
    RemotingSendRequestError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)
from rmq_actors.wire.address import IllegalAddress
from rmq_actors.wire.headers.codec import CommandHeader, encode_header
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

_SUCCESS = (ResponseCode.SUCCESS,)


def deadline_after(timeout_ms: float) -> float:
    """When a time-out that begins now ends, in Trio's time."""
    return trio.current_time() + timeout_ms / 1000


def left_ms(deadline_s: float) -> int:
    """How much of a time-out is left, in whole ms; 0 or less when it is over."""
    return int((deadline_s - trio.current_time()) * 1000)


@attrs.define(eq=False, repr=False)
class ClientRequests:
    """Takes requests to "host:port" and gives back answers, or raises a `ClientError`."""

    _client: RemotingClient

    async def request(
        self,
        address: str,
        code: RequestCode,
        header: CommandHeader | None = None,
        body: bytes = b"",
        *,
        deadline_s: float,
        accepted: Collection[int] = _SUCCESS,
    ) -> RemotingCommand:
        """Make a request of a header and a body: see `invoke`."""
        command = RemotingCommand(code, None if header is None else encode_header(header), body=body)
        return await self.invoke(address, command, deadline_s, accepted=accepted)

    async def invoke(
        self, address: str, command: RemotingCommand, deadline_s: float, *, accepted: Collection[int] = _SUCCESS
    ) -> RemotingCommand:
        """Make a request; its answer, if its code is one of `accepted`.

        Raises `BrokerRefused` for any other code, `ClientTimeout`, `BrokerUnreachable`, `ConnectionLost`,
        `TooManyRequests`, `BadAnswer`; `MessageRefused` for what fits no frame: it is not sent.
        """
        timeout_ms = left_ms(deadline_s)
        if timeout_ms < 1:
            raise ClientTimeout(f"{address}: no time is left for request {command.code}")
        try:
            response = await self._client.invoke(address, command, timeout_ms, deadline_s=deadline_s)
        except RemotingError as error:
            raise client_error(error) from error
        except IllegalAddress as error:
            raise BadAnswer(f"a peer's address cannot be used: {error}") from error
        except ValueError as error:
            raise MessageRefused(f"request {command.code} cannot be sent: {error}") from error
        if response.code not in accepted:
            raise BrokerRefused(address, command.code, response.code, response.remark)
        return response

    async def invoke_oneway(self, address: str, command: RemotingCommand, deadline_s: float) -> None:
        """Send a request that nobody answers; it may not arrive. Raises as `invoke`, but for refusals."""
        timeout_ms = left_ms(deadline_s)
        if timeout_ms < 1:
            raise ClientTimeout(f"{address}: no time is left for request {command.code}")
        try:
            await self._client.invoke_oneway(address, command, timeout_ms)
        except RemotingError as error:
            raise client_error(error) from error
        except IllegalAddress as error:
            raise BadAnswer(f"a peer's address cannot be used: {error}") from error
        except ValueError as error:
            raise MessageRefused(f"request {command.code} cannot be sent: {error}") from error


def client_error(
    error: RemotingError,
) -> ClientTimeout | BrokerUnreachable | ConnectionLost | TooManyRequests | BadAnswer:
    """The client's error for what happened to a request."""
    text = str(error)
    if isinstance(error, RemotingTimeoutError):
        return ClientTimeout(text)
    if isinstance(error, RemotingConnectError):
        return BrokerUnreachable(text)
    if isinstance(error, RemotingTooMuchRequestError):
        return TooManyRequests(text)
    if isinstance(error, RemotingBadFrameError):
        return BadAnswer(text)
    assert isinstance(error, RemotingSendRequestError)
    return ConnectionLost(text)
