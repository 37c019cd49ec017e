"""When each fault of a run was in effect."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # PySpark's own name for it

from rmq_actors.analysis.jobs.event_time import NS_PER_MS, event_time_ns, exemplar


def fault_intervals(events: DataFrame) -> DataFrame:
    """One row for each time that a fault began.

    campaign, scenario, run_id, fault_id, fault_kind, fault_nodes (of which nodes it is; null in traces of version 1),
    begin_ms and end_ms since the run's first event. A fault that was still in effect when the run ended has a null
    end_ms.
    """
    timed = events.withColumn("time_ns", event_time_ns())
    start = timed.groupBy("run_id").agg(F.min("time_ns").alias("start_ns"))
    later = Window.partitionBy("run_id", "fault_id").orderBy("seq")
    ended = F.lead("kind").over(later) == "fault.end"

    def since_start_ms(name: str) -> Column:
        return (F.col(name) - F.col("start_ns")) / F.lit(float(NS_PER_MS))

    return (
        timed.where(F.col("kind").isin("fault.begin", "fault.end"))
        .withColumn("end_ns", F.when(ended, F.lead("time_ns").over(later)))
        .where(F.col("kind") == "fault.begin")
        .join(start, "run_id")
        .select(
            "campaign",
            "scenario",
            "run_id",
            "fault_id",
            F.col("attrs")["fault.kind"].alias("fault_kind"),
            F.split(F.col("attrs")["fault.nodes"], ",").alias("fault_nodes"),
            since_start_ms("time_ns").alias("begin_ms"),
            since_start_ms("end_ns").alias("end_ms"),
            F.array(exemplar(F.col("run_id"), F.col("seq"))).alias("exemplars"),
        )
    )
