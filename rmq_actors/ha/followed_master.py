"""The master that a slave follows: where it serves its log, how that goes, and the channels that tell of it."""

from __future__ import annotations

import attrs
import trio

from rmq_actors.actors.services.channels import Broadcast, BroadcastChannel, LatestChannel, LatestReceiver
from rmq_actors.protocols.following import Halt
from rmq_actors.protocols.ha_slave import HaSlave

HA_MASTERS = LatestChannel[str].declare(
    "ha.masters",
    carries="where the master serves its log: the slave follows that one from now on",
    sender="BrokerRegistrationService",
    receiver="HAClient",
)


class NotHalted(ValueError):
    """There is no halt that could end."""


HA_HALTS = BroadcastChannel[Halt].declare(
    "ha.halts",
    carries="why the slave has stopped to follow, and where its log may be cut",
    sender="HAClient",
    receiver="LogTruncationService",
)


@attrs.define(eq=False, repr=False)
class FollowedMaster:
    """Where a slave's master serves its log ("host:port"): as configured, or as `told` last. Outlives each HAClient."""

    address: str | None
    told: LatestReceiver[str] | None = None
    #: Where each halt is told.
    halts: Broadcast[Halt] = attrs.field(factory=HA_HALTS.open)
    #: Why it is not followed now, until it changes, or is asked again and answers in another way.
    halted: Halt | None = attrs.field(default=None, init=False)
    #: Whether its log comes in now: it has been compared, and the connection stands.
    is_followed: bool = attrs.field(default=False, init=False)
    #: How often it was followed, and how many attempts ended, by reason: what `ha.client.close` says.
    connections: int = attrs.field(default=0, init=False)
    ends: dict[str, int] = attrs.field(factory=dict, init=False)
    #: Why the last attempt, or the last connection, ended, in words; and until when it was followed.
    last_end: str = attrs.field(default="", init=False)
    followed_until_s: float | None = attrs.field(default=None, init=False)
    #: The machine of the last connection, when that began, and with which offset.
    slave: HaSlave | None = attrs.field(default=None, init=False)
    followed_since_s: float = attrs.field(default=0.0, init=False)
    followed_from: int = attrs.field(default=0, init=False)
    _again: trio.Event = attrs.field(factory=trio.Event, init=False)

    def follow_again(self) -> None:
        """By command: ask the master again, and follow it if that ends well. Does nothing while it is followed."""
        self._again.set()

    def judged(self, halt: Halt | None) -> None:
        """An attempt to follow it is over: it is halted because of `halt`, or, with None, may be tried again."""
        self.halted = halt

    async def wait_halted(self, halt: Halt, ask_again_s: float) -> None:
        """Return when it is to be asked again: by command, or after so long. It is halted until somebody says else."""
        self.halted, self._again = halt, trio.Event()
        self.halts.put(halt)
        with trio.move_on_after(ask_again_s):
            await self._again.wait()

    def begun(self, slave: HaSlave) -> None:
        """It is followed from now on."""
        self.connections += 1
        self.halted = None
        self.is_followed = True
        self.slave, self.followed_since_s, self.followed_from = slave, slave.last_read, slave.max_offset

    def left(self, now_s: float) -> None:
        """It is followed no more."""
        if self.is_followed:
            self.is_followed, self.followed_until_s = False, now_s

    def ended(self, reason: str, detail: str) -> None:
        """An attempt to connect, or a connection, is over."""
        self.ends[reason] = self.ends.get(reason, 0) + 1
        self.last_end = f"{reason}: {detail}"

    def following(self, now_s: float) -> str:
        """Whether it is followed, for operators; else for how long it has not been, and why not."""
        if self.is_followed:
            return "yes"
        since = "never yet" if self.followed_until_s is None else f"not for {now_s - self.followed_until_s:.0f} s"
        if self.halted is not None:
            return f"no ({since}): it has halted"
        if self.address is None:
            return f"no ({since}): no master is known"
        return f"no ({since}): {self.last_end or 'no attempt has ended'}"

    async def changed(self) -> None:
        """Wait until it is told another address."""
        if self.told is None:
            await trio.sleep_forever()
        else:
            self.address = await self.told.receive()
