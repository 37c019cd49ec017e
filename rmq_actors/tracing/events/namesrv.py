"""The name server."""

from __future__ import annotations

from rmq_actors.tracing.event import Event, attribute


class NamesrvRegister(
    Event, kind="namesrv.register", emitter="namesrv.default_request_processor", actor="DefaultRequestProcessor"
):
    """A broker registered.

    status: new, renewed, late: another process has its address by now, or superseded: another address has its name
    and id.
    """

    conn_id: int
    status: str
    cluster_name: str = attribute("broker.cluster")
    broker_name: str = attribute("broker.name")
    broker_id: int = attribute("broker.id")
    broker_addr: str = attribute("broker.address")


class NamesrvRemove(
    Event, kind="namesrv.remove", emitter="namesrv.default_request_processor, namesrv.broker_housekeeping_service"
):
    """A broker left the routes; status unregistered, closed: its connection, expired, or not_live: it was not there."""

    conn_id: int
    status: str
    cluster_name: str = attribute("broker.cluster")
    broker_name: str = attribute("broker.name")
    broker_id: int = attribute("broker.id")
    broker_addr: str = attribute("broker.address")
