"""`rmq-actors broker-admin exchange`: asks a master to exchange roles with its slave, and waits for how that ends.

The master does everything: the client that asks may go away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rmq_actors.cli.broker_request import RequestFailed, broker_request
from rmq_actors.wire.request_code import OwnRequestCode

if TYPE_CHECKING:
    from rmq_actors.remoting.client import RemotingClient
    from rmq_actors.wire.bodies.role_exchange import ExchangeInfo

_LOOKS_EVERY_S = 0.2
#: After the limit the slave opens its store again, then the master does.
_LONGER_S = 60.0


async def exchange_roles(client: RemotingClient, master: str, slave: str, limit_s: float) -> None:
    """Return when the roles are exchanged. Raises `RequestFailed`, saying which broker is the master."""
    from rmq_actors.protocols.exchange import OVERRULED
    from rmq_actors.wire.bodies.encoding import encode_body
    from rmq_actors.wire.bodies.role_exchange import BeginExchangeBody

    body = encode_body(BeginExchangeBody(limit_ms=int(1000 * limit_s), slave_addr=slave))
    answer = await broker_request(client, master, OwnRequestCode.BEGIN_EXCHANGE, body)
    info = _info(answer.body)
    exchange_id, give_up_at = info.exchange_id, trio.current_time() + limit_s + _LONGER_S
    silent: RequestFailed | None = None
    while not info.ended:
        if trio.current_time() >= give_up_at:
            raise RequestFailed(_unfinished(master, slave, info, silent))
        await trio.sleep(_LOOKS_EVERY_S)
        try:
            info, silent = _info((await broker_request(client, master, OwnRequestCode.GET_EXCHANGE)).body), None
        except RequestFailed as error:
            silent = error
        # An exchange that goes on after a restart bears the name of its promotion.
        if not info.exchange_id.startswith(exchange_id):
            raise RequestFailed(f"{master} was started again meanwhile, and exchanges no roles: see the status of both")
    if info.detail == OVERRULED:
        raise RequestFailed(f"{master} has given the exchange up: {info.detail}: see the status of both")
    if not info.exchanged:
        raise RequestFailed(f"{master} is the master as before: {info.detail}")


def _unfinished(master: str, slave: str, info: ExchangeInfo, silent: RequestFailed | None) -> str:
    if silent is not None:
        return f"how it goes on is not known: {silent}"
    return (
        f"{master} refuses puts until it knows whether {slave} is the master: step {info.step}: {info.detail}. The same"
        f" command waits on; change-role {master} gives it up, but only where {slave} is down, and stays so"
    )


def _info(body: bytes) -> ExchangeInfo:
    from rmq_actors.wire.bodies.decoding import decode_body
    from rmq_actors.wire.bodies.role_exchange import ExchangeInfo
    from rmq_actors.wire.remoting_command import RemotingCommandError

    try:
        return decode_body(ExchangeInfo, body)
    except RemotingCommandError as error:
        raise RequestFailed(f"the answer makes no sense: {error}") from error
