"""The port at which a Prometheus scrapes a broker: `GET /metrics`, and nothing else.

    Prometheus ── GET /metrics ──▶ MetricsServer ──▶ BrokerMetrics.gather
               ◀── the text format of prometheus_client ──

It listens on loopback unless it is told otherwise, and asks nobody who he is: topics and groups are named in its
answers. A scrape that does not come, or is not taken, within 10 s ends; more than 16 at a time are closed at once. A
scrape that fails is answered 500 and logged, and ends nothing.
"""

from __future__ import annotations

import logging
from typing import Final

import attrs
import h11
import trio
from prometheus_client.core import CollectorRegistry, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from rmq_actors.actors.services.service import ServiceThread
from rmq_actors.broker.metrics import BrokerMetrics, MetricFamily
from rmq_actors.sockets.tcp_listeners import open_tcp_listeners
from rmq_actors.wire.address import address_text

_log = logging.getLogger(__name__)

PATH: Final = b"/metrics"
SCRAPE_TIMEOUT_S: Final = 10.0
CONNECTIONS_MAX: Final = 16
#: Prometheus sends some hundred bytes.
REQUEST_MAX_BYTES: Final = 16 * 1024
_RECEIVE_BYTES: Final = 4096


@attrs.frozen(eq=False)
class _Gathered(Collector):
    """What was gathered, as prometheus_client writes it."""

    _families: list[MetricFamily]

    def collect(self) -> list[GaugeMetricFamily]:
        """All families, those without samples too: so a dashboard finds their names."""
        found = []
        for family in self._families:
            metric = GaugeMetricFamily(family.name, family.documentation, labels=family.labels)
            for values, value in family.samples.items():
                metric.add_metric(values, value)
            found.append(metric)
        return found


def exposition(families: list[MetricFamily]) -> bytes:
    """The text that a Prometheus reads."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Gathered(families))
    return generate_latest(registry)


@attrs.define(eq=False, repr=False)
class MetricsServer(ServiceThread):
    """A Service: listens on one address, one request per connection."""

    _host: str
    _port: int
    _metrics: BrokerMetrics
    name = "MetricsServer"
    #: "host:port" once it listens.
    address: str = attrs.field(default="", init=False)
    _open: int = attrs.field(default=0, init=False)

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Serve scrapes. Raises `OSError` naming an address that cannot be bound."""
        listeners = await open_tcp_listeners(
            self._host, self._port, settings="metricsPromExporterHost, metricsPromExporterPort"
        )
        self.address = address_text(listeners[0].socket.getsockname())
        _log.info("metrics are at http://%s%s", self.address, PATH.decode())
        task_status.started()
        await trio.serve_listeners(self._serve, listeners)

    async def _serve(self, stream: trio.SocketStream) -> None:
        if self._open >= CONNECTIONS_MAX:
            _log.warning("%s: %d scrapes are under way: one more is refused", self.name, self._open)
            await trio.aclose_forcefully(stream)
            return
        self._open += 1
        try:
            async with stream:
                with trio.move_on_after(SCRAPE_TIMEOUT_S) as scope:
                    await self._answer(stream)
                if scope.cancelled_caught:
                    _log.info("%s: a scrape took longer than %.0f s", self.name, SCRAPE_TIMEOUT_S)
        except (trio.BrokenResourceError, h11.RemoteProtocolError) as error:
            _log.info("%s: a scrape ended: %s", self.name, error)
        finally:
            self._open -= 1

    async def _answer(self, stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_MAX_BYTES)
        status, body = 400, b""
        try:
            request = await _receive_request(stream, connection)
            if request is None:
                return
            status = _status(request)
            if status == 200:
                body = exposition(await self._metrics.gather())
        except h11.RemoteProtocolError as error:
            _log.info("%s: a request is not HTTP: %s", self.name, error)
            status = error.error_status_hint
        except Exception:  # noqa: BLE001 - logged, answered
            # Whatever is wrong with metrics, the broker goes on.
            _log.exception("%s: the metrics cannot be told", self.name)
            status = 500
        await _send(stream, connection, status, body)


def _status(request: h11.Request) -> int:
    if request.target.partition(b"?")[0] != PATH:
        return 404
    return 200 if request.method == b"GET" else 405


async def _receive_request(stream: trio.SocketStream, connection: h11.Connection) -> h11.Request | None:
    """The head of a request; None if the peer closes. Raises `h11.RemoteProtocolError`."""
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            return event
        if event is not h11.NEED_DATA:
            return None
        connection.receive_data(await stream.receive_some(_RECEIVE_BYTES))


async def _send(stream: trio.SocketStream, connection: h11.Connection, status: int, body: bytes) -> None:
    headers = [("Content-Type", CONTENT_TYPE_LATEST), ("Content-Length", str(len(body))), ("Connection", "close")]
    response = connection.send(h11.Response(status_code=status, headers=headers)) or b""
    await stream.send_all(response + (connection.send(h11.Data(data=body)) or b""))
    connection.send(h11.EndOfMessage())
