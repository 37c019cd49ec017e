"""The ports of one node, in one value: what a composition root hands to a broker."""

from __future__ import annotations

import attrs

from rmq_actors.ports.disk import Disk
from rmq_actors.ports.entropy import Entropy
from rmq_actors.ports.wall_clock import WallClock


@attrs.frozen
class Environment:
    """Disk, wall clock and entropy of one node, real or simulated."""

    disk: Disk
    wall_clock: WallClock
    entropy: Entropy
