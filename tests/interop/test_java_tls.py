"""TLS with certificates on both sides, between real RocketMQ 4.9.7 programs and this project's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from rmq_actors.embedding.properties_file import read_properties_file
from rmq_actors.remoting.connection import RemotingError
from rmq_actors.remoting.tls import TlsConfig, tls_client
from rmq_actors.wire.bodies import decode_body
from rmq_actors.wire.bodies.routes import TopicRouteData
from rmq_actors.wire.headers.topics import GetRouteInfoRequestHeader
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.interop.conftest import MakeTracer
from tests.interop.java_gateway import JavaGateway, open_java_gateway
from tests.interop.name_server import NameServer
from tests.interop.remoting_calls import TIMEOUT_MS, Asking, open_client
from tests.interop.servers import Servers
from tests.worlds.java_broker import JavaBroker
from tests.worlds.java_process import JavaRuntime

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def name_server(module_servers: Servers, tls_config_file: Path) -> NameServer:
    properties = {"tls.server.mode": "enforcing", "tls.config.file": str(tls_config_file)}
    name_server = module_servers.name_server("namesrv", **properties)
    name_server.start()
    return name_server


@pytest.fixture(scope="module")
def broker(module_servers: Servers, name_server: NameServer, tls_config_file: Path) -> JavaBroker:
    options = ("-Dtls.server.mode=enforcing", "-Dtls.enable=true", f"-Dtls.config.file={tls_config_file}")
    broker = module_servers.java_broker("broker", java_options=options, namesrvAddr=name_server.address)
    broker.start()
    return broker


@pytest.fixture(scope="module")
def tls_java_gateway(
    java_runtime: JavaRuntime, tls_config_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaGateway]:
    options = ("-Dtls.enable=true", f"-Dtls.config.file={tls_config_file}")
    with open_java_gateway(tmp_path_factory.mktemp("java-gateway"), java_runtime, *options) as gateway:
        yield gateway


@pytest.fixture
def client_config(tls_config_file: Path) -> TlsConfig:
    return attrs.evolve(TlsConfig.from_properties(read_properties_file(tls_config_file)), enable=True)


def test_a_java_client_uses_our_name_server_and_a_java_broker(
    name_server: NameServer, broker: JavaBroker, tls_java_gateway: JavaGateway
) -> None:
    route = json.loads(
        tls_java_gateway.mqadmin(name_server.address, "topicRoute", "-t", "broker-a").replace("0:", '"0":')
    )
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": broker.address}
    assert tls_java_gateway.produce(name_server.address, "TopicTls", [b"kept secret"]) == ["broker-a"]
    assert tls_java_gateway.consume(name_server.address, "TopicTls", 1) == [b"kept secret"]


@pytest.mark.trio
async def test_our_client_uses_both(
    name_server: NameServer, broker: JavaBroker, client_config: TlsConfig, make_tracer: MakeTracer
) -> None:
    big = bytes(range(256)) * 400
    async with open_client(make_tracer("client"), tls=tls_client(client_config)) as client:
        asking = Asking(client, name_server.address)
        response = await asking.get(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="broker-a"))
        (found,) = decode_body(TopicRouteData, response.body).broker_datas
        assert found.broker_addrs == {0: broker.address}
        asking = Asking(client, broker.address)
        sent = await asking.send("TopicOurTls", big)
        pulled = await asking.pull("TopicOurTls", sent.queue_offset)
        assert pulled.code == ResponseCode.SUCCESS
        assert big in pulled.body


@pytest.mark.trio
@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "without a certificate"])
async def test_who_shows_no_certificate_is_not_served(
    name_server: NameServer, broker: JavaBroker, client_config: TlsConfig, make_tracer: MakeTracer, has_tls: bool
) -> None:
    tls = tls_client(attrs.evolve(client_config, enable=has_tls, client_cert_path="", client_key_path=""))
    async with open_client(make_tracer("client"), tls=tls) as client:
        for address in (name_server.address, broker.address):
            with pytest.raises(RemotingError, match=address):
                await client.invoke(address, RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO), TIMEOUT_MS)
