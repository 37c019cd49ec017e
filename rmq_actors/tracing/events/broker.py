"""What a broker does beside its store: registration, roles, the tables of its master."""

from __future__ import annotations

from typing import Literal

from rmq_actors.tracing.event import Event, attribute


class BrokerRegister(
    Event, kind="broker.register", emitter="broker.registration_service", actor="BrokerRegistrationService"
):
    """A request about this broker was made of a name server; status ok, or what it failed by."""

    status: str
    peer_address: str = attribute("network.peer.address")
    request: str


class BrokerUnregister(
    Event, kind="broker.unregister", emitter="broker.registration_service", actor="BrokerRegistrationService"
):
    """A stopping broker has asked a name server to forget it; status ok, or what that failed by."""

    status: str
    peer_address: str = attribute("network.peer.address")


class BrokerMaster(
    Event, kind="broker.master", emitter="broker.registration_service", actor="BrokerRegistrationService"
):
    """A slave learned where its master is."""

    master_addr: str
    ha_server_addr: str


class BrokerRoleEvent(Event, kind="broker.role", emitter="broker.role_changes", actor="RoleChanges"):
    """The broker changed its role, with its log ending at offset.

    status: changed, reopened: it has the same one, or the step that failed.
    """

    status: str
    offset: int
    role: str
    broker_id: int = attribute("broker.id")
    detail: str


class BrokerExchange(Event, kind="broker.exchange", emitter="broker.role_exchange", actor="RoleExchange"):
    """A master that exchanges roles is at this step, with its log ending at offset; effect: what it is about to do."""

    status: str
    offset: int
    effect: str
    peer_address: str = attribute("network.peer.address")
    detail: str


class BrokerExchangePartner(
    Event, kind="broker.exchange_partner", emitter="broker.exchange_partner", actor="ExchangePartner"
):
    """What a slave says to the master that exchanges roles with it.

    status: can, waits, ready, refuses, leads, or is_promoted: it is about to become the master.
    """

    status: str
    offset: int
    detail: str


class BrokerSlaveSynchronize(
    Event, kind="broker.slave_synchronize", emitter="broker.slave_synchronize, broker.last_round"
):
    """A slave has asked its master for a table; status changed, unchanged, no_master, or what that failed by."""

    status: str
    part: str
    peer_address: str = attribute("network.peer.address")
    detail: str


class BrokerDeleteTopic(Event, kind="broker.delete_topic", emitter="broker.topic_removal", actor="TopicRemoval"):
    """A topic is deleted, and there is no way back: its queues, consumers' offsets and settings go now.

    It is told again where a start, or a second request, ends what an error or a crash has left undone.
    """

    topic: str


class BrokerPersistOffsets(
    Event, kind="broker.persist_offsets", emitter="broker.offset_persist_service", actor="OffsetPersistService"
):
    """Offsets that changed were written; status written, or what that failed by."""

    status: str
    part: str


class BrokerOffsetBack(
    Event, kind="broker.offset_back", emitter="broker.client_requests", actor="ConsumerManageProcessor"
):
    """A group is set back in a queue, from queue_offset to queue_offset_next: to read again, or by a late request."""

    group: str = attribute("messaging.consumer.group.name")
    topic: str
    queue_id: int
    queue_offset: int
    queue_offset_next: int


class BrokerDeliver(
    Event, kind="broker.deliver", emitter="broker.schedule_message_service", actor="ScheduleMessageService"
):
    """What became of delayed messages of a level, from queue_offset to queue_offset_next.

    status: delivered, the last one ending at offset; retried: the one at queue_offset is not, as detail says;
    passed_over: they never will be.
    """

    status: Literal["delivered", "retried", "passed_over"]
    queue_id: int
    queue_offset: int
    queue_offset_next: int
    offset: int
    detail: str
