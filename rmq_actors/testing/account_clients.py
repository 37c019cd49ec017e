"""Clients of a run whose brokers check signatures, and visitors beside them with accounts of their own.

Visitors ask for what `account_requests.py` has, in the name of an account, or falsely.
"""

from __future__ import annotations

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.connection import RemotingError
from rmq_actors.testing.account_administrator import VISITOR, AdministeredClients, answer_status
from rmq_actors.testing.account_requests import AT_SLAVES, DRAWN, KINDS, Asked, Draft, Known, real_topic
from rmq_actors.testing.account_table import (
    ACCOUNTS_AT_FIRST,
    ADDRESS_BEFORE,
    ADMINISTRATOR,
    CHANGING,
    HAND,
    UNKNOWN,
    VISITORS,
    VISITORS_ADDRESS,
    WHITENED,
    Claim,
    needed_at_once,
    secret_key,
)
from rmq_actors.testing.clients_apart import has_delivered_all
from rmq_actors.testing.invariants.accounts import ONEWAY
from rmq_actors.testing.strange_requests import STORED, Dice
from rmq_actors.testing.thin_client import Prepared
from rmq_actors.tracing.events.run import ClientAccount
from rmq_actors.wire.acl_signature import SIGNATURE, SessionCredentials, sign_command
from rmq_actors.wire.headers import decode_header
from rmq_actors.wire.headers.messages import SendMessageResponseHeader
from rmq_actors.wire.message_id import decode_message_id
from rmq_actors.wire.record import decode_message
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Node

_TIMEOUT_MS = 5_000
#: How many visitors are at their own machine; one more is at that of the producers.
_VISITORS = 2
#: How often a request is not what it says: unsigned, wrongly signed, altered, or of an account that there is not.
_FALSE = 0.25
#: How often an account asks that has, at first, what a broker asks for before it looks into the request.
_LOOKED_INTO = 0.5
_AT_SLAVES = 0.3
_ADMINISTRATORS = frozenset({ADMINISTRATOR, "limited-administrator", HAND, *CHANGING})
#: What is asked in the name of the account that was changed by hand: any broker answers it.
_LOOKS = ("bounds", "bounds", "committed", "pull", "look_at_settings")
_SECRET = b"secret-"


