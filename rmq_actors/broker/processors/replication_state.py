"""Answers what a broker is at one moment: role, term, log and which master it follows (GET_REPLICATION_STATE)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.hooks import RpcRefused
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.replication_state import ReplicationStateInfo
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import OwnRequestCode
from rmq_actors.wire.response_code import ResponseCode

if TYPE_CHECKING:
    from rmq_actors.broker.broker_controller import BrokerController


@attrs.frozen(eq=False)
class ReplicationStateProcessor:
    """While the store is opened again, the broker has no role: the answer is SERVICE_NOT_AVAILABLE."""

    _broker: BrokerController

    def register(self, processors: ProcessorTable) -> None:
        """Take the request code."""
        processors.register([OwnRequestCode.GET_REPLICATION_STATE], self._get_replication_state)

    def _get_replication_state(self, request: RemotingRequest) -> RemotingCommand:
        remoting = self._broker.remoting
        if remoting is None or remoting.open_store is None:
            raise RpcRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker changes its role, try again")
        return request.command.response(ResponseCode.SUCCESS, body=encode_body(self._state()))

    def _state(self) -> ReplicationStateInfo:
        """There must be no checkpoint in here, as the answer is that of one moment."""
        broker, followed = self._broker, self._broker.followed_master
        log, halted = broker.store.commit_log, None if followed is None else followed.halted
        return ReplicationStateInfo(
            broker_name=broker.config.broker_name,
            broker_id=broker.config.broker_id,
            broker_role=broker.config.store.broker_role.value,
            term=broker.term.number,
            leads_term=broker.term.leads,
            min_offset=log.min_offset,
            max_offset=log.max_offset,
            flushed_offset=log.flushed_where,
            ha_address=broker.ha_address,
            followed_address=None if followed is None else followed.address,
            followed=followed is not None and followed.is_followed,
            halted=None if halted is None else f"{halted.reason}: {halted.detail}",
        )
