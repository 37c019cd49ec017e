"""A deterministic world for Trio programs: simulated network, disk and clock, and faults as values.

A Trio program runs on nodes of a `World`, from one integer; unmodified, if it asks Trio alone for time, sockets and
randomness. See docs/sim-net.md.
"""

from sim_net.disk.disk import DiskConfig, SimDisk, SimFile
from sim_net.faults.disk_faults import BitRot, DiskError, DiskFull, DiskSlow, DiskStuck, MisdirectedWrite
from sim_net.faults.fault import Fault, On
from sim_net.faults.faults import fault_from_dict, fault_kind, fault_to_dict, register_fault
from sim_net.faults.network_faults import Bandwidth, Delay, Duplicate, Hold, Loss, Partition, Reorder, Reset, Stall
from sim_net.faults.node_faults import ClockDrift, ClockJump, Kill, Pause, PowerLoss, ShortIO
from sim_net.faults.schedule import Schedule
from sim_net.kernel.determinism import many_runs
from sim_net.kernel.guard import ForbiddenCall
from sim_net.kernel.journal import Journal, JournalEntry
from sim_net.kernel.kernel import Deadlock, Livelock, SimulationError, StepsExceeded, VirtualTimeExceeded
from sim_net.kernel.usage import Usage
from sim_net.net.link import LinkConfig
from sim_net.node import Node, NodeExited, NodeFailed
from sim_net.pytest_run import sim_run
from sim_net.search.cancel_sweep import CancelInjection, cancel_at_every_checkpoint
from sim_net.search.compare import Difference, NotDeterministic, check_deterministic
from sim_net.world import World, WorldConfig, current_world, run

__all__ = [
    "Bandwidth",
    "BitRot",
    "CancelInjection",
    "ClockDrift",
    "ClockJump",
    "Deadlock",
    "Delay",
    "Difference",
    "DiskConfig",
    "DiskError",
    "DiskFull",
    "DiskSlow",
    "DiskStuck",
    "Duplicate",
    "Fault",
    "ForbiddenCall",
    "Hold",
    "Journal",
    "JournalEntry",
    "Kill",
    "LinkConfig",
    "Livelock",
    "Loss",
    "MisdirectedWrite",
    "Node",
    "NodeExited",
    "NodeFailed",
    "NotDeterministic",
    "On",
    "Partition",
    "Pause",
    "PowerLoss",
    "Reorder",
    "Reset",
    "Schedule",
    "ShortIO",
    "SimDisk",
    "SimFile",
    "SimulationError",
    "Stall",
    "StepsExceeded",
    "Usage",
    "VirtualTimeExceeded",
    "World",
    "WorldConfig",
    "cancel_at_every_checkpoint",
    "check_deterministic",
    "current_world",
    "fault_from_dict",
    "fault_kind",
    "fault_to_dict",
    "many_runs",
    "register_fault",
    "run",
    "sim_run",
]
