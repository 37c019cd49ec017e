"""An operator whose work is drawn as faults are: every procedure of docs/operating.md, early, late, hasty, or twice.

It makes the same requests as `broker-admin`, and brokers write what it asks for into their files. It does not learn
from traces which broker is the master, but from brokers' answers. One procedure that changes roles goes on at a time.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

import attrs
import trio

from rmq_actors.broker.broker_configuration import SettingsUnreadable
from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.broker.role_changes import RoleChangeFailed
from rmq_actors.embedding.brokers import exchange_roles
from rmq_actors.embedding.cluster_protocol import BrokerDown, ExchangeFailed
from rmq_actors.settings.configure import Properties
from rmq_actors.store.config import BrokerRole
from rmq_actors.testing.fail_over import RoleOperator
from rmq_actors.testing.operation import Operation, take_orders
from rmq_actors.testing.operators import Operator
from rmq_actors.testing.sim_brokers import Beside
from rmq_actors.tracing.events.run import OperatorCommand, OperatorRole
from sim_net import Node

_LOOK_EVERY_S: Final = 0.1
#: How long a command may take.
_COMMAND_S: Final = 60.0
#: How long a process may take to end in order before it is killed.
_STOP_S: Final = 20.0
#: Once faults are over, all procedures end and all brokers are up within this time.
_SETTLE_S: Final = 200.0
_EXCHANGE_LIMIT_MIN_S: Final = 1.0
#: The pause before a lost machine is back, and before a stopped broker is started.
_BACK_S: Final = 0.5


@attrs.define(eq=False, repr=False)
class DrawnOperator(RoleOperator):
    """Does what the schedule's `Operation`s say. A procedure that fails is given up half-way.

    Once faults are over, it makes the broker whose log counts the master, if there is none, and lets the others follow.
    """

    takes_orders = True

    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _changing_roles: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _at_work: int = attrs.field(default=0, init=False)
    _settling: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        take_orders(self.brokers.world, self)

    def beside(self, name: str) -> Iterable[Beside]:
        """Halts and old terms are ended once the faults are over; until then only by drawn operations."""
        yield from Operator.beside(self, name)
        yield partial(self._once_settling, self._end_halts)
        yield partial(self._once_settling, self._end_old_terms)

    async def _once_settling(self, program: Beside, broker: BrokerController, node: Node) -> None:
        await self._settling.wait()
        await program(broker, node)

    def start(self, nursery: trio.Nursery) -> None:
        """Take orders from now on."""
        super().start(nursery)
        self._nursery = nursery

    # --- orders -------------------------------------------------------------------------------------------------------

    def order(self, operation: Operation) -> None:
        """Begin an operation, beside those under way; once faults are over, do nothing."""
        if self._nursery is not None and not self._settling.is_set():
            # Whoever waits for a broker's event is called in that one's process, which may stand still, or die.
            contextvars.Context().run(self._nursery.start_soon, self._do, operation)

    async def _do(self, operation: Operation) -> None:
        procedure: Callable[[Operation], Awaitable[None]] = getattr(self, f"_do_{operation.what}")
        self._at_work += 1
        try:
            why = await self._tried(procedure, operation)
        finally:
            self._at_work -= 1
        self.brokers.recorder.record(OperatorCommand(status=operation.what, detail=why), operation.node)

    @staticmethod
    async def _tried(procedure: Callable[[Operation], Awaitable[None]], operation: Operation) -> str | None:
        """Why it could not be done."""
        try:
            await procedure(operation)
        except (BrokerDown, ExchangeFailed, RoleChangeFailed, ValueError, OSError, trio.TooSlowError) as error:
            return f"{type(error).__name__}: {error}"
        return None

    # --- procedures: one for each of `OPERATIONS` ---------------------------------------------------------------------

    async def _do_exchange(self, operation: Operation) -> None:
        async with self._changing_roles:
            await self._exchange_roles(operation)

    async def _do_exchange_twice(self, operation: Operation) -> None:
        """The command is given at two terminals at once."""
        async with self._changing_roles, trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(self._tried, self._exchange_roles, operation)

    async def _exchange_roles(self, operation: Operation) -> None:
        master, new = self._leading(), operation.node
        if master is None or master == new:
            return
        limit_s = max(_EXCHANGE_LIMIT_MIN_S, operation.patience_s)
        address = self.brokers.addresses(new).remoting
        try:
            await self._asked(
                master, partial(exchange_roles, slave_addr=address, limit_s=limit_s), _COMMAND_S + limit_s
            )
        except ExchangeFailed:
            return
        self._note(new)
        await self._let_others_follow(new, master)

    async def _do_exchange_by_hand(self, operation: Operation) -> None:
        """The master becomes a slave first. The other one is promoted when both logs end alike, or patience ends."""
        async with self._changing_roles:
            old, new = self._leading(), operation.node
            if old is None or old == new:
                return
            await self._make_slave(old, new)
            await self._look(lambda: self._end_alike(old, new), operation.patience_s)
            await self._make_master(new)
            await self._let_others_follow(new, old)

    async def _do_fail_over(self, operation: Operation) -> None:
        await self._replace(operation, self.brokers.kill)

    async def _do_stop_and_fail_over(self, operation: Operation) -> None:
        await self._replace(operation, self._stop)

    async def _replace(self, operation: Operation, end: Callable[[str], Awaitable[None]]) -> None:
        """The master goes for good, another one is promoted, and the old one comes back as its slave."""
        async with self._changing_roles:
            brokers, old, new = self.brokers, self._leading(), operation.node
            if old is None or old == new or new not in brokers.running:
                return
            brokers.disable(old)
            await end(old)
            await trio.sleep(operation.patience_s)
            await self._make_master(new)
            await self._let_others_follow(new, old)
            await trio.sleep(_BACK_S)
            brokers.configure(new, [old])
            if not brokers.nodes[old].is_up:
                brokers.restart_node(old)

    async def _do_restart(self, operation: Operation) -> None:
        await self._stop(operation.node)
        await trio.sleep(_BACK_S)
        if not self.brokers.nodes[operation.node].is_up:
            self.brokers.restart_node(operation.node)

    async def _do_set_up_again(self, operation: Operation) -> None:
        """A slave begins with an empty disk."""
        brokers, name = self.brokers, operation.node
        async with self._changing_roles:
            master = self._leading()
            if master in (None, name) or brokers.view.master.name == name:
                return
            brokers.configure(str(master), [name])
            brokers.empty(name)
            if brokers.nodes[name].is_up:
                await brokers.kill(name)
                brokers.restart_node(name)

    async def _do_truncate(self, operation: Operation) -> None:
        await self._asked(operation.node, BrokerController.truncate_log)

    async def _do_follow_again(self, operation: Operation) -> None:
        async def follow_again(broker: BrokerController) -> None:
            broker.follow_again()

        await self._asked(operation.node, follow_again)

    async def _do_truncate_on_divergence(self, operation: Operation) -> None:
        await self._update(operation.node, haTruncateOnDivergence=str(operation.patience_s < 1).lower())

    async def _do_reopen(self, operation: Operation) -> None:
        """A setting that takes effect when the store is opened again. Puts are answered in time all the same."""
        await self._update(operation.node, syncFlushTimeout=str(int(2000 + 20 * operation.patience_s)))

    # --- what they are made of ----------------------------------------------------------------------------------------

    async def _asked(
        self, name: str, call: Callable[[BrokerController], Awaitable[object]], timeout_s: float = _COMMAND_S
    ) -> None:
        with trio.fail_after(timeout_s):
            await self.brokers.ask(name, call)

    async def _update(self, name: str, **properties: str) -> None:
        """As `broker-admin`, or `mqadmin updateBrokerConfig`, does."""
        asked = Properties("the operator's request", properties)

        async def update(broker: BrokerController) -> None:
            if "brokerRole" not in properties:
                await broker.update_config(asked)
                return
            self._tell_role(name, properties["brokerRole"], "asked")
            try:
                await broker.update_config(asked)
            except (ValueError, OSError, RoleChangeFailed) as error:
                self._tell_role(name, properties["brokerRole"], _why_not_done(error), str(error))
                raise
            self._tell_role(name, properties["brokerRole"], "done")

        await self._asked(name, update)

    def _tell_role(self, name: str, role: str, status: str, detail: str = "") -> None:
        self.brokers.recorder.record(OperatorRole(status=status, role=role, detail=detail[:200]), name)

    async def _make_slave(self, name: str, master: str) -> None:
        addresses = self.brokers.addresses(master)
        await self._update(
            name,
            brokerRole=BrokerRole.SLAVE.value,
            haMasterAddress=addresses.ha,
            masterAddr=addresses.remoting,
        )

    async def _make_master(self, name: str) -> None:
        await self._update(name, brokerRole=self.brokers.workload.master_role)
        self._note(name)

    async def _let_others_follow(self, master: str, old: str) -> None:
        for name in self.brokers.running:
            if name not in (master, old):
                with contextlib.suppress(BrokerDown, trio.TooSlowError, ValueError, OSError, RoleChangeFailed):
                    await self._make_slave(name, master)

    def _note(self, master: str) -> None:
        """What the operator knows, for those that lose their files; the brokers' own files say the same."""
        self.brokers.note(master)

    async def _stop(self, name: str) -> None:
        with trio.move_on_after(_STOP_S) as stopping:
            await self.brokers.stop(name)
        if stopping.cancelled_caught:
            await self.brokers.kill(name)

    def _leading(self) -> str | None:
        """The broker that says it is the master; of two, the one of the later term."""
        brokers = self.brokers
        masters = [name for name in brokers.running if not brokers.broker(name).config.is_slave]
        return max(masters, key=lambda name: brokers.broker(name).term.number, default=None)

    def _end_alike(self, one: str, other: str) -> bool:
        brokers = self.brokers
        if not {one, other} <= {*brokers.running}:
            return False
        return brokers.status(one).max_offset == brokers.status(other).max_offset

    # --- when the faults are over -------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Wait for begun operations; start brokers that are down; make one the master, and let the others follow it."""
        brokers = self.brokers
        self._settling.set()
        await self._look(lambda: not self._at_work, _SETTLE_S)
        master = brokers.view.master.name
        for name in brokers.names:
            if brokers.is_disabled(name):
                brokers.configure(master, [name])
            if not brokers.nodes[name].is_up:
                brokers.restart_node(name)
        await self._look(self._is_quiet, _SETTLE_S)
        master = brokers.view.master.name
        for name in [master, *(name for name in brokers.names if name != master)]:
            with contextlib.suppress(BrokerDown, trio.TooSlowError, ValueError, OSError, RoleChangeFailed):
                await self._update(name, haTruncateOnDivergence=self._truncates)
                await self._have_role(name, master)
        brokers.configure(master, brokers.names)

    @property
    def _truncates(self) -> str:
        """The setting as it was at first."""
        return str(self.brokers.workload.divergence == "setting").lower()

    def _is_quiet(self) -> bool:
        """Whether all run, and no exchange of roles is under way."""
        brokers = self.brokers
        if len(brokers.running) < len(brokers.names):
            return False
        exchanges = [brokers.broker(name).exchange for name in brokers.running]
        return all(each is None or each.machine is None or each.info().ended for each in exchanges)

    async def _have_role(self, name: str, master: str) -> None:
        config = self.brokers.broker(name).config
        if name == master:
            if config.is_slave:
                await self._make_master(name)
        elif not config.is_slave or config.ha.ha_master_address != self.brokers.addresses(master).ha:
            await self._make_slave(name, master)


def _why_not_done(error: ValueError | OSError | RoleChangeFailed) -> str:
    """In a word; see `OperatorRole`."""
    if isinstance(error, RoleChangeFailed):
        return "failed"
    return "unwritten" if isinstance(error, OSError | SettingsUnreadable) else "refused"
