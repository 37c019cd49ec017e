"""When an event happened, in simulated runs and real ones alike."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # PySpark's own name for it

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


def event_time_ns() -> Column:
    """Virtual time where there is one, else the wall clock; comparable within a run only."""
    return F.coalesce(F.col("sim_time_ns"), F.col("wall_time_ns"))


def exemplar(run_id: Column, seq: Column) -> Column:
    """The (run_id, seq) of one event."""
    return F.struct(run_id.alias("run_id"), seq.alias("seq"))
