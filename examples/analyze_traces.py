"""Which faults do puts wait for? A question of one's own to the traces of chaos runs, asked in Spark SQL.

Run it: pip install 'rmq-actors[spark]', then python examples/analyze_traces.py (Java 17 or later is needed)

Twenty simulated runs leave their events as Parquet files. The analysis package checks these and reads them as the table
of docs/trace-schema.md; two of its jobs make puts and faults of the events, and the rest is SQL.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from rmq_actors.analysis import Traces, fault_intervals, open_session, puts
from rmq_actors.testing import REPLICATION, random_case, run_case
from rmq_actors.tracing.spool import TraceWriter

RUNS = 20
#: A put that began before a fault was over, and was answered after the fault had begun, may have waited for it.
QUESTION = """
    WITH starts AS (SELECT run_id, min(sim_time_ns) AS start_ns FROM events GROUP BY run_id),
    waits AS (
        SELECT run_id, (e.sim_time_ns - start_ns) / 1e6 AS begin_ms, p.latency_ns / 1e6 AS wait_ms
        FROM puts p JOIN events e USING (run_id, seq) JOIN starts USING (run_id)
        WHERE p.status = 'PUT_OK'
    )
    SELECT
        coalesce(fault_kind, 'no fault') AS fault,
        count(*) AS puts,
        round(percentile(wait_ms, 0.5), 1) AS median_ms,
        round(max(wait_ms), 1) AS slowest_ms
    FROM waits LEFT JOIN faults ON waits.run_id = faults.run_id
        AND faults.begin_ms <= waits.begin_ms + wait_ms
        AND coalesce(faults.end_ms, double('infinity')) >= waits.begin_ms
    GROUP BY fault
    ORDER BY fault = 'no fault', median_ms DESC, fault
"""


def make_traces(directory: Path) -> None:
    """Run some seeds, and write what happened."""
    logging.getLogger("rmq_actors").setLevel(logging.CRITICAL)  # what brokers log of faults is in the traces
    with TraceWriter(directory, "chaos", REPLICATION.name) as writer:
        for seed in range(RUNS):
            result = run_case(random_case(seed, scenario=REPLICATION))
            writer.write_run(result.run, result.events, outcome=result.outcome)


def main() -> None:
    """Ask the question, and show the answer."""
    with tempfile.TemporaryDirectory() as name:
        make_traces(Path(name))
        traces = Traces.find(name)
        print(f"{traces.runs} runs, {traces.events} events")
        with open_session() as session:
            events = traces.read_events(session)
            events.createOrReplaceTempView("events")
            puts(events).createOrReplaceTempView("puts")
            fault_intervals(events).createOrReplaceTempView("faults")
            for row in session.sql(QUESTION).collect():
                waits = f"median {row.median_ms:7.1f} ms, slowest {row.slowest_ms:7.1f} ms"
                print(f"{row.fault:>16}: {row.puts:4} puts, {waits}")


if __name__ == "__main__":
    main()
