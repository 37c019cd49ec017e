"""The invariants of replication, one per module, and the limits. `docs/invariants.md` describes each."""

from __future__ import annotations

from typing import Any

from rmq_actors.testing.invariants.accounts import Accounts
from rmq_actors.testing.invariants.ack import Ack
from rmq_actors.testing.invariants.acknowledged import Acknowledged
from rmq_actors.testing.invariants.answer import Answer
from rmq_actors.testing.invariants.answered import Answered
from rmq_actors.testing.invariants.at_rest import AtRest
from rmq_actors.testing.invariants.checkpointed import Checkpointed
from rmq_actors.testing.invariants.commands import Commands
from rmq_actors.testing.invariants.consumed import Consumed
from rmq_actors.testing.invariants.consumer_offsets import ConsumerOffsets
from rmq_actors.testing.invariants.convergence import Convergence
from rmq_actors.testing.invariants.damaged_master import DamagedMaster
from rmq_actors.testing.invariants.delayed import Delayed
from rmq_actors.testing.invariants.deletions import Deletions
from rmq_actors.testing.invariants.derived import Derived
from rmq_actors.testing.invariants.divergence import Divergence
from rmq_actors.testing.invariants.errands import Errands
from rmq_actors.testing.invariants.exchanges import Exchanges
from rmq_actors.testing.invariants.followed_unasked import FollowedUnasked
from rmq_actors.testing.invariants.given import Given
from rmq_actors.testing.invariants.halted import Halted
from rmq_actors.testing.invariants.held import Held
from rmq_actors.testing.invariants.housekeeping import Housekeeping
from rmq_actors.testing.invariants.in_time import InTime
from rmq_actors.testing.invariants.invariant import Invariant, Limit
from rmq_actors.testing.invariants.leaks import Leaks
from rmq_actors.testing.invariants.light_queues import LightQueues
from rmq_actors.testing.invariants.near import Near
from rmq_actors.testing.invariants.of_one_name import OfOneName
from rmq_actors.testing.invariants.offsets_of_a_cut import OffsetsOfACut
from rmq_actors.testing.invariants.orderly import Orderly
from rmq_actors.testing.invariants.prefix import Prefix
from rmq_actors.testing.invariants.queue_begun_again import QueueBegunAgain
from rmq_actors.testing.invariants.queue_offsets import QueueOffsets
from rmq_actors.testing.invariants.read import Read
from rmq_actors.testing.invariants.read_in_the_end import ReadInTheEnd
from rmq_actors.testing.invariants.refused import Refused
from rmq_actors.testing.invariants.replicated import Replicated
from rmq_actors.testing.invariants.report import Report
from rmq_actors.testing.invariants.routed import Routed
from rmq_actors.testing.invariants.send_ok import SendOk
from rmq_actors.testing.invariants.sent import Sent
from rmq_actors.testing.invariants.stops import Stops
from rmq_actors.testing.invariants.survival import Survival
from rmq_actors.testing.invariants.synced import Synced
from rmq_actors.testing.invariants.tables_equal import TablesEqual
from rmq_actors.testing.invariants.tables_kept import TablesKept
from rmq_actors.testing.invariants.term_kept import TermKept
from rmq_actors.testing.invariants.terms import Terms
from rmq_actors.testing.invariants.topic_lives import TopicLives
from rmq_actors.testing.invariants.transactions import Transactions
from rmq_actors.testing.invariants.unasked import Unasked
from rmq_actors.testing.invariants.understood import Understood
from rmq_actors.testing.invariants.whole import Whole

__all__ = [
    "CLIENT_INVARIANTS",
    "REPLICATION_INVARIANTS",
    "REPLICATION_LIMITS",
    "Accounts",
    "Ack",
    "Acknowledged",
    "Answer",
    "Answered",
    "AtRest",
    "Checkpointed",
    "Commands",
    "Consumed",
    "ConsumerOffsets",
    "Convergence",
    "DamagedMaster",
    "Delayed",
    "Deletions",
    "Derived",
    "Divergence",
    "Errands",
    "Exchanges",
    "FollowedUnasked",
    "Given",
    "Halted",
    "Held",
    "Housekeeping",
    "InTime",
    "Invariant",
    "Leaks",
    "LightQueues",
    "Limit",
    "Near",
    "OfOneName",
    "OffsetsOfACut",
    "Orderly",
    "Prefix",
    "QueueBegunAgain",
    "QueueOffsets",
    "Read",
    "ReadInTheEnd",
    "Refused",
    "Replicated",
    "Report",
    "Routed",
    "SendOk",
    "Sent",
    "Stops",
    "Survival",
    "Synced",
    "TablesEqual",
    "TablesKept",
    "TermKept",
    "Terms",
    "TopicLives",
    "Transactions",
    "Unasked",
    "Understood",
    "Whole",
]

#: What must hold for every master and its slaves. If one event breaks several, the first in this order is reported.
REPLICATION_INVARIANTS: tuple[type[Invariant[Any]], ...] = (
    Prefix,
    Whole,
    Answer,
    Derived,
    Convergence,
    Divergence,
    Survival,
    Synced,
    Report,
    Understood,
    Replicated,
    Ack,
    Acknowledged,
    QueueOffsets,
    Sent,
    SendOk,
    Read,
    ReadInTheEnd,
    TablesKept,
    TablesEqual,
    ConsumerOffsets,
    AtRest,
    TermKept,
    Terms,
    Halted,
    Unasked,
    Housekeeping,
    Exchanges,
    Commands,
    Deletions,
    Leaks,
)
#: What must hold for producers and consumer groups besides.
CLIENT_INVARIANTS: tuple[type[Invariant[Any]], ...] = (InTime, Held, Given, Orderly, Consumed)
#: Once one of these has come to pass, nothing is promised any more.
REPLICATION_LIMITS: tuple[type[Limit[Any]], ...] = (FollowedUnasked, DamagedMaster, QueueBegunAgain)
