"""The ports of one node, in one value: what a composition root hands to a broker."""

from __future__ import annotations

import attrs

from rmq_actors.ports.disk import Disk
from rmq_actors.ports.entropy import Entropy
from rmq_actors.ports.receive import Receive, receive_into
from rmq_actors.ports.try_send import TrySend, try_sendmsg
from rmq_actors.ports.wall_clock import WallClock

#: What a simulated machine has unless it is told otherwise.
DEFAULT_PHYSICAL_MEMORY_BYTES = 16 << 30


@attrs.frozen
class Environment:
    """Disk, wall clock and entropy of one node, real or simulated, how much memory its machine has, and `try_send`."""

    disk: Disk
    wall_clock: WallClock
    entropy: Entropy
    physical_memory_bytes: int = attrs.field(default=DEFAULT_PHYSICAL_MEMORY_BYTES, validator=attrs.validators.ge(1))
    try_send: TrySend = try_sendmsg
    receive: Receive = receive_into
    #: Whether what is derived from messages before they are in the log is compared with the log: where that costs
    #: nobody anything, as in simulated worlds.
    checks_rows: bool = True
    #: Where numpy has to be started first, that takes as long as dispatching thousands of records without it.
    numpy_is_loaded: bool = False
