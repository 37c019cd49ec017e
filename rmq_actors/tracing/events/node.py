"""Nodes and their clocks."""

from __future__ import annotations

from rmq_actors.tracing.event import Event


class NodeBoot(Event, kind="node.boot", emitter="sim_net.node, embedding", actor="sim_net"):
    """A node starts."""


class NodeKill(Event, kind="node.kill", emitter="sim_net.node", actor="sim_net"):
    """A node dies; its page cache survives."""


class NodeLateError(Event, kind="node.late_error", emitter="sim_net.node", actor="sim_net"):
    """Clean-up of a dead incarnation raised; status names the exception."""

    status: str


class NodePowerLoss(Event, kind="node.power_loss", emitter="sim_net.node", actor="sim_net"):
    """A node loses its power, and what its disk had not made durable."""


class NodeStop(Event, kind="node.stop", emitter="sim_net.node", actor="sim_net"):
    """A node has stopped in order."""


class NodePause(Event, kind="node.pause", emitter="sim_net.node", actor="sim_net"):
    """A process takes no more steps, as in a long garbage collection."""


class NodeResume(Event, kind="node.resume", emitter="sim_net.node", actor="sim_net"):
    """A paused process goes on."""


class ClockJump(Event, kind="clock.jump", emitter="sim_net.faults.node_faults", actor="sim_net"):
    """A wall clock is set forward or back."""

    by_ms: float


class ClockDrift(Event, kind="clock.drift", emitter="sim_net.faults.node_faults", actor="sim_net"):
    """A wall clock begins to drift."""

    rate_ppm: float
