"""How long puts waited for their answers: per run, per scenario, and as a histogram.

A put begins when its message is in the master's log and ends with its answer. Messages are numbered again by every
incarnation of a broker, so a begin is matched with the *next* event of its number: a put that a killed broker never
answered stays unanswered, and does not take the answer of a later one.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # PySpark's own name for it

from rmq_actors.analysis.jobs.event_time import NS_PER_MS, event_time_ns, exemplar

#: Logarithmic buckets of the histogram: so many for each power of ten of milliseconds.
BUCKETS_PER_DECADE = 8
#: Answers that took less (no slave was there to wait for, in virtual time: 0) share the lowest bucket.
SHORTEST_MS = 0.001


def puts(events: DataFrame) -> DataFrame:
    """One row for each put.

    campaign, scenario, run_id, node, msg_id, seq (of its put.begin), end_seq, size in bytes, status, latency_ns. A put
    without an answer has null end_seq, status and latency_ns. Puts that were told at once have a row each; the first
    one's size is that of all, the others' is null.
    """
    later = Window.partitionBy("run_id", "node", "msg_id").orderBy("seq")
    answered = F.col("next_kind") == "put.end"
    return (
        events.where(F.col("kind").isin("put.begin", "put.end"))
        .withColumn("first_id", F.col("msg_id"))
        .withColumn("msg_id", F.explode(F.sequence("msg_id", F.coalesce("msg_id_last", "msg_id"))))
        .withColumn("size", F.when(F.col("msg_id") == F.col("first_id"), F.col("size")))
        .withColumn("time_ns", event_time_ns())
        .withColumn("next_kind", F.lead("kind").over(later))
        .withColumn("end_seq", F.when(answered, F.lead("seq").over(later)))
        .withColumn("end_status", F.when(answered, F.lead("status").over(later)))
        .withColumn("latency_ns", F.when(answered, F.lead("time_ns").over(later) - F.col("time_ns")))
        .where(F.col("kind") == "put.begin")
        .select(
            "campaign",
            "scenario",
            "run_id",
            "node",
            "msg_id",
            "seq",
            "end_seq",
            "size",
            F.col("end_status").alias("status"),
            "latency_ns",
        )
    )


def put_latency(all_puts: DataFrame) -> DataFrame:
    """Latency of the answered puts of `puts`, one row for each run and status."""
    return _latency(all_puts, ("campaign", "scenario", "run_id"))


def put_latency_by_scenario(all_puts: DataFrame) -> DataFrame:
    """The same over all runs of a scenario, one row for each status."""
    return _latency(all_puts, ("campaign", "scenario"))


def _latency(all_puts: DataFrame, group: Sequence[str]) -> DataFrame:
    slowest = F.max(F.struct("latency_ns", F.col("run_id").alias("slow_run"), F.col("seq").alias("slow_seq")))
    quantiles = F.percentile("latency_ns", [0.5, 0.9, 0.99])
    summary = (
        all_puts.where(F.col("latency_ns").isNotNull())
        .groupBy(*group, "status")
        .agg(
            F.count("*").alias("puts"),
            F.min("latency_ns").alias("min_ns"),
            quantiles.alias("quantiles_ns"),
            F.max("latency_ns").alias("max_ns"),
            slowest.alias("slowest"),
        )
    )
    return summary.select(
        *group,
        "status",
        "puts",
        _ms(F.col("min_ns")).alias("min_ms"),
        _ms(F.col("quantiles_ns")[0]).alias("p50_ms"),
        _ms(F.col("quantiles_ns")[1]).alias("p90_ms"),
        _ms(F.col("quantiles_ns")[2]).alias("p99_ms"),
        _ms(F.col("max_ns")).alias("max_ms"),
        F.array(exemplar(F.col("slowest.slow_run"), F.col("slowest.slow_seq"))).alias("exemplars"),
    )


def put_latency_histogram(all_puts: DataFrame) -> DataFrame:
    """How many answers took how long, by scenario and status.

    Bucket b holds lower_ms <= latency < upper_ms with lower_ms = 10 ** (b / BUCKETS_PER_DECADE); the lowest one begins
    at 0. Empty buckets have no row.
    """
    latency_ms = F.greatest(_ms(F.col("latency_ns")), F.lit(SHORTEST_MS))
    bucket = F.floor(F.log10(latency_ms) * BUCKETS_PER_DECADE).cast("int")
    ten = F.lit(10.0)
    lowest = F.floor(F.log10(F.lit(SHORTEST_MS)) * BUCKETS_PER_DECADE).cast("int")
    return (
        all_puts.where(F.col("latency_ns").isNotNull())
        .withColumn("bucket", bucket)
        .groupBy("campaign", "scenario", "status", "bucket")
        .agg(
            F.count("*").alias("puts"),
            F.min(F.struct("run_id", "seq")).alias("first"),
        )
        .select(
            "campaign",
            "scenario",
            "status",
            "bucket",
            F.when(F.col("bucket") == lowest, 0.0)
            .otherwise(F.pow(ten, F.col("bucket") / BUCKETS_PER_DECADE))
            .alias("lower_ms"),
            F.pow(ten, (F.col("bucket") + 1) / BUCKETS_PER_DECADE).alias("upper_ms"),
            "puts",
            F.array(exemplar(F.col("first.run_id"), F.col("first.seq"))).alias("exemplars"),
        )
    )


def _ms(nanoseconds: Column) -> Column:
    return nanoseconds / F.lit(float(NS_PER_MS))
