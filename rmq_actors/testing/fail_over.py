"""What an operator does when a master is lost for good: stop it, promote a slave, and let the old master follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs
import trio

from rmq_actors.testing.run_ends import NotConverged
from rmq_actors.testing.view import LONGEST

if TYPE_CHECKING:
    from rmq_actors.testing.replication_run import ReplicationRun

#: For so long the operator waits for slaves to be up, which faults have stopped; longer than any fault lasts.
_SLAVES_UP_S = 120.0
#: For so long a master that gives its role up waits for a slave to have its whole log; then it is stopped.
_CATCH_UP_S = 10.0
_LOOK_EVERY_S = 0.1


@attrs.frozen
class FailOvers:
    """The fail-overs of one run, one after the other."""

    run_: ReplicationRun

    async def run(self) -> None:
        """Return when the last one is done, and its old master has been started again."""
        workload = self.run_.workload
        for number in range(1, workload.fail_overs + 1):
            await trio.sleep_until(number * workload.fail_over_at_s)
            await self._fail_over()

    async def _fail_over(self) -> None:
        """The old master is never the master again before it has followed the new one."""
        run, workload = self.run_, self.run_.workload
        old = run.master
        if workload.lost_by == "step_down" and await self._step_down(old):
            return
        if not self._slaves_well:
            return  # nobody has what it has: there is nobody to promote
        del run.follows[old]
        node = run.nodes[old]
        if workload.lost_by == "power_loss":
            node.power_loss()
        else:
            node.kill()
        run.brokers.pop(old, None)
        new = await self._choose()
        run.promoted(new, is_longest=workload.promoted == LONGEST)
        run.configure(**{name: new for name in run.names if name != old})
        await trio.sleep(workload.back_after_s)
        run.configure(**{old: new})
        if not node.is_up:
            node.restart()

    async def _step_down(self, old: str) -> bool:
        """Let a slave have the whole log while nobody writes; whether that worked. Nothing may be lost then."""
        run = self.run_
        run.may_write = False
        try:
            if not await self._look(lambda: self._is_replicated(old), _CATCH_UP_S):
                return False
            new = max(self._candidates(), key=self._end)
            run.promoted(new, is_longest=True)
            run.configure(**dict.fromkeys(run.names, new))
            return True
        finally:
            run.may_write = True

    async def _look(self, predicate: Callable[[], bool], timeout_s: float) -> bool:
        """Look now and then, for so long; whether it came true."""
        give_up_at = trio.current_time() + timeout_s
        while not (is_true := predicate()) and trio.current_time() < give_up_at:  # noqa: ASYNC110 - as operators do
            await trio.sleep(_LOOK_EVERY_S)
        return is_true

    def _is_replicated(self, old: str) -> bool:
        view = self.run_.view
        return (
            not view.unanswered
            and self._is_open(old)
            and any(not view.lacks(view.nodes[name]) for name in self._candidates())
        )

    async def _choose(self) -> str:
        """When all slaves are up that have followed: the one with the longest log, or the shortest."""
        run = self.run_
        if not await self._look(lambda: 0 < self._slaves_well == len(self._candidates()), _SLAVES_UP_S):
            raise NotConverged(f"{_SLAVES_UP_S:g} s after a master was lost, its slaves are not up")
        choose = max if run.workload.promoted == LONGEST else min
        return choose(self._candidates(), key=self._end)

    @property
    def _slaves_well(self) -> int:
        view = self.run_.view
        return sum(view.has_followed(slave) for slave in view.slaves)

    def _candidates(self) -> list[str]:
        """The slaves whose logs are open, and that have followed the master: others may have another log."""
        view = self.run_.view
        return [slave.name for slave in view.slaves if self._is_open(slave.name) and view.has_followed(slave)]

    def _end(self, name: str) -> int:
        return self.run_.view.nodes[name].end

    def _is_open(self, name: str) -> bool:
        run = self.run_
        return run.nodes[name].is_up and name in run.brokers and not run.view.nodes[name].has_lost_power
