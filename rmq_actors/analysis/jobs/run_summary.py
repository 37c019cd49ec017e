"""One row per run: how it ended, what was done to it, and what it did."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # PySpark's own name for it

from rmq_actors.analysis.jobs.event_time import NS_PER_S

#: Events that a reader of a summary wants to look at first, if there are any.
_NOTABLE = ("invariant.broken", "actor.crash", "log.flush_failed", "fault.begin", "run.end")
_TIMES = {"sim_time_ns": "virtual_s", "wall_time_ns": "wall_s"}


def run_summary(events: DataFrame, runs: DataFrame, all_puts: DataFrame) -> DataFrame:
    """The runs table, widened by what the events say. `all_puts` is `put_latency.puts(events)`.

    Added: events, virtual_s (null in a real run), wall_s, faults_fired (fault.begin by kind), faults_observed
    (fault.observed by status), invariants_broken (names, sorted), puts_begun, puts_unanswered, puts_by_status,
    acked_puts and acked_bytes (those with PUT_OK), exemplars (the first event of each notable kind). A run without
    events is there with zeros.
    """
    counted = runs.join(_facts(events), "run_id", "left").join(_put_facts(all_puts), "run_id", "left")
    no_counts = F.create_map().cast("map<string,bigint>")
    missing = {
        **dict.fromkeys(("events", "puts_begun", "puts_unanswered", "acked_puts", "acked_bytes"), F.lit(0)),
        "faults_fired": no_counts,
        "faults_observed": no_counts,
        "puts_by_status": no_counts,
        "invariants_broken": F.array().cast("array<string>"),
        "exemplars": F.array().cast("array<struct<kind:string,run_id:bigint,seq:bigint>>"),
    }
    filled = counted.withColumns({name: F.coalesce(F.col(name), nothing) for name, nothing in missing.items()})
    return filled.select(
        "campaign",
        "scenario",
        "run_id",
        "seed",
        "source",
        "outcome",
        "git_revision",
        "config",
        F.col("fault_kinds").alias("faults_scheduled"),
        "faults_fired",
        "faults_observed",
        "invariants_broken",
        "event_count",
        "events",
        "virtual_s",
        "wall_s",
        "puts_begun",
        "puts_unanswered",
        "puts_by_status",
        "acked_puts",
        "acked_bytes",
        "exemplars",
    )


def _facts(events: DataFrame) -> DataFrame:
    """What the events of each run say, in two steps: by kind and name, then by run."""
    name = F.when(F.col("kind") == "fault.begin", F.col("attrs")["fault.kind"]).when(
        F.col("kind").isin("fault.observed", "invariant.broken"), F.col("status")
    )
    by_name = events.groupBy("run_id", "kind", name.alias("name")).agg(
        F.count("*").alias("times"),
        F.min("seq").alias("seq"),
        *(end(column).alias(f"{end.__name__}_{column}") for column in _TIMES for end in (F.min, F.max)),
    )
    return by_name.groupBy("run_id").agg(
        F.sum("times").alias("events"),
        *(_span_s(column).alias(result) for column, result in _TIMES.items()),
        _counts_by_name(F.col("kind") == "fault.begin").alias("faults_fired"),
        _counts_by_name(F.col("kind") == "fault.observed").alias("faults_observed"),
        F.array_sort(F.collect_set(F.when(F.col("kind") == "invariant.broken", F.col("name")))).alias(
            "invariants_broken"
        ),
        F.array_compact(F.array(*(_first(kind) for kind in _NOTABLE))).alias("exemplars"),
    )


def _first(kind: str) -> Column:
    """The first event of a kind in the run, null if there is none."""
    seq = F.min(F.when(F.col("kind") == kind, F.col("seq")))
    entry = F.struct(F.lit(kind).alias("kind"), F.col("run_id").alias("run_id"), seq.alias("seq"))
    return F.when(seq.isNotNull(), entry)


def _span_s(column: str) -> Column:
    return (F.max(f"max_{column}") - F.min(f"min_{column}")) / F.lit(float(NS_PER_S))


def _counts_by_name(wanted: Column) -> Column:
    """A map from name to count, in the order of the names; `wanted` says of which rows."""
    entry = F.when(wanted, F.struct("name", "times"))
    return F.map_from_entries(F.array_sort(F.collect_list(entry)))


def _put_facts(all_puts: DataFrame) -> DataFrame:
    """How the puts of each run ended, in two steps: by status, then by run."""
    by_status = all_puts.groupBy("run_id", F.col("status").alias("name")).agg(
        F.count("*").alias("times"), F.sum("size").alias("bytes")
    )
    acked = F.col("name") == "PUT_OK"

    def total(column: str, wanted: Column) -> Column:
        return F.coalesce(F.sum(F.when(wanted, F.col(column))), F.lit(0))

    return by_status.groupBy("run_id").agg(
        F.sum("times").alias("puts_begun"),
        total("times", F.col("name").isNull()).alias("puts_unanswered"),
        total("times", acked).alias("acked_puts"),
        total("bytes", acked).alias("acked_bytes"),
        _counts_by_name(F.col("name").isNotNull()).alias("puts_by_status"),
    )
