"""The scenario `transactions`: producers prepare, commit and roll back while links, nodes, disks and masters fail."""

from __future__ import annotations

import re
from collections import Counter

import attrs
import pytest

from rmq_actors.broker.transactional_message_service import TransactionalMessageService
from rmq_actors.protocols.send_rules import Refusal
from rmq_actors.protocols.transactional_messages import committed_message
from rmq_actors.store.message_store import MessageStore
from rmq_actors.store.puts.message_puts import PendingPut
from rmq_actors.testing.scenarios import TRANSACTIONS, RunResult, run_case
from rmq_actors.tracing.events.run import ClientTransaction
from rmq_actors.tracing.events.transactions import TransactionCheck, TransactionEnd
from rmq_actors.wire.record import TRANSACTION_COMMIT_TYPE, StoredMessage
from sim_net import Fault, Kill, On, PowerLoss, Schedule
from sim_net.search.search import Case

MASTER = TRANSACTIONS.topology.master


def run(seed: int) -> RunResult:
    return run_case(TRANSACTIONS.case(seed), TRANSACTIONS)


def statuses(result: RunResult) -> Counter[str]:
    return Counter(
        f"{event.kind} {event.status}"
        for event in result.events
        if isinstance(event, ClientTransaction | TransactionCheck | TransactionEnd)
    )


def test_transactions_end_as_their_producers_want_whatever_fails() -> None:
    results = [run(seed) for seed in range(8)]
    assert [(result.case.seed, result.failure) for result in results if result.outcome != "passed"] == []
    met = Counter[str]()
    for result in results:
        met += statuses(result)
    for status in (
        "client.transaction commit",
        "client.transaction committed",
        "client.transaction roll_back",
        "client.transaction rolled_back",
        "transaction.check asked",
        "transaction.end committed",
        "transaction.end rolled_back",
    ):
        assert met[status] >= 5, (status, met)


def test_the_scenario_sees_a_commit_that_is_stored_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    end = TransactionalMessageService.end

    def end_twice(
        service: TransactionalMessageService, store: MessageStore, half: StoredMessage, state: int
    ) -> PendingPut | Refusal | None:
        if state == TRANSACTION_COMMIT_TYPE:
            store.puts.async_put_message(committed_message(half))
        return end(service, store, half, state)

    monkeypatch.setattr(TransactionalMessageService, "end", end_twice)
    failures = [run(seed).failure for seed in range(4)]
    assert any(re.search(r"transactions: .* has committed tx-\d+ \d times", failure) for failure in failures), failures


def test_the_scenario_sees_a_commit_of_what_is_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    end = TransactionalMessageService.end

    def commit(
        service: TransactionalMessageService, store: MessageStore, half: StoredMessage, _: int
    ) -> PendingPut | Refusal | None:
        return end(service, store, half, TRANSACTION_COMMIT_TYPE)

    monkeypatch.setattr(TransactionalMessageService, "end", commit)
    failures = [run(seed).failure for seed in range(4)]
    assert any("nobody has sent that" in failure or "its producer has not" in failure for failure in failures), failures


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8, 308))
def test_transactions_end_as_their_producers_want_in_many_runs(seed: int) -> None:
    result = run(seed)
    assert (result.outcome, result.failure) == ("passed", "")


def crash_point(fault: type[Kill | PowerLoss], nth: int) -> Case:
    """The master is lost right after the nth append to its log, and comes back: nothing else happens."""
    case = TRANSACTIONS.case(nth)
    quiet = {**case.parameters, "fail_overs": 0, "puts": 20, "in_flight": 1, "pause_s": 1.0}
    faults: tuple[Fault, ...] = (fault(0.0, MASTER, 0.5, on=On("log.append", MASTER, nth)),)
    return attrs.evolve(case, schedule=Schedule(faults), parameters=quiet)


def check_crash_point(fault: type[Kill | PowerLoss], nth: int) -> Counter[str]:
    result = run_case(crash_point(fault, nth), TRANSACTIONS)
    assert (result.outcome, result.failure) == ("passed", ""), nth
    return statuses(result)


@pytest.mark.parametrize("fault", [Kill, PowerLoss])
def test_a_master_may_be_lost_between_half_message_commit_and_op_message(fault: type[Kill | PowerLoss]) -> None:
    """Each of these is an append of its own. Nothing is lost, nothing is seen twice, nothing rolled back is seen."""
    met = Counter[str]()
    for nth in range(1, 25, 4):
        met += check_crash_point(fault, nth)
    assert met["transaction.end committed"] > 0, met


@pytest.mark.long
@pytest.mark.parametrize("nth", range(1, 60))
@pytest.mark.parametrize("fault", [Kill, PowerLoss])
def test_a_master_may_be_lost_at_each_append(fault: type[Kill | PowerLoss], nth: int) -> None:
    check_crash_point(fault, nth)
