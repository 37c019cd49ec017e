"""What a slave does for the master that exchanges roles with it. Drives `protocols.slave_preparation`."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import TYPE_CHECKING

import attrs
import trio

from rmq_actors.broker.broker_configuration import updated_config
from rmq_actors.broker.broker_outer_api import MQBrokerError
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.broker.slave_synchronize import TIMEOUT_MS, ask_table, take_over
from rmq_actors.protocols.metadata_rounds import Metadata
from rmq_actors.protocols.slave_preparation import (
    Promotion,
    SlavePreparation,
    SlaveState,
    is_promoted,
    why_no_partner,
    why_not_ready,
)
from rmq_actors.remoting.connection import RemotingError
from rmq_actors.settings.configure import Properties
from rmq_actors.store.config import BrokerRole
from rmq_actors.store.log.received_records import AppendRefused
from rmq_actors.tracing.events.broker import BrokerExchangePartner
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.address import IllegalAddress
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.role_exchange import (
    ExchangeAnswer,
    ExchangeInfo,
    PrepareExchangeBody,
    PromoteExchangeBody,
)
from rmq_actors.wire.remoting_command import RemotingCommand, RemotingCommandError
from rmq_actors.wire.request_code import OwnRequestCode
from rmq_actors.wire.response_code import ResponseCode

if TYPE_CHECKING:
    from rmq_actors.broker.broker_controller import BrokerController

_log = logging.getLogger(__name__)

ASK_MASTER_TIMEOUT_MS = 3_000
#: How long a slave tries to get ready before it says that it is not; the master asks again.
READY_WITHIN_S = 8.0
_SOURCE = "the exchange of roles"


class _MasterSilent(Exception):
    """The slave could not ask its master whether that one conducts the exchange."""


@attrs.define(eq=False, repr=False)
class ExchangePartner:
    """There is one per broker. Its requests are served one after the other."""

    name = "ExchangePartner"
    _broker: BrokerController
    _tracer: Tracer
    _preparation: SlavePreparation = attrs.field(factory=SlavePreparation, init=False)
    #: A promotion has failed, and since then it is not known what the file of settings says.
    _is_unsettled: bool = attrs.field(default=False, init=False)

    async def prepare(self, asked: PrepareExchangeBody) -> ExchangeAnswer:
        """Say whether this broker can take over; with a `promotion` get ready, or say what it still waits for."""
        own = self._state()
        refused = why_no_partner(own, asked.broker_name, asked.term) or self._why_no_master()
        if refused is not None:
            return self._answer("refuses", refused=refused)
        if not own.is_followed:
            return self._answer("waits", waits_for="it follows no master at the moment")
        try:
            refused = await self._why_of_another(asked.exchange_id)
        except _MasterSilent as error:
            return self._answer("waits", waits_for=str(error))
        # Ask this now: a slave that could not write its settings could later say neither yes nor no to the promotion,
        # and its master would stay fenced.
        refused = refused or await self._broker.configuration.why_not_writable()
        if refused is not None:
            return self._answer("refuses", refused=refused)
        if asked.promotion is None:
            return self._answer("can")
        waits_for = why_not_ready(own, asked.end) or await self._catch_up() or why_not_ready(self._state(), asked.end)
        if waits_for is None and self._state().life != own.life:
            waits_for = "it has opened its store again meanwhile"
        if waits_for is not None:
            return self._answer("waits", waits_for=waits_for)
        self._preparation.ready(asked.promotion, self._state())
        return self._answer("ready")

    async def promote(self, asked: PromoteExchangeBody) -> ExchangeAnswer:
        """Become the master, if this broker is ready for that. What was refused once stays refused.

        Raises `RoleChangeFailed`.
        """
        own, promotion = self._state(), Promotion(asked.promotion, asked.term, asked.end)
        if is_promoted(promotion, own):
            return self._answer("leads")
        if self._is_unsettled and not await self._settle():
            return self._answer("waits", waits_for="it cannot write its settings")
        refused = self._preparation.why_not_promoted(promotion, own)
        if refused is not None:
            return self._answer("refuses", refused=refused)
        self._trace("is_promoted", "")

        def as_it_was(config: BrokerConfig) -> BrokerConfig:
            if attrs.evolve(self._state(), is_followed=own.is_followed) != own:
                raise ValueError("meanwhile this slave has changed")
            return updated_config(config, self._settings(asked.role))

        try:
            await self._broker.set_role(self._settings(asked.role), as_it_was, term=asked.term)
        except ValueError as error:
            if is_promoted(promotion, self._state()):
                return self._answer("leads")  # by an operator's command, which came first
            return self._answer("refuses", refused=str(error))
        except OSError as error:
            # The file may be the new one. To say no before it is the old one again could make two masters at the next
            # start.
            self._is_unsettled = True
            if not await self._settle():
                return self._answer("waits", waits_for=f"it cannot write its settings: {error}")
            return self._answer("refuses", refused=f"it cannot write its settings: {error}")
        return self._answer("leads")

    async def _settle(self) -> bool:
        """Write into the file what this broker is."""
        try:
            await self._broker.configuration.persist({"brokerRole": ""}, self._broker.config)
        except (OSError, ValueError) as error:
            _log.warning("the settings cannot be written: %s", error)
            return False
        self._is_unsettled = False
        return True

    def _state(self) -> SlaveState:
        broker, followed = self._broker, self._broker.followed_master
        halted = None if followed is None else followed.halted
        return SlaveState(
            broker_name=broker.config.broker_name,
            is_slave=broker.config.is_slave,
            term=broker.term.number,
            leads=broker.term.leads,
            log_end=broker.store.commit_log.max_offset,
            life=broker.life,
            is_followed=followed is not None and followed.is_followed,
            halted=None if halted is None else f"{halted.reason}: {halted.detail}",
            tables=self._tables(),
        )

    def _tables(self) -> Hashable:
        """Another one when topics or groups change."""
        remoting = self._broker.remoting
        assert remoting is not None
        return remoting.metadata.topics.data_version, remoting.metadata.subscription_groups.data_version

    def _settings(self, role: str) -> Properties:
        return Properties(_SOURCE, {"brokerRole": role})

    def _why_no_master(self) -> str | None:
        """Why this broker could not be a master at all."""
        try:
            updated_config(self._broker.config, self._settings(BrokerRole.ASYNC_MASTER.value))
        except ValueError as error:
            return f"it cannot be a master: {error}"
        if self._broker.remoting is None or self._broker.remoting.master_addr is None:
            return "it is not told where its master answers, so it takes no tables: set masterAddr"
        return None

    async def _why_of_another(self, exchange_id: str) -> str | None:
        """Why the followed master does not conduct this exchange; None if it does. Raises `_MasterSilent`."""
        remoting = self._broker.remoting
        assert remoting is not None
        master = remoting.master_addr
        assert master is not None
        try:
            response = await remoting.client.invoke(
                master, RemotingCommand(OwnRequestCode.GET_EXCHANGE), ASK_MASTER_TIMEOUT_MS
            )
            if response.code != ResponseCode.SUCCESS:
                return f"its master {master} answers {response.code}: {response.remark}"
            told = decode_body(ExchangeInfo, response.body)
        except (RemotingError, RemotingCommandError, IllegalAddress) as error:
            raise _MasterSilent(f"its master: {error}") from error
        if told.exchange_id != exchange_id or told.ended:
            return f"it follows {master}, which is another broker, or exchanges no roles now"
        return None

    async def _catch_up(self) -> str | None:
        """Get the log onto the disk and the master's tables here; why that has not been done."""
        broker, remoting = self._broker, self._broker.remoting
        assert remoting is not None
        with trio.move_on_after(READY_WITHIN_S) as waiting:
            try:
                await broker.store.sync_log()
                for part in Metadata:
                    master = remoting.master_addr or ""
                    answer = await ask_table(remoting.client, broker.store, master, part, TIMEOUT_MS)
                    await take_over(remoting.metadata, broker.store, part, answer)
            except (AppendRefused, RemotingError, MQBrokerError, ValueError, OSError) as error:
                return str(error)
        return f"not ready within {READY_WITHIN_S:g} s" if waiting.cancelled_caught else None

    def _answer(self, what: str, *, refused: str | None = None, waits_for: str | None = None) -> ExchangeAnswer:
        self._trace(what, refused or waits_for or "")
        broker = self._broker
        return ExchangeAnswer(
            broker_id=broker.config.broker_id,
            ha_addr=broker.ha_server_addr,
            max_offset=broker.store.commit_log.max_offset,
            refused=refused,
            term=broker.term.number,
            waits_for=waits_for,
        )

    def _trace(self, what: str, detail: str) -> None:
        self._tracer.emit(
            BrokerExchangePartner(status=what, offset=self._broker.store.commit_log.max_offset, detail=detail[:200])
        )
