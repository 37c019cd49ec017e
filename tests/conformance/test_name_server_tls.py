"""A name server that speaks TLS because its configuration says so."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.broker.broker_controller import open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.embedding.name_server import load_namesrv_config, open_configured_name_server
from rmq_actors.real_io.entropy import SystemEntropy
from rmq_actors.real_io.environment import real_environment
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingClientConfig, RemotingServerConfig
from rmq_actors.remoting.connection import RemotingError
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.remoting.tls import Tls, TlsConfig, TlsMode, tls_client
from rmq_actors.settings.configure import ConfigurationError
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.worlds.recording import new_tracer
from tests.worlds.tls_certificates import KEY_PASSWORD, certificates, tls_client_config


@pytest.fixture
def namesrv_conf(tmp_path: Path) -> Path:
    files = certificates("ours")
    tls_file = tmp_path / "tls.properties"
    tls_file.write_text(
        f"tls.test.mode.enable=false\ntls.server.keyPath={files.encrypted_key}\n"
        f"tls.server.keyPassword={KEY_PASSWORD}\ntls.server.certPath={files.cert}\n"
    )
    path = tmp_path / "namesrv.conf"
    path.write_text(
        f"listenPort=0\nkvConfigPath={tmp_path}/kvConfig.json\n"
        f"tls.server.mode=enforcing\ntls.config.file={tls_file}\nsomebodyElses=1\n"
    )
    return path


async def answer_of(address: str, tls: TlsConfig, request: RemotingCommand) -> RemotingCommand | RemotingError:
    tracer = new_tracer()
    async with open_actor_system("client", tracer, entropy=SystemEntropy()) as system:
        config = RemotingClientConfig()
        client = RemotingClient(config, SystemEntropy(), tracer, ProcessorTable(tracer), tls=tls_client(tls))
        await system.start(client)
        try:
            return await client.invoke(address, request, 5000)
        except RemotingError as error:
            return error


@pytest.mark.trio
async def test_who_speaks_tls_is_answered_and_nobody_else(namesrv_conf: Path) -> None:
    async with open_configured_name_server(load_namesrv_config(namesrv_conf)) as name_server:
        cluster_info = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)
        answer = await answer_of(name_server.address, tls_client_config(), cluster_info)
        assert isinstance(answer, RemotingCommand)
        assert answer.code == ResponseCode.SUCCESS
        assert isinstance(await answer_of(name_server.address, TlsConfig(), cluster_info), RemotingError)


@pytest.mark.trio
async def test_no_request_turns_tls_off_or_asks_for_its_password(namesrv_conf: Path) -> None:
    before = await trio.Path(namesrv_conf).read_text()
    async with open_configured_name_server(load_namesrv_config(namesrv_conf)) as name_server:
        for change in (b"tls.server.mode=disabled", b"tls.config.file=/tmp/other", b"tls.enable=false"):
            update = RemotingCommand(RequestCode.UPDATE_NAMESRV_CONFIG, body=change)
            refused = await answer_of(name_server.address, tls_client_config(), update)
            assert isinstance(refused, RemotingCommand)
            assert refused.code != ResponseCode.SUCCESS
        assert await trio.Path(namesrv_conf).read_text() == before
        update = RemotingCommand(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"somebodyElses=2")
        accepted = await answer_of(name_server.address, tls_client_config(), update)
        assert isinstance(accepted, RemotingCommand)
        assert accepted.code == ResponseCode.SUCCESS
        shown = await answer_of(
            name_server.address, tls_client_config(), RemotingCommand(RequestCode.GET_NAMESRV_CONFIG)
        )
        assert isinstance(shown, RemotingCommand)
        assert b"somebodyElses=2" in shown.body
        assert KEY_PASSWORD.encode() not in shown.body
    # What was written back still says that it speaks TLS.
    async with open_configured_name_server(load_namesrv_config(namesrv_conf)) as name_server:
        cluster_info = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)
        assert isinstance(await answer_of(name_server.address, TlsConfig(), cluster_info), RemotingError)


@pytest.mark.trio
async def test_a_broker_registers_over_tls_and_is_asked_over_it(namesrv_conf: Path, tmp_path: Path) -> None:
    files = certificates("ours")
    both = attrs.evolve(
        tls_client_config(), server_mode=TlsMode.ENFORCING, server_key_path=files.key, server_cert_path=files.cert
    )
    tracer = new_tracer()
    async with open_configured_name_server(load_namesrv_config(namesrv_conf)) as name_server:
        config = BrokerConfig(
            "broker-a", namesrv_addr=name_server.address, remoting=RemotingServerConfig("127.0.0.1", 0)
        )
        tls = Tls.from_config(both)
        async with open_broker(config, real_environment(tmp_path / "store"), tracer, tls=tls) as broker:
            with trio.fail_after(60):
                while b"broker-a" not in (await cluster_info(name_server.address)).body:
                    await trio.lowlevel.checkpoint()
            assert broker.remoting is not None
            unknown = RemotingCommand(9999)
            answer = await answer_of(broker.remoting.broker_addr, tls_client_config(), unknown)
            assert isinstance(answer, RemotingCommand)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert isinstance(await answer_of(broker.remoting.broker_addr, TlsConfig(), unknown), RemotingError)


async def cluster_info(address: str) -> RemotingCommand:
    answer = await answer_of(address, tls_client_config(), RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))
    assert isinstance(answer, RemotingCommand)
    return answer


@pytest.mark.trio
async def test_settings_of_tls_that_cannot_be_are_named_before_anything_starts(namesrv_conf: Path) -> None:
    namesrv_conf.with_name("tls.properties").write_text("tls.server.keyPath=/missing\ntls.server.certPath=/missing\n")
    with pytest.raises(ConfigurationError, match=r"tls\.server\.certPath /missing and tls\.server\.keyPath /missing"):
        async with open_configured_name_server(load_namesrv_config(namesrv_conf)):
            await trio.sleep_forever()


def test_its_keys_are_known(namesrv_conf: Path) -> None:
    warnings = load_namesrv_config(namesrv_conf).warnings
    assert [warning for warning in warnings if "tls." in warning] == []
    assert any("somebodyElses" in warning for warning in warnings)
