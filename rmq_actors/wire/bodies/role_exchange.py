"""What brokers of this project and their operators say to each other when two brokers exchange roles."""

from __future__ import annotations

from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.java_numbers import Int64


class BeginExchangeBody(RemotingSerializable, frozen=True, kw_only=True):
    """Asks a master to exchange roles with the slave at "host:port". `limit_ms`: how long the slave may take."""

    limit_ms: Int64
    slave_addr: str


class ExchangeInfo(RemotingSerializable, frozen=True, kw_only=True):
    """How an exchange goes: at which step it is, and why it waits there, or how it has ended.

    `exchange_id` is empty where there has been none since the broker was started.
    """

    detail: str = ""
    ended: bool = False
    exchange_id: str = ""
    exchanged: bool = False
    slave_addr: str = ""
    step: str = ""


class PrepareExchangeBody(RemotingSerializable, frozen=True, kw_only=True):
    """A master of `term` asks its slave whether it can take over; with a `promotion` also to be ready for that.

    A slave is ready if it has the log up to `end`, synced, and the tables as they are.
    """

    broker_name: str
    end: Int64 = 0
    exchange_id: str
    promotion: str | None = None
    term: Int64


class PromoteExchangeBody(RemotingSerializable, frozen=True, kw_only=True):
    """A master asks the slave that is ready for this promotion to lead `term`, in `role`."""

    end: Int64
    promotion: str
    role: str
    term: Int64


class ExchangeAnswer(RemotingSerializable, frozen=True, kw_only=True):
    """What a slave answers to both. `refused`: why it does not, for good; `waits_for`: what is not so yet."""

    broker_id: Int64 = 0
    ha_addr: str | None = None
    max_offset: Int64 = 0
    refused: str | None = None
    term: Int64 = 0
    waits_for: str | None = None
