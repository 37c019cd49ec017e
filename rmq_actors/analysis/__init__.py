"""Answers from traces: Spark jobs over the files that runs leave, and a page that shows them. Never a live node.

What a question of one's own needs is here by name, and imported at its first use (`examples/analyze_traces.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_actors.lazy_names import lazy_names

if TYPE_CHECKING:
    from rmq_actors.analysis.jobs.fault_intervals import fault_intervals as fault_intervals
    from rmq_actors.analysis.jobs.put_latency import puts as puts
    from rmq_actors.analysis.jobs.replication_lag import replication_lag as replication_lag
    from rmq_actors.analysis.session import JavaMissing as JavaMissing
    from rmq_actors.analysis.session import open_session as open_session
    from rmq_actors.analysis.sources import TraceCheckFailed as TraceCheckFailed
    from rmq_actors.analysis.sources import Traces as Traces
    from rmq_actors.analysis.sources import TraceSourceError as TraceSourceError

#: The module of each public name.
_MODULES = {
    "JavaMissing": "session",
    "TraceCheckFailed": "sources",
    "TraceSourceError": "sources",
    "Traces": "sources",
    "fault_intervals": "jobs.fault_intervals",
    "open_session": "session",
    "puts": "jobs.put_latency",
    "replication_lag": "jobs.replication_lag",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
