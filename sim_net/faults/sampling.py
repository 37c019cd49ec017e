"""Random faults and schedules, from small sets of telling values.

Small, so that faults meet each other and what they hit: two delays drawn evenly from 30 s never fall into one sync of
2 ms. The caller gives `choose`: `random.Random(seed).choice`, or Hypothesis (see `strategies`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from sim_net.disk.disk_rule import OPERATIONS
from sim_net.faults.fault import Fault, On
from sim_net.faults.faults import FAULT_TYPES
from sim_net.faults.schedule import Schedule

#: Takes one of several values, of which there is at least one.
Choose = Callable[[Sequence[Any]], Any]

#: The values of each field, by its name or by `Kind.name`; the simplest first.
SAMPLES: Final[Mapping[str, Sequence[object]]] = {
    "at_s": (0.0, 0.5, 1.0, 2.0, 3.0, 5.0),
    "duration_s": (0.5, 0.05, 2.0, 6.0, 25.0),
    "down_s": (0.5, 0.01, 3.0),
    "two_way": (True, False),
    "extra_s": (0.05, 0.005, 0.5),
    "bytes_max": (1, 7, 100),
    "bytes_per_s": (100_000, 1000, 5_000_000),
    "probability": (0.1, 0.01, 0.5),
    "by_ms": (1000, -1000, 3_600_000, -3_600_000),
    "rate_ppm": (100.0, -100.0, 50_000.0, -50_000.0),
    "error": ("EIO", "ENOSPC"),
    "operation": ("", *OPERATIONS),
    "path": ("",),
    "nth": (1, 2, 3, 5, 8),
    "every": (1, 2),
    "count": (1, 2, 100),
    "free_bytes": (0, 1, 4096, 20_000),
    "bits": (1, 8),
}

#: Added to `at_s`: a little later than a round time.
_LATER_S: Final = (0.0, 0.0003, 0.001, 0.003, 0.01, 0.1, 0.7)
_NTH: Final = (1, 2, 3, 5, 8, 13, 21)
_NODE_FIELDS: Final = ("node", "a", "b")


def sample_fault(
    choose: Choose, nodes: Sequence[str], *, kinds: Sequence[str] | None = None, events: Sequence[str] = ()
) -> Fault:
    """A fault of one of `kinds` (any, if None) about one or two of `nodes`. ValueError if no kind fits.

    A kind that is named twice is drawn twice as often. With `events`, every second fault waits for one of them.
    """
    kind = choose(_fitting(nodes, kinds))
    fault_type = FAULT_TYPES[kind]
    values: dict[str, Any] = {}
    on = None
    if events and choose((False, True)):
        on = On(choose(events), choose(nodes), choose(_NTH))
    others = list(nodes)
    for field in attrs.fields(fault_type):
        if field.name in _NODE_FIELDS:
            values[field.name] = choose(others)
            others.remove(values[field.name])
        elif field.name == "at_s":
            at_s = 0.0 if on is not None else choose(SAMPLES["at_s"])
            values["at_s"] = round(at_s + choose(_LATER_S), 4)
        elif field.name != "on":
            values[field.name] = choose(SAMPLES.get(f"{kind}.{field.name}") or SAMPLES[field.name])
    return fault_type(**values, on=on)


def sample_schedule(
    choose: Choose,
    nodes: Sequence[str],
    *,
    kinds: Sequence[str] | None = None,
    events: Sequence[str] = (),
    faults_max: int = 7,
) -> Schedule:
    """A schedule of up to `faults_max` of what `sample_fault` gives."""
    count = choose(range(faults_max + 1))
    return Schedule(sample_fault(choose, nodes, kinds=kinds, events=events) for _ in range(count))


def _fitting(nodes: Sequence[str], kinds: Sequence[str] | None) -> list[str]:
    unknown = [kind for kind in kinds or () if kind not in FAULT_TYPES]
    if unknown:
        raise ValueError(f"no fault is of kind {unknown[0]!r}; there are {', '.join(FAULT_TYPES)}")
    fitting = []
    for kind in FAULT_TYPES if kinds is None else kinds:
        named = [field.name for field in attrs.fields(FAULT_TYPES[kind]) if field.name in _NODE_FIELDS]
        if len(named) <= len(nodes):
            fitting.append(kind)
    if not fitting:
        raise ValueError(f"no kind of fault fits the nodes {list(nodes)}")
    return fitting
