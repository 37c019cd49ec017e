"""Hypothesis strategies for faults and schedules. This module alone needs Hypothesis, which the extra `testing` has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

from sim_net.faults.fault import Fault
from sim_net.faults.sampling import sample_fault
from sim_net.faults.schedule import Schedule

T = TypeVar("T")


@st.composite
def _faults(
    draw: Callable[[st.SearchStrategy[Any]], Any], nodes: Sequence[str], kinds: Sequence[str], events: Sequence[str]
) -> Fault:
    def choose(options: Sequence[T]) -> T:
        chosen: T = draw(st.sampled_from(options))
        return chosen

    return sample_fault(choose, nodes, kinds=kinds or None, events=events)


def faults(nodes: Sequence[str], *, kinds: Sequence[str] = (), events: Sequence[str] = ()) -> st.SearchStrategy[Fault]:
    """Faults about `nodes`, of `kinds` (all, if empty); some wait for one of `events`, if there are any."""
    return _faults(nodes, kinds, events)


def schedules(
    nodes: Sequence[str], *, kinds: Sequence[str] = (), events: Sequence[str] = (), faults_max: int = 7
) -> st.SearchStrategy[Schedule]:
    """Schedules of up to `faults_max` such faults."""
    return st.lists(faults(nodes, kinds=kinds, events=events), max_size=faults_max).map(Schedule)
