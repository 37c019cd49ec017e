"""What a process takes for itself to have a large store open."""

from __future__ import annotations

import sys

import pytest

from tests.bench.store_memory import GOAL_MB, open_log, private_mb
from tests.bench.store_runs import OURS_COMMAND, StoreProgram


@pytest.mark.skipif(sys.platform != "linux", reason="private memory is read from /proc")
def test_a_store_of_20_gib_opens_within_200_mb_of_private_memory() -> None:
    assert private_mb(open_log(StoreProgram("store", OURS_COMMAND))) < GOAL_MB
