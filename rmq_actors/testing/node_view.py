"""What a trace tells of one node, and what the last step of its log was: the records that a `ClusterView` keeps."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from rmq_actors.testing.lineage import Lineage


@attrs.define(eq=False, repr=False)
class Appended:
    """What a node has appended last. `ended_at`: where its log ended before."""

    offset: int
    end: int
    ended_at: int
    #: Whether it goes on where the log ended, or begins a log where it may begin.
    continues: bool = True
    data: bytes = b""
    #: Where the log diverges from the one that the bytes belong to, if they come after that.
    parts_at: int | None = None


@attrs.define(eq=False, repr=False)
class Cut:
    """Bytes that a truncation has taken from a log: from `offset` to `end` of `lineage`."""

    node: str
    offset: int
    end: int
    lineage: Lineage
    #: The master then, and where the last record ends that both logs have.
    master: str
    common: int
    #: Which of the bytes are not what was written, as bits have flipped; and whether any byte of the log was, so that
    #: the comparison may have met a record that differs anywhere.
    rotten: Collection[int] = ()
    is_damaged: bool = False
    #: Where the log began: if that is where it was cut, nothing is left of it.
    begin: int = 0
    #: Whether the truncation has ended early, by a crash or a disk error: what is left may diverge still.
    is_unfinished: bool = False
    #: Whether an operator has removed what was kept, with all else that the node had.
    is_removed: bool = False


@attrs.define(eq=False, repr=False)
class Opened:
    """How a node's log was when it was opened last."""

    end: int
    #: Where it ended, or how far it was durable if the power was lost; and where it may end at the earliest.
    before: int
    whole: int
    #: The log that it was the beginning of.
    lineage: Lineage
    #: The truncation that the node died in.
    cut: Cut | None
    after_power_loss: bool
    #: A slave that has more of what this master has written than the master itself, and up to where.
    ahead: tuple[str, int] | None = None


@attrs.define(eq=False, repr=False)
class NodeView:
    """One node of the cluster: its log, its connections, the puts that wait at it, its role. Offsets are bytes.

    More than 20 fields because each is something that an invariant asks of a node.
    """

    name: str
    #: The log that its own is the beginning of.
    lineage: Lineage
    #: Whether it has flushDiskType SYNC_FLUSH.
    syncs_first: bool = False
    #: Where its log begins, or did before a power loss undid a removal; and where it ends.
    begin: int = 0
    end: int = 0
    #: Where it began when there was nothing of it yet: what is before that it never had.
    began_at: int = 0
    #: How much it ever had of the master's log, and of any log.
    highest: int = 0
    ever: int = 0
    #: An operator has removed all that it had: its reports of that may still arrive.
    was_set_up_anew: bool = False
    synced: int = 0
    #: What no power loss can take: the highest that it has ever synced, of the log that it has.
    durable: int = 0
    #: Where bits have flipped in its log.
    rotten: set[int] = attrs.field(factory=set)
    #: It has lost its power, and not yet opened what is left of its log.
    has_lost_power: bool = False
    #: Where its log ended when its power was back the last time; -1: it has always had power.
    power_back_at: int = -1
    #: It does not follow, as its log diverges from its master's.
    has_halted: bool = False
    #: It has halted: from then on its log may be cut, also by a life that dies at it.
    may_cut: bool = False
    #: Its master has not answered what it has; the connection goes on only if it follows unasked.
    could_not_ask: bool = False
    #: The log of the master that it has connected to last, in its present life.
    source: Lineage | None = None
    #: The node that it has connected to last.
    followed: str = ""
    #: It has been the master, and has not become a slave since: what it appends it writes itself.
    leads: bool = False
    #: The nodes at the other end of its slaves' connections, by their numbers; "" for a stranger.
    peers: dict[int, str] = attrs.field(factory=dict)
    #: Those of them that have reported nothing since the same node opened another one.
    outlived: set[int] = attrs.field(factory=set)
    #: When each put that waits began, by its number, without the time of pauses before; in ns.
    unanswered: dict[int, int] = attrs.field(factory=dict)
    #: How long the put waited that was answered last, without the time of pauses.
    waited_s: float = 0.0
    #: When its present pause began, and how long it has been paused in all.
    paused_at_ns: int | None = None
    paused_ns: int = 0
    #: As it says itself: "" before its first change of role, 0 before its first term.
    role: str = ""
    term: int = 0
    #: The greatest term that it was promoted to.
    term_led: int = 0
    #: The topics and groups that it had when its tables were looked at last, by table, and those that it had lost by
    #: then since it was the time before.
    tables: dict[str, frozenset[str]] = attrs.field(factory=dict)
    lost_entries: dict[str, frozenset[str]] = attrs.field(factory=dict)
    #: What its log went through last.
    appended: Appended | None = None
    opened: Opened | None = None
    cut: Cut | None = None

    def died(self, *, in_order: bool) -> None:
        """Its process has ended, and what waited in it with it."""
        self.unanswered.clear()
        self.peers.clear()
        self.outlived.clear()
        self.paused_at_ns = None
        self.could_not_ask = False
        if not in_order:
            self.has_halted = False

    def set_up_anew(self, lineage: Lineage) -> None:
        """All that it had is removed; it begins as a new slave of the master that has written `lineage`."""
        self.begin = self.began_at = self.end = self.synced = self.durable = 0
        self.lineage = lineage
        self.was_set_up_anew = True
        self.rotten.clear()
        self.tables.clear()

    def whole_before_rot(self, end: int, whole: int) -> int:
        """Where its log may end because the next record is damaged: `end`, if it is; else `whole`."""
        for offset in self.rotten:
            begin = self.lineage.whole_records(offset)
            if end == begin or (begin <= self.begin and not end):
                return end
        return whole
