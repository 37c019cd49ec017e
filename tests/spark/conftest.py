"""One Spark session for all tests here; they skip, saying what is missing, where there is no Java 17."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from rmq_actors.analysis.analyze import Analysis, analyze_in
from rmq_actors.analysis.session import JavaMissing, open_session
from rmq_actors.analysis.sources import Traces
from rmq_actors.tracing.event import Event
from rmq_actors.tracing.spool import TraceWriter
from tests.spark.trace_maker import random_plan, real_plan, unlucky_plan, write_plans
from tests.worlds.trace_story import run_of

HERE = Path(__file__).parent
Row = dict[str, Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            # The first of them waits for Java to start.
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    try:
        with open_session("local[2]", driver_memory="1g") as session:
            session.conf.set("spark.sql.shuffle.partitions", "2")
            yield session
    except JavaMissing as missing:
        pytest.skip(str(missing))


@attrs.frozen
class Campaign:
    """A trace with its analysis: simulated runs, one of which fails, and a real one."""

    traces: Path
    out: Path
    events: Mapping[int, Sequence[Event]]
    analysis: Analysis

    def table(self, name: str) -> list[Row]:
        """The rows of a result, read without Spark."""
        return pq.read_table(self.analysis.tables[name]).to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]


def make_campaign(spark: SparkSession, directory: Path, sim_runs: int) -> Campaign:
    traces, out = directory / "traces", directory / "out"
    plans = [random_plan("nightly", seed) for seed in range(sim_runs - 1)]
    events = write_plans(traces, [*plans, unlucky_plan("nightly", sim_runs - 1), real_plan("nightly")])
    return Campaign(traces, out, events, analyze_in(spark, Traces.find(str(traces)), out))


@pytest.fixture(scope="session")
def campaign(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    return make_campaign(spark, tmp_path_factory.mktemp("campaign"), sim_runs=12)


#: Events of runs by seed, as they go into `frame_of`.
EventsBySeed = Mapping[int, Sequence[Event]]


@pytest.fixture
def frame_of(spark: SparkSession, tmp_path: Path) -> Callable[[EventsBySeed], DataFrame]:
    """Writes hand-made events as traces and reads them back as Spark sees them."""

    def make(runs: EventsBySeed) -> DataFrame:
        with TraceWriter(tmp_path, "tests", "handmade") as writer:
            for seed, events in runs.items():
                writer.write_run(run_of(seed), events, outcome="passed")
        return Traces.find(str(tmp_path)).read_events(spark)

    return make


def rows(frame: DataFrame, *order: str) -> list[Row]:
    return [row.asDict(recursive=True) for row in frame.orderBy(*order).collect()]
