"""One request of an operator to a broker, and why it failed."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import trio
import typer

from rmq_actors.cli.exit_codes import ExitCode
from rmq_actors.wire.address import IllegalAddress, parse_address
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.response_code import ResponseCode

if TYPE_CHECKING:
    from rmq_actors.remoting.client import RemotingClient
    from rmq_actors.wire.acl_signature import SessionCredentials

T = TypeVar("T")

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


def check_address(address: str) -> None:
    """Refuse what a person has typed if it is not an address."""
    try:
        parse_address(address)
    except IllegalAddress as error:
        raise typer.BadParameter(str(error)) from error


def session_credentials() -> SessionCredentials | None:
    """The account that the environment names, if it does."""
    from rmq_actors.wire.acl_signature import SessionCredentials

    access_key, secret_key = os.environ.get("ROCKETMQ_ACCESS_KEY"), os.environ.get("ROCKETMQ_SECRET_KEY")
    return SessionCredentials(access_key, secret_key) if access_key and secret_key else None


def run_request(address: str, ask: Callable[[RemotingClient], Awaitable[T]]) -> T:
    """Ask as an operator does, with the account of the environment; exit with the reason if that fails."""
    from rmq_actors.embedding.remoting_client import open_remoting_client
    from rmq_actors.remoting.acl import AclClientRpcHook

    check_address(address)
    credentials = session_credentials()
    hooks = [] if credentials is None else [AclClientRpcHook(credentials)]

    async def with_client() -> T:
        async with open_remoting_client(hooks=hooks) as client:
            return await ask(client)

    try:
        return trio.run(with_client)
    except RequestFailed as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(ExitCode.CHECK_FAILED) from error
