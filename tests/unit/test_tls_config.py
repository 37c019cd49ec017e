"""Settings of TLS: what they mean, and what is wrong with them, before anybody connects."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from rmq_actors.embedding.broker import load_broker_config
from rmq_actors.embedding.tls_settings import load_tls_config
from rmq_actors.remoting.tls import ClientAuth, TlsConfig, TlsConfigError, TlsMode, tls_client, tls_server
from rmq_actors.settings.configure import ConfigurationError, Properties
from tests.worlds.tls_certificates import KEY_PASSWORD, certificates, tls_client_config, tls_server_config

OURS = certificates("ours")


def test_nothing_is_encrypted_unless_told() -> None:
    assert tls_server(TlsConfig()) is None
    assert tls_client(TlsConfig()) is None


def test_the_keys_are_rocketmqs() -> None:
    properties = Properties(
        "tls.properties",
        {
            "tls.test.mode.enable": "false",
            "tls.server.mode": "Permissive",
            "tls.server.need.client.auth": "require",
            "tls.server.keyPath": "/server.key",
            "tls.server.keyPassword": "of the server",
            "tls.server.certPath": "/server.pem",
            "tls.server.authClient": "true",
            "tls.server.trustCertPath": "/ca.pem",
            "tls.enable": "TRUE",
            "tls.client.keyPath": "/client.key",
            "tls.client.keyPassword": "of the client",
            "tls.client.certPath": "/client.pem",
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": "/ca.pem",
            "tls.client.checkHostname": "true",
            "listenPort": "9876",
        },
    )
    config = TlsConfig.from_properties(properties)
    assert config == TlsConfig(
        server_mode=TlsMode.PERMISSIVE,
        server_need_client_auth=ClientAuth.REQUIRE,
        server_key_path="/server.key",
        server_key_password="of the server",
        server_cert_path="/server.pem",
        server_auth_client=True,
        server_trust_cert_path="/ca.pem",
        enable=True,
        client_key_path="/client.key",
        client_key_password="of the client",
        client_cert_path="/client.pem",
        client_auth_server=True,
        client_trust_cert_path="/ca.pem",
        client_check_hostname=True,
    )
    assert "of the" not in repr(config)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("tls.server.mode", "on", "'on' is not one of disabled, permissive, enforcing"),
        ("tls.server.need.client.auth", "yes", "'yes' is not one of none, optional, require"),
        ("tls.enable", "1", "'1' is neither true nor false"),
        ("tls.server.keypath", "/x", "tls.server.keypath is no setting of TLS; they are tls.client.authServer, "),
        ("tls.test.mode.enable", "true", "this project makes no certificate"),
    ],
)
def test_a_setting_that_means_nothing_is_named(key: str, value: str, reason: str) -> None:
    with pytest.raises(TlsConfigError) as caught:
        TlsConfig.from_properties(Properties("tls.properties", {key: value}, {key: 7}))
    assert str(caught.value).startswith(f"tls.properties, line 7: {key}")
    assert reason in str(caught.value)


def server(**changes: object) -> Callable[[], object]:
    return lambda: tls_server(attrs.evolve(tls_server_config(asks=ClientAuth.REQUIRE), **changes))  # type: ignore[arg-type]


def client(**changes: object) -> Callable[[], object]:
    return lambda: tls_client(attrs.evolve(tls_client_config(has_cert_of="ours"), **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (server(server_cert_path=""), "tls.server.mode=enforcing needs tls.server.certPath and tls.server.keyPath"),
        (server(server_key_path=""), "tls.server.mode=enforcing needs tls.server.certPath and tls.server.keyPath"),
        (server(server_cert_path="/missing"), "tls.server.certPath /missing and tls.server.keyPath"),
        (server(server_key_path=certificates("ours", "other").key), "cannot be used together: .*KEY_VALUES_MISMATCH"),
        (server(server_key_path=OURS.cert), "tls.server.keyPath .*cert.pem .*cannot be used together"),
        (server(server_key_path=OURS.encrypted_key), "with tls.server.keyPassword. cannot be used together"),
        (
            server(server_key_path=OURS.encrypted_key, server_key_password="wrong"),
            "with tls.server.keyPassword. cannot be used together",
        ),
        (server(server_trust_cert_path="/missing"), "tls.server.trustCertPath /missing cannot be used: .*No such file"),
        (server(server_trust_cert_path=OURS.key), "tls.server.trustCertPath .*key.pem cannot be used"),
        (server(server_auth_client=False), "clients are checked with .* together, or not at all"),
        (server(server_need_client_auth=ClientAuth.NONE), "clients are checked with .* together, or not at all"),
        (server(server_trust_cert_path=""), "clients are checked with .* together, or not at all"),
        (client(client_trust_cert_path="/missing"), "tls.client.trustCertPath /missing cannot be used"),
        (client(client_key_path=""), "tls.client.certPath and tls.client.keyPath need each other"),
        (client(client_cert_path=""), "tls.client.certPath and tls.client.keyPath need each other"),
        (client(client_key_path="/missing"), "tls.client.keyPath /missing .*cannot be used together"),
        (
            client(client_auth_server=False, client_check_hostname=True),
            "tls.client.checkHostname=true needs tls.client.authServer=true",
        ),
    ],
)
def test_files_and_settings_that_do_not_go_together_are_named(make: Callable[[], object], reason: str) -> None:
    with pytest.raises(TlsConfigError, match=reason) as caught:
        make()
    assert "wrong" not in str(caught.value)


def test_a_key_may_have_a_password() -> None:
    assert server(server_key_path=OURS.encrypted_key, server_key_password=KEY_PASSWORD)() is not None
    of_client = certificates("ours", "a-client").encrypted_key
    assert client(client_key_path=of_client, client_key_password=KEY_PASSWORD)() is not None


@pytest.fixture
def tls_file(tmp_path: Path) -> Path:
    path = tmp_path / "tls.properties"
    path.write_text("tls.server.keyPath=/server.key\ntls.server.certPath=/server.pem\n")
    return path


def test_most_settings_are_in_a_file_of_their_own(tls_file: Path) -> None:
    own = {"tls.server.mode": "enforcing", "tls.config.file": str(tls_file), "listenPort": "9876"}
    assert load_tls_config(Properties("namesrv.conf", own)) == TlsConfig(
        server_mode=TlsMode.ENFORCING, server_key_path="/server.key", server_cert_path="/server.pem"
    )


def test_the_usual_file_is_read_if_it_is_there(tls_file: Path, tmp_path: Path) -> None:
    own = Properties("namesrv.conf", {"tls.enable": "true"})
    assert load_tls_config(own, str(tls_file)).server_key_path == "/server.key"
    assert load_tls_config(own, str(tmp_path / "none")) == TlsConfig(enable=True)


def test_without_tls_no_file_is_read(tmp_path: Path) -> None:
    own = {"tls.server.mode": "disabled", "tls.config.file": str(tmp_path / "missing")}
    assert load_tls_config(Properties("namesrv.conf", own)) == TlsConfig()


def test_the_file_is_read_for_tls_between_brokers_alone(tls_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    lines = ["listenPort=20911", f"storePathRootDir={tmp_path}", f"tls.config.file={tls_file}", "haTlsEnable=true"]
    path.write_text("\n".join(lines))
    loaded = load_broker_config(path)
    assert loaded.config.ha.ha_tls_enable
    assert loaded.tls == TlsConfig(server_key_path="/server.key", server_cert_path="/server.pem")


def test_a_password_does_not_belong_where_everybody_may_read_it() -> None:
    """A name server answers GET_NAMESRV_CONFIG with its configuration."""
    properties = Properties("namesrv.conf", {"tls.server.keyPassword": "secret"}, {"tls.server.keyPassword": 3})
    with pytest.raises(TlsConfigError) as caught:
        load_tls_config(properties)
    assert str(caught.value).startswith("namesrv.conf, line 3: tls.server.keyPassword belongs into the file that tls.")
    assert "secret" not in str(caught.value)


def test_whether_there_is_tls_is_not_said_in_its_file(tls_file: Path) -> None:
    tls_file.write_text("tls.server.mode=permissive\n")
    own = {"tls.server.mode": "enforcing", "tls.config.file": str(tls_file)}
    with pytest.raises(TlsConfigError, match=r"line 1: tls.server.mode is set in namesrv.conf, not here"):
        load_tls_config(Properties("namesrv.conf", own))


def test_a_file_that_is_named_and_not_there_is_an_error() -> None:
    own = {"tls.server.mode": "enforcing", "tls.config.file": "/missing/tls.properties"}
    with pytest.raises(ConfigurationError, match=r"/missing/tls.properties cannot be read"):
        load_tls_config(Properties("namesrv.conf", own))
