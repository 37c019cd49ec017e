"""A run as a log that ShiViz reads: hosts are nodes, and vector clocks say what came of what.

The first line is the regular expression by which ShiViz parses the log; the second, empty, would part several runs.
Each event has two lines. ShiViz asks that a host's own clock begins at 1 and grows by 1: no event of a run is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from rmq_actors.tracing.export.causes import SENDS, Causes, Row, line_of
from rmq_actors.tracing.export.facts import facts_of
from rmq_actors.tracing.export.vector_clocks import Clock, VectorClocks

#: JavaScript's, and the first line of the log.
PARSER = r"(?<seq>\d+) (?<time>\S+) (?<event>.*)\n(?<host>\S+) (?<clock>\{.*\})"
#: Where events are that happen to the run: faults, its start and end.
WORLD = "world"


def shiviz_lines(events: Iterable[Row], causes: Causes[Clock]) -> Iterator[str]:
    """The log, line by line, without line ends; `causes` has seen no event yet."""
    yield PARSER
    yield ""
    clocks = VectorClocks()
    for event in events:
        line = line_of(event)
        if event["kind"] in SENDS:
            clock = clocks.next(line)
            causes.sent(event, clock)
        else:
            clock = clocks.next(line, causes.cause(event))
        yield f"{event['seq']} {_time(event)} {_told(event)}"
        yield f"{_host(line)} {json.dumps({_host(name): count for name, count in clock.items()})}"


def _host(line: str) -> str:
    return re.sub(r"\s", "_", line) or WORLD


def _time(event: Row) -> str:
    virtual_ns = event.get("sim_time_ns")
    return f"{(event['wall_time_ns'] if virtual_ns is None else virtual_ns) / 1e9:.9f}s"


def _told(event: Row) -> str:
    facts = (f"{name}={value}" for name, value in facts_of(event).items())
    return " ".join(" ".join([event["kind"], event["actor"], *facts]).splitlines())
