"""This project's kinds of events, one module per area. Importing one of these modules registers all kinds.

A new kind goes into the module of its area: see CONTRIBUTING.md. `KINDS` also has the kinds of other programs that this
process has loaded; `OWN_KINDS` are the project's.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rmq_actors.tracing.event import KINDS, Event
from rmq_actors.tracing.events import (
    actor,
    broker,
    consumer,
    ha,
    namesrv,
    network,
    node,
    remoting,
    run,
    storage,
    store,
    transactions,
)

_AREAS = (run, node, actor, network, storage, store, ha, broker, transactions, remoting, namesrv, consumer)
#: The kinds of these modules by name.
OWN_KINDS: Mapping[str, type[Event]] = MappingProxyType(
    {name: kind for area in _AREAS for name, kind in KINDS.items() if kind.__module__ == area.__name__}
)

__all__ = ["KINDS", "OWN_KINDS"]
