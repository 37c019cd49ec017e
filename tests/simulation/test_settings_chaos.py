"""The scenario `settings`: brokers whose settings no other scenario has, and what these mean to clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
import msgspec
import pytest
import trio

from rmq_actors.broker import client_requests
from rmq_actors.broker.broker_protection_service import BrokerProtectionService
from rmq_actors.testing.errands import ERRANDS, ERRANDS_OF_SETTINGS
from rmq_actors.testing.operation import SETTINGS as OPERATIONS
from rmq_actors.testing.operation import Operation
from rmq_actors.testing.scenarios import RunResult, run_case, scenario_of
from rmq_actors.testing.settings import SETTINGS
from rmq_actors.testing.topology import NEIGHBOUR
from rmq_actors.testing.workload import Workload, settings_of
from rmq_actors.tracing.event import of_kind
from rmq_actors.tracing.events.ha import HaClientClose, HaConnectionOpen
from rmq_actors.tracing.events.run import ClientErrand, OperatorCommand, OperatorStop
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from sim_net import Schedule
from sim_net.search.search import Case, Parameter

SEEDS, MANY_SEEDS = range(6), range(80)
CALM: dict[str, Parameter] = {
    "puts": 10,
    "pause_s": 0.1,
    "clients": True,
    "errands": 1,
    "settings": "haListenPort=20912",
    "neighbour": True,
}
#: A run without faults is over in this time.
CALM_RUN_IS_OVER_S = 120.0


def failed(results: list[RunResult]) -> list[tuple[int, str]]:
    return [(each.case.seed, each.failure) for each in results if each.outcome != "passed"]


def test_every_run_passes() -> None:
    results = [run_case(SETTINGS.case(seed), SETTINGS) for seed in SEEDS]
    assert failed(results) == []
    assert all(scenario_of(each.case) == SETTINGS for each in results)


@pytest.mark.long
def test_many_runs_pass_and_each_errand_and_operation_is_done_in_some() -> None:
    results = [run_case(SETTINGS.case(seed), SETTINGS) for seed in MANY_SEEDS]
    assert failed(results) == []
    events = [event for each in results for event in each.events]
    done = Counter(each.operation for each in events if isinstance(each, ClientErrand) and each.status == "done")
    assert {kind for kind in (*ERRANDS_OF_SETTINGS, "read_while_it_stops") if done[kind] < 5} == set()
    assert {each.status for each in events if isinstance(each, OperatorCommand)} >= {*OPERATIONS}


def test_each_setting_and_operation_is_drawn() -> None:
    cases = [SETTINGS.case(seed) for seed in range(200)]
    keys = Counter(key for each in cases for key in settings_of(str(each.parameters["settings"])))
    assert min(keys.values()) > 5
    assert {ERRANDS[name].needs for name in ERRANDS_OF_SETTINGS if ERRANDS[name].needs} <= keys.keys()
    drawn = {fault.what for each in cases for fault in each.schedule.faults if isinstance(fault, Operation)}
    assert drawn >= {*OPERATIONS}
    assert {each.parameters.get("neighbour", False) for each in cases} == {True, False}


def test_what_is_no_setting_is_refused() -> None:
    for text in ("haListenPort", "noSuchKey=1", "haListenPort=x"):
        with pytest.raises(ValueError, match=r"parameters\['settings"):
            Workload(1, 0.1, settings=text)
    with pytest.raises(ValueError, match=r"parameters\['settings_apart'\] must be a text"):
        Workload(1, 0.1, settings_apart=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("what", OPERATIONS)
def test_an_operation_alone_is_done(what: str) -> None:
    case = Case(1, Schedule((Operation(2.0, "broker-2", what, 0.3),)), CALM)
    result = run_case(case, SETTINGS)
    assert (result.outcome, result.failure) == ("passed", "")
    (command,) = of_kind(result.events, OperatorCommand)
    assert (command.node, command.status, command.detail) == ("broker-2", what, None)
    stopped = [event.node for event in of_kind(result.events, OperatorStop)]
    assert stopped == {"exchange_and_stop": ["broker-1"], "restart_while_read": ["broker-2"]}.get(what, [])
    ends = {event.status for event in of_kind(result.events, HaClientClose) if event.node == "broker-2"}
    assert ("other_name" in ends) is (what == "follow_another_name")
    if what == "restart_while_read":
        errand = [each for each in of_kind(result.events, ClientErrand) if each.operation == "read_while_it_stops"][-1]
        assert (errand.status, errand.detail) == ("done", "")


def turn_groups_off(patch: pytest.MonkeyPatch) -> None:
    """A group is turned off, though no setting says so."""

    def off(found: SubscriptionGroupConfig | None) -> SubscriptionGroupConfig | None:
        return None if found is None else msgspec.structs.replace(found, consume_enable=False)

    async def work(self: Any, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        while True:
            await trio.sleep(0.3)
            if not self._clients.config().is_slave:
                await self._clients.metadata.subscription_groups.change_subscription_group_config("ChaosGroup", off)

    patch.setattr(BrokerProtectionService, "work", work)


def make_no_topics(patch: pytest.MonkeyPatch) -> None:
    """No topic is made by a message, though brokers are to make them."""
    patch.setattr(client_requests, "inherited_topic", lambda *_: None)


def leave_all_as_it_is(_: pytest.MonkeyPatch) -> None:
    """Nothing is wrong."""


@pytest.mark.parametrize(
    ("sabotage", "outcome"),
    [(leave_all_as_it_is, "passed"), (turn_groups_off, "liveness"), (make_no_topics, "liveness")],
)
def test_no_client_mends_what_no_setting_explains(
    sabotage: Callable[[pytest.MonkeyPatch], None], outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    soon = attrs.evolve(SETTINGS, converges_in_s=CALM_RUN_IS_OVER_S)
    assert run_case(Case(1, Schedule(()), CALM), soon).outcome == outcome


def test_slaves_find_the_log_where_ha_listen_port_says() -> None:
    result = run_case(Case(1, Schedule(()), CALM), SETTINGS)
    assert result.outcome == "passed"
    assert {event.node for event in of_kind(result.events, HaConnectionOpen)} == {"broker-1"}
    assert NEIGHBOUR in {event.node for event in result.events}
