"""Settings of every test: the Hypothesis profiles, and the log level that each begins with.

`HYPOTHESIS_PROFILE` chooses one: `dev` (the default) draws new examples in each run, `ci` is the same in each run,
`long` looks longer. None has a deadline: a busy machine is no bug.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.architecture.budget_table import budget_lines, read_budgets, seconds_by_directory
from tests.worlds.second_runs import SecondRuns

#: Half of what Hypothesis takes: `make test-long` has forty times as many.
_EXAMPLES = 50

settings.register_profile("dev", deadline=None, max_examples=_EXAMPLES, print_blob=True)
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    max_examples=_EXAMPLES,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "long", deadline=None, max_examples=2000, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# Under nohup every process that is started from here would ignore it, and tests of it would wait in vain.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


#: Directories whose tests share something dear: one Spark session, one Java process that is called from here.
_ONE_PROCESS = ("interop", "spark")
#: Of interop, what needs no Java process but its own, in groups that take about as long. They mostly wait.
_GROUPS_OF_INTEROP = {
    "interop-replication": ("test_ha_kills", "test_slave_metadata"),
    "interop-transfers": ("test_first_sync", "test_ha_cuts", "test_java_divergence"),
    "interop-stores": (
        "test_broker_kills",
        "test_exchange",
        "test_java_foreign_records",
        "test_java_master",
        "test_java_pair",
        "test_java_slave",
        "test_store_directories",
    ),
}
#: Files of few, long tests that share nothing.
_ALONE = "mutants"
#: What begins first, the longest before: none of it should begin when all else is done.
_FIRST = ("interop", "interop-replication", "spark", "interop-transfers", "interop-stores", "mutants", "packaging")


def _group(nodeid: str) -> str:
    """What one process runs, when there are several: the tests of a file, or those of a dear directory."""
    path = nodeid.partition("::")[0].removeprefix("tests/")
    directory, _, name = path.partition("/")
    for group, files in _GROUPS_OF_INTEROP.items():
        if directory == "interop" and name.removesuffix(".py") in files:
            return group
    if directory == _ALONE:
        return nodeid
    return directory if directory in _ONE_PROCESS else path


def _turn(nodeid: str) -> int:
    """When the group of a test begins."""
    begin = _group(nodeid).removeprefix("tests/").partition("/")[0]
    return _FIRST.index(begin) if begin in _FIRST else len(_FIRST)


class GroupScheduling(LoadScopeScheduling):
    """Hands out groups. Marks (`--dist loadgroup`) do not reach a scheduler with pytest 9.2 and pytest-xdist 3.8."""

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling | None:
    """`pytest -n N --dist loadscope`: groups, in the order of collection."""
    if config.getoption("dist") != "loadscope":
        return None
    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--budgets` and `--second-runs`, which `make test` gives."""
    parser.addoption("--budgets", action="store_true", help="end with the seconds of each directory and its budget")
    parser.addoption(
        "--second-runs", action="store_true", help="run a test of real processes that fails once more; few may need it"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Second runs, where they are asked for: who looks for a bug wants to see the first failure."""
    if config.getoption("second_runs"):
        config.pluginmanager.register(SecondRuns(), "second-runs")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, but for what a directory has arranged itself."""
    items.sort(key=lambda item: _turn(item.nodeid))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Two tables: the parity cases, if any was run, and after `make test` what each directory took."""
    _write_parity(terminalreporter)
    if config.getoption("budgets"):
        _write_budgets(terminalreporter)


def _write_budgets(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [
        report
        for outcome in terminalreporter.stats.values()
        for report in outcome
        if isinstance(report, pytest.TestReport)
    ]
    terminalreporter.section("what the tests took, of all processes together, and may take on two idle cores")
    for line in budget_lines(seconds_by_directory(reports), read_budgets()):
        terminalreporter.write_line(line, yellow=line.startswith("warning"))


def _write_parity(terminalreporter: pytest.TerminalReporter) -> None:
    """Each report carries its row, in whichever process it was made."""
    rows = sorted(
        (*value, result)
        for outcome, result in (("passed", "same"), ("failed", "DIFFERS"), ("skipped", "skipped"))
        for report in terminalreporter.stats.get(outcome, ())
        for name, value in getattr(report, "user_properties", ())
        if name == "parity"
    )
    if rows:
        terminalreporter.section("parity of the real and the simulated world")
        for family, name, shows, result in rows:
            terminalreporter.write_line(f"{family:8}{name:44}{result:9}{shows}")


@pytest.fixture(autouse=True)
def _own_log_level() -> Iterator[None]:
    """A command silences the brokers of its process; run inside of a test, it would silence the tests after it too."""
    logger = logging.getLogger("rmq_actors")
    level = logger.level
    yield
    logger.setLevel(level)
