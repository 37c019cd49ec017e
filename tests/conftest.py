"""Settings of every test: the Hypothesis profiles, and the log level that each begins with.

`HYPOTHESIS_PROFILE` chooses one: `dev` (the default) searches anew in each run, `ci` is the same in each run, `long`
looks longer. None has a deadline: a busy machine is no bug.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("dev", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile(
    "long", deadline=None, max_examples=2000, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


#: Directories whose tests share something dear: one Spark session, one RocketMQ at a time.
_ONE_PROCESS = ("interop", "spark")
#: Of interop, those that speak with name servers: they mostly wait, beside the others.
_NAME_SERVER_TESTS = (
    "test_broker_registration",
    "test_ha_kills",
    "test_name_server",
    "test_remoting_client",
    "test_slave_metadata",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several processes (`pytest -n`): the tests of a file stay together, and those of a dear directory too.

    Not with pytest 9.2: pytest-xdist 3.8 writes the group where that does not read it. Every test must stand alone.
    """
    tests = Path(__file__).parent
    for item in items:
        place = item.path.relative_to(tests)
        group = place.parts[0] if place.parts[0] in _ONE_PROCESS else str(place)
        if group == "interop" and place.name.startswith(_NAME_SERVER_TESTS):
            group = "interop-name-servers"
        item.add_marker(pytest.mark.xdist_group(group))
    # The longest first: they should not begin when all else is done.
    items.sort(key=lambda item: item.path.relative_to(tests).parts[0] not in _ONE_PROCESS)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of parity cases, if any was run, in whichever process: each report carries its row."""
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
