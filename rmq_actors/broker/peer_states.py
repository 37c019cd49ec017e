"""Asks a broker what it is: this project's tells role and term in one answer, RocketMQ's its configuration."""

from __future__ import annotations

import attrs

from rmq_actors.ha.master_record_lookup import LookupFailed, NoAnswer
from rmq_actors.protocols.evidence import Peer
from rmq_actors.protocols.term import Term
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.connection import RemotingConnectError, RemotingError, RemotingTimeoutError
from rmq_actors.settings.properties_text import parse_properties
from rmq_actors.store.config import BrokerRole
from rmq_actors.wire.address import IllegalAddress
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.replication_state import ReplicationStateInfo
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import OwnRequestCode, RequestCode
from rmq_actors.wire.response_code import ResponseCode

TIMEOUT_MS = 3_000
_ROLE, _NAME = "brokerRole", "brokerName"


@attrs.frozen(eq=False)
class PeerStates:
    """A peer that answers GET_REPLICATION_STATE is asked nothing else."""

    _client: RemotingClient

    async def ask(self, address: str, timeout_ms: int = TIMEOUT_MS) -> Peer | None:
        """What the broker at "host:port" is now; None if it does not say. Raises `LookupFailed`."""
        response = await ask_broker(
            self._client, address, RemotingCommand(OwnRequestCode.GET_REPLICATION_STATE), timeout_ms
        )
        try:
            if response.code == ResponseCode.SUCCESS:
                return _peer(decode_body(ReplicationStateInfo, response.body))
            if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                response = await ask_broker(
                    self._client, address, RemotingCommand(RequestCode.GET_BROKER_CONFIG), timeout_ms
                )
                if response.code == ResponseCode.SUCCESS:
                    return _peer_by_configuration(response.body, address)
        except ValueError as error:
            raise LookupFailed(f"{address}: {error}") from error
        if response.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            raise LookupFailed(f"{address} answers {response.code}: {response.remark}")
        return None


async def ask_broker(
    client: RemotingClient, address: str, request: RemotingCommand, timeout_ms: int
) -> RemotingCommand:
    """The answer, whatever its code. Raises `LookupFailed`, or `NoAnswer` if nothing was heard."""
    try:
        return await client.invoke(address, request, timeout_ms)
    except (RemotingError, IllegalAddress) as error:
        is_silent = isinstance(error, RemotingTimeoutError) or (
            isinstance(error, RemotingConnectError) and error.timed_out
        )
        failure = NoAnswer if is_silent else LookupFailed
        raise failure(str(error) if isinstance(error, RemotingError) else f"{address}: {error}") from error


def _peer(told: ReplicationStateInfo) -> Peer:
    """Raises `ValueError`."""
    role, term = BrokerRole(told.broker_role), Term(told.term, told.leads_term)
    return Peer(role is not BrokerRole.SLAVE, term.number, term.leads, told.followed, told.broker_name or None)


def _peer_by_configuration(body: bytes, address: str) -> Peer | None:
    """Raises `ValueError`."""
    told = parse_properties(body.decode(), address).values
    role = told.get(_ROLE)
    return None if role is None else Peer(BrokerRole(role) is not BrokerRole.SLAVE, name=told.get(_NAME) or None)
