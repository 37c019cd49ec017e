"""The scenario `accounts`: who may not is refused, and changes of accounts hold, whatever fails."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import trio

from rmq_actors.broker.broker_remoting import _AccessControl
from rmq_actors.broker.processors.query import QueryMessageProcessor
from rmq_actors.protocols import plain_access
from rmq_actors.remoting.plain_acl_file import AclFileWatchService, parse_plain_acl
from rmq_actors.testing.account_requests import KINDS
from rmq_actors.testing.accounts import ACCOUNTS
from rmq_actors.testing.scenarios import RunResult, run_case, scenario_of
from rmq_actors.testing.workload import Workload
from rmq_actors.tracing.event import of_kind
from rmq_actors.tracing.events.run import ClientAccount, ClientAccountChange, OperatorPromote

SEEDS, MANY_SEEDS = range(8), range(40)
#: Whoever could make a broker do these would do harm.
HARMFUL = {"delete", "command", "set_white_list", "set_setting"}
#: The first has no answer. A broker does the others for nobody: no transaction ends, or clients may not write there.
NEVER_DONE = {"send_oneway", "commit_another", "send_to_system_topic"}
Sabotage = Callable[[pytest.MonkeyPatch], None]


def run(seed: int) -> RunResult:
    return run_case(ACCOUNTS.case(seed), ACCOUNTS)


def test_accounts_get_what_they_may_and_nothing_else_whatever_fails() -> None:
    results = [run(seed) for seed in SEEDS]
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []
    assert sum(len(of_kind(each.events, ClientAccount)) for each in results) >= 300
    assert all(scenario_of(each.case) == ACCOUNTS for each in results)


@pytest.mark.long
def test_between_many_runs_everything_is_asked_and_is_let_through_and_refused() -> None:
    results = [run(seed) for seed in MANY_SEEDS]
    assert [(each.case.seed, each.failure) for each in results if each.outcome != "passed"] == []
    told = {(event.operation, event.status) for each in results for event in of_kind(each.events, ClientAccount)}
    assert {kind for kind in KINDS if (kind, "denied") not in told} <= {"send_oneway"}
    assert {kind for kind in KINDS if (kind, "SUCCESS") not in told} <= {*HARMFUL, *NEVER_DONE}
    changes = Counter(event.status for each in results for event in of_kind(each.events, ClientAccountChange))
    assert changes.keys() >= {"SUCCESS", "UPDATE_AND_CREATE_ACL_CONFIG_FAILED", "written", "done"}
    assert sum(len(of_kind(each.events, OperatorPromote)) for each in results) >= 5


def test_what_it_cannot_run_is_refused() -> None:
    with pytest.raises(ValueError, match="accounts"):
        Workload(1, 0.1, accounts=1)
    with pytest.raises(ValueError, match="accounts"):
        Workload(1, 0.1, accounts=1, clients=True, errands=1)


def show_by_id(patch: pytest.MonkeyPatch) -> None:
    """VIEW_MESSAGE_BY_ID shows any message."""
    patch.setattr(QueryMessageProcessor, "_authorize_look", lambda *_: None)


def look_at_requests_once(patch: pytest.MonkeyPatch) -> None:
    """What a request is about is not asked for."""
    patch.setattr(_AccessControl, "authorize", lambda *_: None)


def take_any_signature(patch: pytest.MonkeyPatch) -> None:
    """Whoever knows an access key is believed."""
    patch.setattr(plain_access, "is_signed_by", lambda *_: True)


def ask_for_no_permission(patch: pytest.MonkeyPatch) -> None:
    """Every account may do everything."""
    patch.setattr(plain_access, "_check_permissions", lambda *_: None)


def refuse_groups(patch: pytest.MonkeyPatch) -> None:
    """Nobody may be a member of a group."""
    patch.setattr(plain_access, "retry_topic", lambda _: "%RETRY%nobody")


def keep_changes_in_memory(patch: pytest.MonkeyPatch) -> None:
    """A change is gone with the process."""

    async def persist(self: Any, path: str, data: bytes) -> None:
        contents = {**self._contents, path: data}
        self.rules, self._contents = parse_plain_acl(contents), contents

    patch.setattr(AclFileWatchService, "persist", persist)


def forget_to_sync_changes(patch: pytest.MonkeyPatch) -> None:
    """A change may be gone with the power."""

    async def persist(self: Any, path: str, data: bytes) -> None:
        parse_plain_acl({**self._contents, path: data})
        with contextlib.closing(self._disk.open(f"{path}.tmp", allocate_bytes=len(data))) as file:
            file.write_at(0, data)
        self._disk.rename(f"{path}.tmp", path)
        self.load()

    patch.setattr(AclFileWatchService, "persist", persist)


def take_changes_later(patch: pytest.MonkeyPatch) -> None:
    """A change holds once somebody looks at the file."""
    persist = AclFileWatchService.persist

    async def late(self: Any, path: str, data: bytes) -> None:
        rules, contents = self.rules, self._contents
        await persist(self, path, data)
        self.rules, self._contents = rules, contents

    patch.setattr(AclFileWatchService, "persist", late)


def never_look_at_files(patch: pytest.MonkeyPatch) -> None:
    """What an operator writes is read at the next start."""

    async def work(self: Any, task_status: Any) -> None:
        task_status.started()
        await trio.sleep_forever()

    patch.setattr(AclFileWatchService, "work", work)


@pytest.mark.parametrize(
    "sabotage",
    [
        show_by_id,
        look_at_requests_once,
        take_any_signature,
        ask_for_no_permission,
        refuse_groups,
        keep_changes_in_memory,
        forget_to_sync_changes,
        take_changes_later,
        never_look_at_files,
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_the_scenario_finds_each_bug(sabotage: Sabotage, monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage(monkeypatch)
    assert any(run(seed).outcome == "invariant" for seed in range(40))
