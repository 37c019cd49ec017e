"""An operator that loses masters for good: it stops them, promotes a slave, and lets the old master follow.

It decides which broker is the master: it writes the brokers' configurations, and a task in each broker's process gives
it the role of its configuration.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.store.lifecycle.truncation import TruncationRefused
from rmq_actors.testing.operators import Operator
from rmq_actors.testing.run_ends import NotConverged
from rmq_actors.testing.sim_brokers import Beside
from rmq_actors.testing.view import LONGEST
from sim_net import Node

#: How long the operator waits for slaves that faults have stopped; longer than any fault lasts.
_SLAVES_UP_S = 120.0
#: How long a master that gives up its role waits for a slave to have its whole log before it is stopped.
_CATCH_UP_S = 10.0
_LOOK_EVERY_S = 0.1
#: The pause between two looks at a broker that needs a command.
_COMMAND_EVERY_S = 0.5
#: How often a slave may ask in vain where its log diverges from its master's before it is set up again.
_ASKED_AGAIN_MAX = 4


@attrs.define(eq=False, repr=False)
class RoleOperator(Operator):
    """Configures brokers: each becomes what `configure` says. Ends halts and old terms by command."""

    changes_roles = True

    def beside(self, name: str) -> Iterable[Beside]:
        """A broker becomes what is configured, and is given commands."""
        yield from super().beside(name)
        yield self._become_what_is_configured
        yield self._end_halts
        yield self._end_old_terms

    def start(self, nursery: trio.Nursery) -> None:
        """Also, look after brokers that do not start."""
        super().start(nursery)
        nursery.start_soon(self._set_up_damaged)

    async def _look(self, predicate: Callable[[], bool], timeout_s: float) -> bool:
        """Look now and then until it is true, or the time is over; whether it came true."""
        give_up_at = trio.current_time() + timeout_s
        while not (is_true := predicate()) and trio.current_time() < give_up_at:  # noqa: ASYNC110 - as operators do
            await trio.sleep(_LOOK_EVERY_S)
        return is_true

    # --- at each broker ---------------------------------------------------------------------------------------------

    async def _become_what_is_configured(self, broker: BrokerController, node: Node) -> None:
        brokers, name = self.brokers, node.name
        while True:
            configured = brokers.configured
            if not brokers.is_disabled(name):
                try:
                    await brokers.take_role(name)
                except OSError:  # the disk takes no term now: nothing has changed
                    await trio.sleep(_COMMAND_EVERY_S)
                    continue
            await configured.wait()

    async def _end_halts(self, broker: BrokerController, node: Node) -> None:
        """By command, cut a diverged log, or let a slave ask again that does not know where its log diverges.

        A slave that asks in vain is set up again, with nothing: its master has deleted what both had. But an empty
        master may yet get its log back.
        """
        in_vain = 0
        while True:
            await trio.sleep(_COMMAND_EVERY_S)
            followed, view = broker.followed_master, self.brokers.view
            halted = None if followed is None else followed.halted
            if followed is None or halted is None:
                continue
            if halted.common_end is None:
                in_vain += view.master.end > view.master.begin
                if in_vain > _ASKED_AGAIN_MAX:
                    self._set_up_again(node)
                    return
                broker.follow_again()
            elif self.brokers.workload.divergence == "command":
                with contextlib.suppress(TruncationRefused, OSError):  # for example, a full disk: it is tried again
                    await broker.truncate_log()

    def _set_up_again(self, node: Node) -> None:
        """Let a broker whose log is useless begin with an empty one. For a node that runs."""
        self.brokers.empty(node.name)
        node.kill()
        self.brokers.restart_node(node.name)

    async def _set_up_damaged(self) -> None:
        """Let a slave that does not start, as its log is damaged, begin with an empty one."""
        brokers, looks = self.brokers, dict.fromkeys(self.brokers.names, 0)
        while True:
            await trio.sleep(_COMMAND_EVERY_S)
            for name, node in brokers.nodes.items():
                is_down = node.is_up and name not in brokers.running and not brokers.is_disabled(name)
                looks[name] = looks[name] + 1 if is_down and brokers.view.nodes[name].rotten else 0
                if looks[name] > _ASKED_AGAIN_MAX and not brokers.is_configured_master(name):
                    brokers.empty(name)

    async def _end_old_terms(self, broker: BrokerController, node: Node) -> None:
        """By command, take a master to a greater term than that of slaves that refuse it for its old term."""
        brokers, name = self.brokers, node.name
        while True:
            await trio.sleep(_COMMAND_EVERY_S)
            others = map(brokers.broker, brokers.running)
            greatest = max((other.term.number for other in others if _refuses_old_term(other)), default=0)
            if brokers.is_configured_master(name) and not broker.config.is_slave and greatest > broker.term.number:
                with contextlib.suppress(OSError):  # the disk takes no term now: it is tried again
                    await broker.change_role(broker.config.store.broker_role, term=greatest + 1)


@attrs.define(eq=False, repr=False)
class FailOverOperator(RoleOperator):
    """Makes the fail-overs of one run, one after the other."""

    async def act(self) -> None:
        """Return when the last fail-over is done, and its old master has been started again."""
        workload = self.brokers.workload
        for number in range(1, workload.fail_overs + 1):
            await trio.sleep_until(number * workload.fail_over_at_s)
            await self._fail_over()

    async def _fail_over(self) -> None:
        """The old master must not be the master again before it has followed the new one."""
        brokers, workload = self.brokers, self.brokers.workload
        old = brokers.master
        if not await self._look(lambda: brokers.view.master.name == old, _SLAVES_UP_S):
            raise NotConverged(f"{_SLAVES_UP_S:g} s after it was promoted, {old} is not the master")
        if workload.lost_by == "step_down" and await self._step_down(old):
            return
        if not self._slaves_well:
            return  # nobody has what it has: there is nobody to promote
        brokers.disable(old)
        if workload.lost_by == "power_loss":
            await brokers.power_loss(old)
        else:
            await brokers.kill(old)
        new = await self._choose()
        brokers.configure(new, [name for name in brokers.names if name != old])
        await trio.sleep(workload.back_after_s)
        brokers.configure(new, [old])
        if not brokers.nodes[old].is_up:
            brokers.restart_node(old)

    async def _step_down(self, old: str) -> bool:
        """Let a slave get the whole log while nobody writes; whether that worked. If so, nothing may be lost."""
        brokers = self.brokers
        self.clients.may_write = False
        try:
            if not await self._look(lambda: self._is_replicated(old), _CATCH_UP_S):
                return False
            new = max(self._candidates(), key=self._end)
            brokers.configure(new, brokers.names)
            return True
        finally:
            self.clients.may_write = True

    def _is_replicated(self, old: str) -> bool:
        """Whether a slave has all of a master that runs: one that is paused may yet take what has come meanwhile."""
        view = self.brokers.view
        return (
            not view.unanswered
            and view.nodes[old].paused_at_ns is None
            and self._is_open(old)
            and self.clients.has_let_go(old)
            and any(not view.lacks(view.nodes[name]) for name in self._candidates())
        )

    async def _choose(self) -> str:
        """When all slaves are up that have followed: the one with the longest log, or the shortest."""
        if not await self._look(lambda: 0 < self._slaves_well == len(self._candidates()), _SLAVES_UP_S):
            raise NotConverged(f"{_SLAVES_UP_S:g} s after a master was lost, its slaves are not up")
        choose = max if self.brokers.workload.promoted == LONGEST else min
        return choose(self._candidates(), key=self._end)

    @property
    def _slaves_well(self) -> int:
        view = self.brokers.view
        return sum(view.has_followed(slave) and not slave.rotten for slave in view.slaves)

    def _candidates(self) -> list[str]:
        """The slaves whose logs are open, and that have followed the master: others may have another log.

        A disk that returns other bytes than were written is noticed in time, by what it says of itself.
        """
        view = self.brokers.view
        slaves = [slave for slave in view.slaves if not slave.rotten and view.has_followed(slave)]
        return [slave.name for slave in slaves if self._is_open(slave.name)]

    def _end(self, name: str) -> int:
        return self.brokers.view.nodes[name].end

    def _is_open(self, name: str) -> bool:
        brokers = self.brokers
        return name in brokers.running and not brokers.view.nodes[name].has_lost_power


def _refuses_old_term(slave: BrokerController) -> bool:
    followed = slave.followed_master
    return followed is not None and "old_term" in followed.ends
