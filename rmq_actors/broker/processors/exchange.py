"""Answers the requests of an exchange of roles, on the master and on the slave."""

from __future__ import annotations

import attrs

from rmq_actors.broker.exchange_partner import ExchangePartner
from rmq_actors.broker.role_exchange import ExchangeRefused, RoleExchange
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable, RequestPool
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.role_exchange import BeginExchangeBody, PrepareExchangeBody, PromoteExchangeBody
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import OwnRequestCode
from rmq_actors.wire.response_code import ResponseCode


@attrs.frozen(eq=False)
class ExchangeProcessor:
    """Requests that change a slave go through the pool of changes, one after the other."""

    _conductor: RoleExchange
    _partner: ExchangePartner

    def register(self, processors: ProcessorTable, pool: RequestPool) -> None:
        """Take the request codes."""
        processors.register([OwnRequestCode.BEGIN_EXCHANGE], self._begin)
        processors.register([OwnRequestCode.GET_EXCHANGE], self._get)
        processors.register_pooled([OwnRequestCode.PREPARE_EXCHANGE], self._prepare, pool)
        processors.register_pooled([OwnRequestCode.PROMOTE_EXCHANGE], self._promote, pool)

    def _begin(self, request: RemotingRequest) -> RemotingCommand:
        asked = decode_body(BeginExchangeBody, request.command.body)
        try:
            info = self._conductor.begin(asked.slave_addr, asked.limit_ms / 1000)
        except ExchangeRefused as error:
            return request.command.response(ResponseCode.SYSTEM_ERROR, str(error))
        return request.command.response(ResponseCode.SUCCESS, body=encode_body(info))

    def _get(self, request: RemotingRequest) -> RemotingCommand:
        return request.command.response(ResponseCode.SUCCESS, body=encode_body(self._conductor.info()))

    async def _prepare(self, request: RemotingRequest) -> RemotingCommand:
        answer = await self._partner.prepare(decode_body(PrepareExchangeBody, request.command.body))
        return request.command.response(ResponseCode.SUCCESS, body=encode_body(answer))

    async def _promote(self, request: RemotingRequest) -> RemotingCommand:
        answer = await self._partner.promote(decode_body(PromoteExchangeBody, request.command.body))
        return request.command.response(ResponseCode.SUCCESS, body=encode_body(answer))
