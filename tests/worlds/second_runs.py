"""A second run for tests of real processes, as CPython's `regrtest` gives: a machine may be too slow for them once.

A test that fails twice has failed. One that passes the second time is named at the end of the run, with what it failed
by; more than a few of those are no accident, and fail the run. Nothing else is repeated: a simulated run or a unit that
fails once has a bug, and what hangs until its time-out has one too.
"""

from __future__ import annotations

import attrs
import pytest
from _pytest.runner import call_and_report

#: Marks of tests that start processes.
MARKS = ("interop", "processes", "spark")
#: So many may need a second run.
MOST = 3
_OUTCOME = "rerun"


def _attempt(item: pytest.Item, nextitem: pytest.Item | None, *, is_last: bool) -> list[pytest.TestReport]:
    """Set up, call, and tear down. A failure that is not the last takes down what tests share: it may be the cause."""
    _forget_values(item)
    reports = [call_and_report(item, "setup", log=False)]
    if reports[0].passed:
        reports.append(call_and_report(item, "call", log=False))
    down_to = None if not is_last and any(each.failed for each in reports) else nextitem
    reports.append(call_and_report(item, "teardown", log=False, nextitem=down_to))
    return reports


def _forget_values(item: pytest.Item) -> None:
    """What fixtures gave is kept in the item; pytest has this call for a test that is repeated."""
    if hasattr(item, "_initrequest"):
        item._initrequest()


def _has_hung(report: pytest.TestReport) -> bool:
    return report.failed and "Failed: Timeout (>" in report.longreprtext


@attrs.define(eq=False)
class SecondRuns:
    """A plugin of pytest, in the processes that run tests and in the one that tells."""

    #: What a test failed by the first time.
    _first: dict[str, str] = attrs.field(factory=dict, init=False)
    _failed: set[str] = attrs.field(factory=set, init=False)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if not any(item.get_closest_marker(mark) for mark in MARKS):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = _attempt(item, nextitem, is_last=False)
        failed = [each for each in reports if each.failed]
        if failed and not any(map(_has_hung, failed)):
            for report in failed:
                report.outcome = _OUTCOME  # type: ignore[assignment]
                item.ihook.pytest_runtest_logreport(report=report)
            reports = _attempt(item, nextitem, is_last=True)
        _forget_values(item)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome == _OUTCOME:
            self._first.setdefault(report.nodeid, report.longreprtext)
        elif report.failed:
            self._failed.add(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        return (_OUTCOME, "R", "RERUN") if report.outcome == _OUTCOME else None

    def _passed_then(self) -> list[str]:
        return sorted(self._first.keys() - self._failed)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int | pytest.ExitCode) -> None:
        if exitstatus == pytest.ExitCode.OK and len(self._passed_then()) > MOST:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        names = self._passed_then()
        if not names:
            return
        terminalreporter.section("needed a second run")
        for name in names:
            terminalreporter.write_line(self._first[name])
        for name in names:
            terminalreporter.write_line(f"needed a second run: {name}", yellow=True)
        if len(names) > MOST:
            terminalreporter.write_line(f"error: {len(names)} tests needed a second run; {MOST} may", red=True)
