"""Settings of every test: the Hypothesis profiles.

`HYPOTHESIS_PROFILE` chooses one: `dev` (the default) searches anew in each run, `ci` is the same in each run, `long`
looks longer. None has a deadline: a busy machine is no bug.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("dev", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile(
    "long", deadline=None, max_examples=2000, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
