"""Tells an operator the actors of a broker, their mailboxes, and its connections (GET_BROKER_CENSUS)."""

from __future__ import annotations

import attrs

from rmq_actors.actors.system import ActorSystem
from rmq_actors.broker.broker_remoting import BrokerRemoting
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.wire.bodies.broker_census import ActorInfo, BrokerCensus
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import OwnRequestCode
from rmq_actors.wire.response_code import ResponseCode


@attrs.frozen(eq=False)
class CensusProcessor:
    """It asks no store, so it also answers while the store is opened again."""

    _system: ActorSystem
    _remoting: BrokerRemoting

    def register(self, processors: ProcessorTable) -> None:
        """Take the request code."""
        processors.register([OwnRequestCode.GET_BROKER_CENSUS], self._get_broker_census)

    def _get_broker_census(self, request: RemotingRequest) -> RemotingCommand:
        return request.command.response(ResponseCode.SUCCESS, body=encode_body(self._census()))

    def _census(self) -> BrokerCensus:
        """There must be no checkpoint in here, as the answer is that of one moment."""
        census, remoting = self._system.census(), self._remoting
        return BrokerCensus(
            actors=[
                ActorInfo(
                    path=entry.path,
                    kind=entry.kind,
                    state=entry.state,
                    restarts=entry.restarts,
                    mailbox=entry.mailbox_messages,
                    mailbox_max=entry.mailbox_messages_max,
                    waiting_senders=entry.waiting_senders,
                )
                for entry in census.entries
            ],
            dead_letters=census.dead_letters,
            connections=remoting.connections,
            producers=remoting.producers,
            consumers=remoting.consumers,
            held_pulls=remoting.held_pulls,
        )
