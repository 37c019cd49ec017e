"""A deterministic world for Trio programs: simulated network, disk and clock, and faults as values.

An unmodified Trio program runs on nodes of a `World`, from one integer. See docs/sim-net.md.
"""

from sim_net.disk import DiskConfig, SimDisk, SimFile
from sim_net.faults import (
    Delay,
    Fault,
    Kill,
    Partition,
    Reset,
    ShortIO,
    Stall,
    fault_from_dict,
    fault_kind,
    fault_to_dict,
)
from sim_net.guard import ForbiddenCall
from sim_net.journal import Journal, JournalEntry
from sim_net.kernel import Deadlock, Livelock, SimulationError, StepsExceeded, VirtualTimeExceeded
from sim_net.network import LinkConfig
from sim_net.node import Node, NodeFailed
from sim_net.schedule import Schedule
from sim_net.world import World, WorldConfig

__all__ = [
    "Deadlock",
    "Delay",
    "DiskConfig",
    "Fault",
    "ForbiddenCall",
    "Journal",
    "JournalEntry",
    "Kill",
    "LinkConfig",
    "Livelock",
    "Node",
    "NodeFailed",
    "Partition",
    "Reset",
    "Schedule",
    "ShortIO",
    "SimDisk",
    "SimFile",
    "SimulationError",
    "Stall",
    "StepsExceeded",
    "VirtualTimeExceeded",
    "World",
    "WorldConfig",
    "fault_from_dict",
    "fault_kind",
    "fault_to_dict",
]
