"""Conducts an exchange of roles on its master's side (RoleExchange). Drives `protocols.exchange`.

What the slave does is in `exchange_partner`.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import attrs
import trio

from rmq_actors.actors.services.service import ServiceThread, WakeUp
from rmq_actors.broker.broker_configuration import updated_config
from rmq_actors.broker.role_changes import RoleChangeFailed
from rmq_actors.protocols import exchange
from rmq_actors.protocols.exchange import TIME_LIMIT_MAX_S, Effect, MasterExchange, Note, Outcome, Partner, Step
from rmq_actors.remoting.connection import RemotingError
from rmq_actors.settings.configure import Properties
from rmq_actors.store.config import BrokerRole
from rmq_actors.store.files.exchange_file import ExchangeFile
from rmq_actors.tracing.events.broker import BrokerExchange
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.address import IllegalAddress, parse_address
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.bodies.replication_state import ReplicationStateInfo
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

CHECK_TIMEOUT_MS = 5_000
#: Meanwhile the slave syncs its log and copies the tables. The exchange's limit may end it earlier.
PREPARE_TIMEOUT_MS = 10_000
#: Meanwhile the slave opens its store again. If no answer comes, this broker asks what the slave is.
PROMOTE_TIMEOUT_MS = 10_000
STATE_TIMEOUT_MS = 3_000
_ID_BYTES = 8


class ExchangeRefused(ValueError):
    """This broker does not begin an exchange now; the text says why. Nothing has changed."""


class _NotDone(Exception):
    """There was no answer that tells whether the request was carried out."""


@attrs.define(eq=False, repr=False)
class RoleExchange(ServiceThread):
    """A Service of brokers with a listenPort: conducts one exchange at a time, the one of a note first.

    A broker that is fenced refuses puts and changes of its tables, through every opening of its store.
    """

    name = "RoleExchange"
    _broker: BrokerController
    _file: ExchangeFile
    _tracer: Tracer
    #: The exchange that is under way, or the last one since the start.
    machine: MasterExchange | None = attrs.field(default=None, init=False)
    _slave_addr: str = attrs.field(default="", init=False)
    _began: WakeUp = attrs.field(factory=WakeUp, init=False)
    _ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    _asking: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Conduct exchanges until asked to stop. An exchange that cannot be given up goes on with the next start."""
        try:
            await super().run(task_status=task_status)
        finally:
            self._ended.set()

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Conduct first what a note tells of, then what operators ask for."""
        note = self._file.note
        if note is not None:
            partner = note.partner.address
            _log.warning(
                "this broker was exchanging roles with %s when it stopped: it goes on with the exchange", partner
            )
            self._slave_addr = partner
            self._begin(MasterExchange.resumed(note, is_slave=self._broker.config.is_slave))
        task_status.started()
        while True:
            await self._began.wait_for_running(math.inf)
            if self.machine is not None and self.machine.step is not Step.ENDED:
                await self._conduct(self.machine)

    # --- what operators ask -------------------------------------------------------------------------------------------

    def begin(self, slave_addr: str, limit_s: float) -> ExchangeInfo:
        """Begin to exchange roles with the slave at "host:port", unless that is under way. Raises `ExchangeRefused`."""
        try:
            parse_address(slave_addr)
        except IllegalAddress as error:
            raise ExchangeRefused(str(error)) from error
        if not 0 < limit_s <= TIME_LIMIT_MAX_S:
            raise ExchangeRefused(f"a limit of {limit_s:g} s is not in 0 to {TIME_LIMIT_MAX_S:g} s")
        if self.machine is not None and self.machine.step is not Step.ENDED:
            if slave_addr != self._slave_addr:
                raise ExchangeRefused(f"roles are being exchanged with {self._slave_addr}")
            return self.info()
        broker, remoting = self._broker, self._broker.remoting
        if self._scope.cancel_called:
            raise ExchangeRefused("this broker stops")
        if broker.config.is_slave:
            raise ExchangeRefused("this broker is a slave: ask its master")
        if broker.roles_being_set:
            raise ExchangeRefused("the role of this broker is being set by command")
        assert remoting is not None
        if slave_addr == remoting.broker_addr:
            raise ExchangeRefused(f"{slave_addr} is this master itself")
        store, environment = broker.store, broker.environment
        self._slave_addr = slave_addr
        self._begin(
            MasterExchange(
                environment.entropy.token_bytes(_ID_BYTES).hex(),
                broker.config.store.broker_role.value,
                broker.term.number,
                store.commit_log.append_offset,
                store.config.ha_slave_fallbehind_max_bytes,
                limit_s,
            )
        )
        return self.info()

    async def wait_for_end(self) -> ExchangeInfo:
        """How the present exchange ended, or how it stood as this broker stopped: its next start may go on with it."""
        await self._ended.wait()
        return self.info()

    def info(self) -> ExchangeInfo:
        """How the present exchange, or the last one, is going."""
        machine = self.machine
        if machine is None:
            return ExchangeInfo()
        return ExchangeInfo(
            detail=machine.detail,
            ended=machine.step is Step.ENDED,
            exchange_id=machine.exchange_id,
            exchanged=machine.is_exchanged,
            slave_addr=self._slave_addr,
            step=machine.step.value,
        )

    async def overrule(self, *, by_slave: bool) -> None:
        """An operator sets the role, to SLAVE or not (`by_slave`): return when no exchange is under way."""
        machine = self.machine
        if machine is None or machine.step is Step.ENDED:
            return
        _log.warning("the exchange of roles with %s is given up: the role is set by command", self._slave_addr)
        machine.overrule(by_slave=by_slave)
        if machine.may_be_cut_short:
            self._asking.cancel()
        await self._ended.wait()

    # --- conducting ---------------------------------------------------------------------------------------------------

    def _begin(self, machine: MasterExchange) -> None:
        self.machine, self._ended = machine, trio.Event()
        self._began.wakeup("begun")

    async def _conduct(self, machine: MasterExchange) -> None:
        _log.info("roles are being exchanged with %s", self._slave_addr)
        told = ""
        while machine.effect is not None:
            self._trace(machine)
            outcome = await self._outcome(machine, machine.effect)
            machine.happened(outcome, trio.current_time())
            if machine.detail != told and isinstance(machine.effect, exchange.Wait):
                told = machine.detail
                level = logging.INFO if machine.step is Step.PREPARE else logging.WARNING
                _log.log(level, "exchange of roles with %s, step %s: %s", self._slave_addr, machine.step.value, told)
        self._trace(machine)
        if machine.is_exchanged:
            _log.info("roles are exchanged: %s is the master", self._slave_addr)
        else:
            _log.warning("roles are not exchanged with %s: %s", self._slave_addr, machine.detail)
        self._ended.set()

    async def _outcome(self, machine: MasterExchange, effect: Effect) -> Outcome:
        if not machine.may_be_cut_short and not isinstance(effect, exchange.Wait):
            return await self._perform(machine, effect)
        with trio.CancelScope() as self._asking:
            if machine.is_overruled and machine.may_be_cut_short:
                self._asking.cancel()
            return await self._perform(machine, effect)
        return exchange.Unanswered("it was given up")

    async def _perform(self, machine: MasterExchange, effect: Effect) -> Outcome:
        match effect:
            case exchange.Check():
                return await self._check(machine)
            case exchange.Prepare():
                return await self._prepare(machine, effect)
            case exchange.Promote(note):
                return await self._promote(note)
            case exchange.AskState(partner):
                return await self._ask_state(partner)
            case exchange.Wait(until):
                await trio.sleep_until(until)
                return exchange.Done()
            case exchange.Fence():
                await self._broker.fence(fence_reason(self._slave_addr))
                return exchange.Fenced(self._broker.store.commit_log.append_offset)
            case exchange.Unfence():
                await self._broker.fence("")
                return exchange.Done()
            case _:
                return await self._change(effect)

    async def _change(self, effect: Effect) -> Outcome:
        """Perform an effect. What it changes is durable when it is done."""
        broker = self._broker
        try:
            match effect:
                case exchange.WriteNote(note):
                    await self._file.write(note)
                case exchange.RemoveNote():
                    await self._file.remove()
                case exchange.Lead(term):
                    await broker.lead(term)
                case exchange.StepDown(note):
                    await broker.set_role(self._slave_settings(note.partner))
                case _:
                    raise AssertionError(effect)
        except (OSError, ValueError, RoleChangeFailed) as error:
            return exchange.Failed(str(error))
        return exchange.Done()

    def _slave_settings(self, partner: Partner) -> Properties:
        """The properties that make this broker a slave of the new master.

        They have that one's old brokerId, and its addresses unless name servers tell them.
        """
        config = self._broker.config
        values = {"brokerRole": BrokerRole.SLAVE.value, "brokerId": str(partner.broker_id)}
        if not config.uses_name_servers or config.ha.ha_master_address is not None:
            values["haMasterAddress"] = partner.ha_address
        if not config.uses_name_servers or config.master_addr is not None:
            values["masterAddr"] = partner.address
        return Properties(f"the exchange of roles with {partner.address}", values)

    # --- asking the slave ---------------------------------------------------------------------------------------------

    async def _check(self, machine: MasterExchange) -> Outcome:
        body = PrepareExchangeBody(
            broker_name=self._broker.config.broker_name, exchange_id=machine.exchange_id, term=machine.term
        )
        try:
            answer = await self._ask(OwnRequestCode.PREPARE_EXCHANGE, body, CHECK_TIMEOUT_MS)
        except _NotDone as error:
            return exchange.Unanswered(str(error))
        refused = answer.refused or answer.waits_for
        if refused:
            return exchange.Refused(f"{self._slave_addr}: {refused}")
        partner = Partner(self._slave_addr, answer.ha_addr or "", answer.broker_id)
        try:
            parse_address(partner.ha_address)
            updated_config(self._broker.config, self._slave_settings(partner))
        except ValueError as error:
            return exchange.Refused(f"this broker cannot be the slave of {self._slave_addr}: {error}")
        # Check it now: once the slave leads, there is no way back, and it would have no slave.
        unwritable = await self._broker.configuration.why_not_writable()
        if unwritable is not None:
            return exchange.Refused(f"this broker cannot be the slave of {self._slave_addr}: {unwritable}")
        return exchange.Checked(partner, answer.term, answer.max_offset)

    async def _prepare(self, machine: MasterExchange, effect: exchange.Prepare) -> Outcome:
        log = self._broker.store.commit_log
        if log.max_offset != effect.end:
            return exchange.NotYet(f"{effect.end - log.max_offset} bytes of this master's log are not committed yet")
        body = PrepareExchangeBody(
            broker_name=self._broker.config.broker_name,
            end=effect.end,
            exchange_id=machine.exchange_id,
            promotion=effect.promotion,
            term=machine.term,
        )
        left_ms = int(1000 * (machine.give_up_at - trio.current_time()))
        try:
            answer = await self._ask(OwnRequestCode.PREPARE_EXCHANGE, body, max(min(left_ms, PREPARE_TIMEOUT_MS), 1))
        except _NotDone as error:
            return exchange.Unanswered(str(error))
        return _outcome_of(self._slave_addr, answer)

    async def _promote(self, note: Note) -> Outcome:
        body = PromoteExchangeBody(end=note.end, promotion=note.promotion, role=note.role, term=note.term)
        try:
            answer = await self._ask(OwnRequestCode.PROMOTE_EXCHANGE, body, PROMOTE_TIMEOUT_MS)
        except _NotDone as error:
            return exchange.Unanswered(str(error))
        outcome = _outcome_of(self._slave_addr, answer)
        # "Not yet" does not mean no: it may be the master in a moment.
        return exchange.Unanswered(outcome.why) if isinstance(outcome, exchange.NotYet) else outcome

    async def _ask_state(self, partner: Partner) -> Outcome:
        request = RemotingCommand(OwnRequestCode.GET_REPLICATION_STATE)
        try:
            response = await self._invoke(partner.address, request, STATE_TIMEOUT_MS)
            state = decode_body(ReplicationStateInfo, response.body)
        except (_NotDone, RemotingCommandError) as error:
            return exchange.Unanswered(str(error))
        is_master = state.broker_role != BrokerRole.SLAVE.value
        is_of_name = state.broker_name == self._broker.config.broker_name
        return exchange.StateTold(is_of_name and is_master and state.leads_term, state.term)

    async def _ask(self, code: int, body: RemotingSerializable, timeout_ms: int) -> ExchangeAnswer:
        response = await self._invoke(self._slave_addr, RemotingCommand(code, body=encode_body(body)), timeout_ms)
        try:
            return decode_body(ExchangeAnswer, response.body)
        except RemotingCommandError as error:
            raise _NotDone(f"{self._slave_addr}: {error}") from error

    async def _invoke(self, address: str, request: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        remoting = self._broker.remoting
        assert remoting is not None
        try:
            response = await remoting.client.invoke(address, request, timeout_ms)
        except RemotingError as error:
            raise _NotDone(str(error)) from error
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise _NotDone(f"{address} is no broker of this project, or an older one: it knows no exchange of roles")
        if response.code != ResponseCode.SUCCESS:
            raise _NotDone(f"{address} answers {response.code}: {response.remark}")
        return response

    def _trace(self, machine: MasterExchange) -> None:
        effect = "" if machine.effect is None else type(machine.effect).__name__
        if machine.step is Step.ENDED:
            effect = "exchanged" if machine.is_exchanged else "not_exchanged"
        self._tracer.emit(
            BrokerExchange(
                status=machine.step.value,
                offset=self._broker.store.commit_log.max_offset,
                effect=effect,
                peer_address=self._slave_addr,
                detail=machine.detail[:200],
            )
        )


def fence_reason(address: str) -> str:
    """Why puts are refused during an exchange."""
    return f"roles are being exchanged with {address}"


def _outcome_of(address: str, answer: ExchangeAnswer) -> exchange.Done | exchange.Refused | exchange.NotYet:
    if answer.refused:
        return exchange.Refused(f"{address}: {answer.refused}")
    if answer.waits_for:
        return exchange.NotYet(f"{address}: {answer.waits_for}")
    return exchange.Done()
