"""Clients of a run whose brokers check signatures; an administrator, and operators at the machines, change accounts.

The usual producers, the consumer and the administrator sign as the account that may do everything.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Sequence

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.remoting.acl import AclClientRpcHook
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.connection import RemotingError
from rmq_actors.remoting.hooks import RpcHook
from rmq_actors.testing.account_changes import Change, draw_account, draw_change
from rmq_actors.testing.account_table import (
    ADMINISTRATOR,
    CHANGING,
    FURTHER_TOPIC,
    HAND,
    HAND_FILE,
    WHITE_LIST,
    file_of,
    secret_key,
    write_files,
)
from rmq_actors.testing.clients import LOOK_EVERY_S, PUT_AGAIN_S
from rmq_actors.testing.invariants.accounts import DENIED
from rmq_actors.testing.remote_clients import RemoteClients
from rmq_actors.testing.sim_brokers import Beside
from rmq_actors.testing.strange_requests import Dice
from rmq_actors.testing.thin_client import make_topic_request
from rmq_actors.tracing.events.run import ClientAccountChange, OperatorSetUpAnew
from rmq_actors.wire.acl_signature import SessionCredentials
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Node

_TIMEOUT_MS = 5_000
#: How many queues the topic has whose queues other messages enter.
_QUEUES = 2
#: How often an administrator tries a change again that is not answered, or that a disk does not take.
_TRIES, _CHANGE_PAUSE_S = 12, 1.0
#: So many requests of visitors come with one change of accounts.
_REQUESTS_A_CHANGE = 8
#: The pause between two changes of a file at the machine, how long it takes to hold, and how many there are in a life.
_HAND_PAUSE_S, _HOLDS_AFTER_S, _BY_HAND_MAX = 4.0, 6.5, 3
#: What the names of clients begin with that sign in other names, or not at all.
VISITOR = "visitor-"
#: How often the account is used that was changed by hand, once that must hold.
_LOOKS = 3
_DENIAL = "org.apache.rocketmq.acl.common.AclException"


@attrs.define(eq=False, repr=False)
class AdministeredClients(RemoteClients):
    """See the module. `changes_left` are yet to be made by the administrator."""

    changes_left: int = attrs.field(default=0, init=False)
    #: How many are at work who may ask for more.
    _at_work: int = attrs.field(default=0, init=False)
    #: The numbers of accounts' secret keys as their owners know them, by broker and access key.
    _secrets: dict[tuple[str, str], int] = attrs.field(factory=dict, init=False)
    #: What is not changed any more at a broker: an unanswered change may yet come late.
    _settled: set[tuple[str, str]] = attrs.field(factory=set, init=False)
    #: Brokers that have the topic whose queues other messages enter.
    _with_topic: set[str] = attrs.field(factory=set, init=False)
    #: How many requests that would do harm wait for their answer, by broker; and where one has none, it may come late.
    _harmful: dict[str, int] = attrs.field(factory=lambda: defaultdict(int), init=False)
    #: Brokers of which somebody is to ask whether an account that was changed by hand may do what it may.
    _to_look_at: list[str] = attrs.field(factory=list, init=False)
    #: Addresses that were ever to need no account, by broker.
    _white: dict[str, set[str]] = attrs.field(factory=lambda: defaultdict(set), init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.changes_left = 1 + self.brokers.workload.accounts // _REQUESTS_A_CHANGE
        self.brokers.recorder.subscribe(self._on_set_up_anew, [OperatorSetUpAnew])

    @property
    def are_done(self) -> bool:
        """Whether nothing is left to be asked."""
        return self.changes_left <= 0 and not self._at_work

    def _hooks(self, name: str) -> Sequence[RpcHook]:
        """Everybody but visitors signs as the administrator."""
        if name.startswith(VISITOR):
            return ()
        return [AclClientRpcHook(SessionCredentials(ADMINISTRATOR, secret_key(ADMINISTRATOR, 0)))]

    async def _rest(self, remoting: RemotingClient) -> None:
        """Let go of brokers for a moment."""
        for connection in list(remoting.connections.values()):
            connection.stop()
        await trio.sleep(LOOK_EVERY_S)

    async def _make_topic(self, remoting: RemotingClient, master: str) -> bool:
        """That whose queues other messages enter: a broker makes it for no message."""
        command = make_topic_request(FURTHER_TOPIC, _QUEUES)
        with contextlib.suppress(RemotingError):
            answer = await remoting.invoke(self.brokers.addresses(master).remoting, command, _TIMEOUT_MS)
            return answer.code == ResponseCode.SUCCESS
        return False

    # --- the administrator -------------------------------------------------------------------------------------------

    async def _administer(self, node: Node) -> None:
        dice = Dice(node.entropy)
        async with self._open("administrator", node) as remoting:
            while not self._stopping.is_set():
                if self._master() is None or not self.may_write or self.changes_left <= 0:
                    await self._rest(remoting)
                    continue
                self.changes_left -= 1
                self._at_work += 1
                if (master := self._master()) is not None and master not in self._with_topic:
                    self._waiting += 1
                    self._with_topic |= {master} if await self._make_topic(remoting, master) else set()
                    self._waiting -= 1
                broker = dice.choice(self.brokers.running)
                names = [name for name in (*CHANGING, WHITE_LIST) if (broker, name) not in self._settled]
                if names:
                    await self._change(remoting, broker, draw_change(dice, dice.choice(names), self._addresses))
                self._at_work -= 1
                await trio.sleep(dice.random() * _CHANGE_PAUSE_S)

    @property
    def _addresses(self) -> list[str]:
        """Those of the brokers, which sign nothing."""
        return [node.address for node in self.brokers.nodes.values()]

    async def _change(self, remoting: RemotingClient, broker: str, change: Change) -> None:
        """Until it is done; one that cannot be is tried once."""
        self._white[broker] |= set(change.white)
        if change.white and self._harmful[broker]:
            return  # what must not be done would be
        for _ in range(_TRIES):
            if broker not in self.brokers.running:
                await self._rest(remoting)
                continue
            self._tell_change(broker, change.name, "asked", change.text)
            self._waiting += 1
            status = await self._try_change(remoting, broker, change)
            self._waiting -= 1
            self._tell_change(broker, change.name, status, change.text)
            if status == ResponseCode.SUCCESS.name:
                if change.account is not None:
                    self._secrets[broker, change.name] = change.account.secret
                return
            if change.is_impossible:
                return
            if status not in ResponseCode.__members__:
                self._settled.add((broker, change.name))
            elif change.is_deletion:
                return  # it is gone already, or the disk does not take it
            while not self.may_write:
                await self._rest(remoting)
            await trio.sleep(PUT_AGAIN_S)

    async def _try_change(self, remoting: RemotingClient, broker: str, change: Change) -> str:
        command = change.command()
        try:
            return answer_status(await remoting.invoke(self.brokers.addresses(broker).remoting, command, _TIMEOUT_MS))
        except RemotingError as error:
            return type(error).__name__

    def _tell_change(self, broker: str, name: str, status: str, text: str) -> None:
        self.brokers.recorder.record(ClientAccountChange(status=status, account=name, detail=text), broker)

    def _on_set_up_anew(self, event: OperatorSetUpAnew) -> None:
        for broker, name in list(self._secrets):
            if broker == event.node:
                del self._secrets[broker, name]

    # --- an operator at the machine ---------------------------------------------------------------------------------

    def beside(self, name: str) -> Iterable[Beside]:
        """An operator at the broker's machine."""
        yield self._edit_file

    async def _edit_file(self, broker: BrokerController, node: Node) -> None:
        dice = Dice(node.entropy)
        for _ in range(_BY_HAND_MAX):
            await trio.sleep(dice.random() * _HAND_PAUSE_S)
            account = draw_account(dice, HAND)
            self._tell_change(node.name, HAND, "written", account.text)
            try:
                await write_files(node.disk, {HAND_FILE: file_of([account])})
            except OSError:
                continue
            await trio.sleep(_HOLDS_AFTER_S)
            if self.brokers.met_disk_error(node.name):
                continue  # it may not have been read
            self._secrets[node.name, HAND] = account.secret
            self._tell_change(node.name, HAND, "done", account.text)
            self._to_look_at += [node.name] * _LOOKS


def answer_status(answer: RemotingCommand) -> str:
    """What an answer says, in a word: whether it is denied, or its code's name."""
    if answer.code == ResponseCode.SYSTEM_ERROR and (answer.remark or "").startswith(_DENIAL):
        return DENIED
    return ResponseCode(answer.code).name
