"""Which node a task belongs to.

A context variable is set in the root task of each incarnation of a node; Trio copies the context into every task that
is spawned from there, so a socket or a disk operation knows on whose behalf it is made. Harness tasks have no node.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim_net.node import Incarnation

current_incarnation: ContextVar[Incarnation | None] = ContextVar("sim_net.current_incarnation", default=None)
