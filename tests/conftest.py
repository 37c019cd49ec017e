"""Settings of every test: the Hypothesis profiles, and the log level that each begins with.

`HYPOTHESIS_PROFILE` chooses one: `dev` (the default) searches anew in each run, `ci` is the same in each run, `long`
looks longer. None has a deadline: a busy machine is no bug.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("dev", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile(
    "long", deadline=None, max_examples=2000, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture(autouse=True)
def _own_log_level() -> Iterator[None]:
    """A command silences the brokers of its process; run inside of a test, it would silence the tests after it too."""
    logger = logging.getLogger("rmq_actors")
    level = logger.level
    yield
    logger.setLevel(level)