@attrs.define(eq=False, repr=False)
class AccountClients(AdministeredClients):
    """See the module. `requests_left` are yet to be made by visitors."""

    requests_left: int = attrs.field(default=0, init=False)
    _asked: int = attrs.field(default=0, init=False)
    _visitors: Node = attrs.field(init=False)
    #: Messages that were taken, and those of them that wait for the end of a transaction.
    _known: list[Known] = attrs.field(factory=list, init=False)
    _halves: list[Known] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.requests_left = self.brokers.workload.accounts
        self._visitors = self.brokers.world.node(VISITORS, VISITORS_ADDRESS)
        assert self._producers.address == ADDRESS_BEFORE

    @property
    def are_done(self) -> bool:
        """Whether visitors and the administrator have done all."""
        return self.requests_left <= 0 and super().are_done

    def boot(self) -> None:
        """Also the visitors' machine."""
        super().boot()
        self._visitors.boot(self._visit_all)

    async def stop(self) -> None:
        """See `RemoteClients.stop`."""
        await super().stop()
        await self._visitors.wait_down()

    def has_let_go(self, name: str) -> bool:
        """Also the visitors."""
        broker = self.brokers.broker(name)
        assert broker.remoting is not None
        connections = broker.remoting.remoting_server.connections.values()
        hosts = {each.remote_address.rpartition(":")[0] for each in connections}
        return super().has_let_go(name) and self._visitors.address not in hosts

    def has_all_delayed(self, broker: BrokerController) -> bool:
        """See `Writers.has_all_delayed`: here of all levels."""
        return has_delivered_all(broker)

    async def _produce_all(self, node: Node) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(super()._produce_all, node)
            nursery.start_soon(self._visit, f"{VISITOR}beside", node)
            nursery.start_soon(self._administer, node)

    async def _visit_all(self, node: Node) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(_VISITORS):
                nursery.start_soon(self._visit, f"{VISITOR}{number}", node)

    # --- visitors ---------------------------------------------------------------------------------------------------

    async def _visit(self, name: str, node: Node) -> None:
        dice = Dice(node.entropy)
        async with self._open(name, node) as remoting:
            while not self._stopping.is_set():
                master = self._master()
                looks = bool(self._to_look_at)
                if master is None or not self.may_write or (self.requests_left <= 0 and not looks):
                    await self._rest(remoting)
                    continue
                self.requests_left -= not looks
                self._at_work += 1
                self._waiting += 1
                if looks:
                    await self._look_at(remoting, self._to_look_at.pop(0), dice, node.address)
                else:
                    await self._ask_something(remoting, master, dice, node.address)
                self._waiting -= 1
                self._at_work -= 1
                await trio.sleep(dice.random() * self.brokers.workload.pause_s)

    async def _ask_something(self, remoting: RemotingClient, master: str, dice: Dice, host: str) -> None:
        self._asked += 1
        key = f"a{self._asked}"
        kind = dice.choice(DRAWN)
        asked = KINDS[kind](Draft(dice, key, self._known, self._halves))
        if asked is None or (asked.harms and self._white[master]):
            kind = "send"
            asked = KINDS[kind](Draft(dice, key, self._known, self._halves))
            assert asked is not None
        is_of_slave = kind in AT_SLAVES and dice.random() < _AT_SLAVES
        broker = dice.choice(self.brokers.running) if is_of_slave else master
        claim = self._claim(broker, asked, dice, host)
        await self._ask(remoting, broker, kind, key, asked, claim)

    async def _look_at(self, remoting: RemotingClient, broker: str, dice: Dice, host: str) -> None:
        """Ask something in the name of the account that was changed by hand."""
        if broker not in self.brokers.running:
            return
        self._asked += 1
        key, kind = f"a{self._asked}", dice.choice(_LOOKS)
        asked = KINDS[kind](Draft(dice, key, self._known, self._halves))
        assert asked is not None
        number = self._secrets.get((broker, HAND), 0)
        sign_command(asked.command, SessionCredentials(HAND, secret_key(HAND, number)))
        await self._ask(remoting, broker, kind, key, asked, Claim(HAND, number, host))

    def _claim(self, broker: str, asked: Asked, dice: Dice, host: str) -> Claim:
        """Put the name of an account and a signature, right or wrong, into a request."""
        is_false = dice.random() < _FALSE
        names = [*ACCOUNTS_AT_FIRST, *CHANGING[1:]]
        if dice.random() < _LOOKED_INTO:
            names = [each.access_key for each in ACCOUNTS_AT_FIRST.values() if each.has(needed_at_once(asked.needs))]
        name = dice.choice(names)
        if asked.harms:
            # Nobody is to have what would do harm, whatever becomes of accounts meanwhile.
            is_false = is_false or name in _ADMINISTRATORS
            name = UNKNOWN if name == WHITENED else name
        number = self._secrets.get((broker, name), 0)
        command = asked.command
        if not is_false:
            sign_command(command, SessionCredentials(name, secret_key(name, number)))
            return Claim(name, number, host)
        how = dice.choice(("unsigned", "unnamed", "wrongly", "altered", "altered", "unknown"))
        if how == "unnamed":
            return Claim("", -1, host)
        name = UNKNOWN if how == "unknown" else name
        sign_command(command, SessionCredentials(name, secret_key(name, -1 if how == "wrongly" else number)))
        assert command.ext_fields is not None
        if how == "unsigned":
            del command.ext_fields[SIGNATURE]
        elif how == "altered" and command.body and dice.random() < 0.7:
            command.body = command.body + b"!"
        elif how == "altered":
            command.ext_fields["zAfterwards"] = "1"
        return Claim(name, -1, host)

    async def _ask(
        self, remoting: RemotingClient, broker: str, kind: str, key: str, asked: Asked, claim: Claim
    ) -> None:
        self._tell_request(broker, kind, key, asked, claim, "asked")
        address, status, shown, detail = self.brokers.addresses(broker).remoting, ONEWAY, "", ""
        self._harmful[broker] += asked.harms
        try:
            if asked.is_oneway:
                await remoting.invoke_oneway(address, asked.command, _TIMEOUT_MS)
            else:
                answer = await remoting.invoke(address, asked.command, _TIMEOUT_MS)
                status = answer_status(answer)
                if status == ResponseCode.SUCCESS.name and asked.shows:
                    shown = " ".join(_shown(answer.body))
                if _SECRET in answer.body or _SECRET.decode() in (answer.remark or ""):
                    detail = "the answer has a secret key"
                self._note_stored(answer, key, asked)
                self._harmful[broker] -= asked.harms
        except RemotingError as error:
            status = type(error).__name__
        self._tell_request(broker, kind, key, asked, claim, status, shown, detail)

    def _note_stored(self, answer: RemotingCommand, key: str, asked: Asked) -> None:
        if answer.code not in STORED or not asked.topic or "msgId" not in (answer.ext_fields or {}):
            return
        placed = decode_header(SendMessageResponseHeader, answer)
        offset = decode_message_id(placed.msg_id.partition(",")[0])[1]
        known = Known(key, asked.topic, offset, Prepared(placed.queue_offset, offset, key), asked.claims)
        self._known.append(known)
        if asked.is_half:
            self._halves.append(known)

    def _tell_request(
        self,
        broker: str,
        kind: str,
        key: str,
        asked: Asked,
        claim: Claim,
        status: str,
        shown: str = "",
        detail: str = "",
    ) -> None:
        told = ClientAccount(
            status=status,
            operation=kind,
            key=key,
            account=claim.access_key,
            secret=claim.secret,
            host=claim.host,
            needs=" ".join(asked.needs),
            topic=asked.topic,
            about=asked.about,
            offset=asked.offset,
            half=asked.is_half,
            shown=shown,
            detail=detail,
        )
        self.brokers.recorder.record(told, broker)


def _shown(body: bytes) -> list[str]:
    """The topics of the messages of an answer."""
    topics = []
    while body:
        size = int.from_bytes(body[:4], "big")
        message = decode_message(memoryview(body[:size]))
        topics.append(real_topic(message))
        body = body[size:]
    return topics
