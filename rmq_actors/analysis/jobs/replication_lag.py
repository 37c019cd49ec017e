"""How far each slave's log was behind the master's, over time.

A log's end is what its node last said of it: `store.open` (recovery ended, the log ends here) or `log.append` (so many
bytes were added here). It is the last word that counts, not the highest: a node that was killed may come back with a
shorter log. Between two words, and while the node is down, the end stays as it was: its files do.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # PySpark's own name for it

from rmq_actors.analysis.jobs.event_time import NS_PER_MS, event_time_ns, exemplar

#: A run is cut into at most so many buckets, of a round length: 1, 2 or 5 times a power of ten, at least 1 ms.
BUCKETS_MAX = 200

_MASTER_KINDS = ("put.begin", "ha.connection.open")
# A slave that never reached its master has no ha.client.connect: it is the one that lags most.
_SLAVE_KINDS = ("ha.client.connect", "ha.client.close", "ha.client.report")

_PAIR = ("campaign", "scenario", "run_id", "master", "slave", "start_ns", "bucket_ns", "last_bucket")


def replication_lag(events: DataFrame, *, bucket_ms: int | None = None) -> DataFrame:
    """One row for each run, slave and time bucket.

    campaign, scenario, run_id, master, slave, bucket (from 0), begin_ms (since the run's first event), bucket_ms,
    lag_bytes_max (within the bucket, what it began with included) and lag_bytes_last (when it ended); negative where
    the slave was ahead. Exemplar: the event at which the largest lag of the bucket was reached. Rows begin with the
    bucket in which both ends are known and go on to the end of the run; without `bucket_ms` see `BUCKETS_MAX`.
    """
    timed = events.withColumn("time_ns", event_time_ns())
    changes = _lags(timed, _pairs(timed, bucket_ms))
    within = (
        changes.groupBy(*_PAIR, "bucket")
        .agg(
            F.max(F.struct("lag", "seq")).alias("most"),
            F.max(F.struct("time_ns", "seq", "lag")).alias("final"),
        )
        .withColumn("last", F.struct("final.lag", "final.seq"))
    )
    in_order = Window.partitionBy("run_id", "slave").orderBy("bucket")
    # A bucket in which nothing moved is as the one before it ended.
    until = F.coalesce(F.lead("bucket").over(in_order) - 1, F.col("last_bucket"))
    filled = (
        within.withColumn("most", F.greatest("most", F.lag("last").over(in_order)))
        .withColumn("moved_in", F.col("bucket"))
        .withColumn("until", until)
        .withColumn("bucket", F.explode(F.sequence("moved_in", "until")))
        .withColumn("most", F.when(F.col("bucket") == F.col("moved_in"), F.col("most")).otherwise(F.col("last")))
    )
    return filled.select(
        "campaign",
        "scenario",
        "run_id",
        "master",
        "slave",
        "bucket",
        (F.col("bucket") * F.col("bucket_ns") / F.lit(float(NS_PER_MS))).alias("begin_ms"),
        (F.col("bucket_ns") / F.lit(float(NS_PER_MS))).alias("bucket_ms"),
        F.col("most.lag").alias("lag_bytes_max"),
        F.col("last.lag").alias("lag_bytes_last"),
        F.array(exemplar(F.col("run_id"), F.col("most.seq"))).alias("exemplars"),
    )


def _pairs(timed: DataFrame, bucket_ms: int | None) -> DataFrame:
    """Which slave follows which master, and when: `_PAIR`. Of several masters the one with the most puts counts."""
    told = F.coalesce("msg_id_last", "msg_id") - F.col("msg_id") + 1
    nodes = timed.groupBy("campaign", "scenario", "run_id", "node").agg(
        F.max(F.col("kind").isin(*_MASTER_KINDS)).alias("serves"),
        F.max(F.col("kind").isin(*_SLAVE_KINDS)).alias("follows"),
        F.sum(F.when(F.col("kind") == "put.begin", told)).alias("puts"),
        F.min("time_ns").alias("start_ns"),
        F.max("time_ns").alias("end_ns"),
    )
    master = F.when(F.col("serves") & ~F.col("follows"), F.struct("puts", "node"))
    runs = nodes.groupBy("campaign", "scenario", "run_id").agg(
        F.max(master)["node"].alias("master"),
        F.collect_list(F.when(F.col("follows"), F.col("node"))).alias("slaves"),
        F.min("start_ns").alias("start_ns"),
        (F.max("end_ns") - F.min("start_ns")).alias("length_ns"),
    )
    shortest = F.col("length_ns") / BUCKETS_MAX
    bucket_ns = _round_up(shortest) if bucket_ms is None else F.lit(bucket_ms * NS_PER_MS)
    return (
        runs.where(F.col("master").isNotNull())
        .withColumn("slave", F.explode("slaves"))
        .withColumn("bucket_ns", bucket_ns.cast("long"))
        .withColumn("last_bucket", F.floor(F.col("length_ns") / F.col("bucket_ns")))
        .select(*_PAIR)
    )


def _round_up(length_ns: Column) -> Column:
    """The next 1, 2 or 5 times a power of ten, at least 1 ms."""
    at_least = F.greatest(length_ns, F.lit(float(NS_PER_MS)))
    power = F.pow(F.lit(10.0), F.floor(F.log10(at_least)))
    digit = at_least / power
    return power * F.when(digit <= 1, 1).when(digit <= 2, 2).when(digit <= 5, 5).otherwise(10)


def _lags(timed: DataFrame, pairs: DataFrame) -> DataFrame:
    """The lag after each event that moved an end: `_PAIR`, bucket, time_ns, seq, lag."""
    ends = timed.where(F.col("kind").isin("store.open", "log.append")).select(
        "run_id",
        "node",
        "time_ns",
        "seq",
        # The size of a store.open is what was cut off.
        (F.col("offset") + F.when(F.col("kind") == "log.append", F.col("size")).otherwise(0)).alias("end"),
    )
    # Every move of the master's end once for each slave, every move of a slave's end for that slave.
    moves = pairs.join(ends, "run_id").where(F.col("node").isin(F.col("master"), F.col("slave")))
    so_far = (
        Window.partitionBy("run_id", "slave")
        .orderBy("time_ns", "seq")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )

    def known_end(of: str) -> Column:
        return F.last(F.when(F.col("node") == F.col(of), F.col("end")), ignorenulls=True).over(so_far)

    return (
        moves.withColumn("lag", known_end("master") - known_end("slave"))
        .where(F.col("lag").isNotNull())
        .withColumn("bucket", F.floor((F.col("time_ns") - F.col("start_ns")) / F.col("bucket_ns")))
        .select(*_PAIR, "bucket", "time_ns", "seq", "lag")
    )
