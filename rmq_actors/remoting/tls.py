"""TLS below remoting connections, off by default (TlsSystemConfig, TlsHelper, HandshakeHandler).

A server in permissive mode takes plain connections too. The first byte tells which one it is, as no plain frame that is
short enough begins like a TLS handshake. TLS is not for simulated worlds: OpenSSL has its own randomness.
"""

from __future__ import annotations

import enum
import logging
import ssl

import attrs
import trio

from rmq_actors.remoting.transport import SocketTransport, Transport
from rmq_actors.settings.configure import ConfigurationError, Properties
from rmq_actors.settings.field_types import typed_fields

_log = logging.getLogger(__name__)

_HANDSHAKE_MAGIC_CODE = 0x16
#: The key that names the file with the other keys.
TLS_CONFIG_FILE = "tls.config.file"


class TlsConfigError(ConfigurationError):
    """Settings of TLS contradict each other, or name files that cannot be used; the message names the key."""


class TlsHandshakeError(ConnectionError):
    """The peer does not speak TLS, is not trusted, or takes too long; the message says which."""

    reason = "tls_handshake"


class TlsBrokenError(ConnectionError):
    """The peer broke the rules of TLS, or the connection below it."""

    reason = "tls_broken"


class TlsMode(enum.Enum):
    """Whether a server speaks TLS (TlsMode)."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(enum.Enum):
    """Whether a server asks clients for a certificate (netty's ClientAuth)."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@attrs.frozen(field_transformer=typed_fields)
class TlsConfig:
    """RocketMQ's keys: `server_key_path` is tls.server.keyPath. Passwords are never shown.

    Paths name PEM files. RocketMQ's defaults differ in one thing: its tls.server.mode is permissive, with a
    certificate that it makes up (tls.test.mode.enable). `client_check_hostname` (tls.client.checkHostname) is this
    project's own: RocketMQ's clients compare no names.
    """

    server_mode: TlsMode = TlsMode.DISABLED
    server_need_client_auth: ClientAuth = ClientAuth.NONE
    server_key_path: str = ""
    server_key_password: str = attrs.field(default="", repr=False)
    server_cert_path: str = ""
    server_auth_client: bool = False
    server_trust_cert_path: str = ""
    #: tls.enable: whether clients of this side speak TLS.
    enable: bool = False
    client_key_path: str = ""
    client_key_password: str = attrs.field(default="", repr=False)
    client_cert_path: str = ""
    client_auth_server: bool = False
    client_trust_cert_path: str = ""
    client_check_hostname: bool = False
    #: The time-out of a handshake, as in netty's SslHandler.
    handshake_timeout_ms: int = attrs.field(default=10_000, validator=attrs.validators.ge(1))

    @classmethod
    def from_properties(cls, properties: Properties) -> TlsConfig:
        """The settings among the `tls.` keys of `properties`, such as a tls.properties. Raises `TlsConfigError`.

        The caller must read tls.config.file itself.
        """
        values: dict[str, object] = {}
        for key, text in properties.values.items():
            if not key.startswith("tls.") or key == TLS_CONFIG_FILE:
                continue
            try:
                if key != "tls.test.mode.enable":
                    values[_FIELDS[key]] = _parse(key, text)
                elif _truth(text):
                    raise ValueError("this project makes no certificate: set it to false, and name your own")  # noqa: TRY301
            except KeyError:
                known = ", ".join(sorted(_FIELDS))
                raise TlsConfigError(f"{properties.where(key)}: {key} is no setting of TLS; they are {known}") from None
            except ValueError as error:
                raise TlsConfigError(f"{properties.where(key)}: {key}: {error}") from None
        return cls(**values)  # type: ignore[arg-type]


_FIELDS = {
    "tls.enable": "enable",
    "tls.server.mode": "server_mode",
    "tls.server.need.client.auth": "server_need_client_auth",
    "tls.server.keyPath": "server_key_path",
    "tls.server.keyPassword": "server_key_password",
    "tls.server.certPath": "server_cert_path",
    "tls.server.authClient": "server_auth_client",
    "tls.server.trustCertPath": "server_trust_cert_path",
    "tls.client.keyPath": "client_key_path",
    "tls.client.keyPassword": "client_key_password",
    "tls.client.certPath": "client_cert_path",
    "tls.client.authServer": "client_auth_server",
    "tls.client.trustCertPath": "client_trust_cert_path",
    "tls.client.checkHostname": "client_check_hostname",
}
_TRUTHS = frozenset({"tls.enable", "tls.server.authClient", "tls.client.authServer", "tls.client.checkHostname"})
_CHOICES: dict[str, type[enum.Enum]] = {"tls.server.mode": TlsMode, "tls.server.need.client.auth": ClientAuth}


def _parse(key: str, text: str) -> object:
    if key in _TRUTHS:
        return _truth(text)
    choices = _CHOICES.get(key)
    if choices is None:
        return text
    try:
        return choices(text.strip().lower())
    except ValueError:
        raise ValueError(f"{text!r} is not one of {', '.join(one.value for one in choices)}") from None


def _truth(text: str) -> bool:
    truth = {"true": True, "false": False}.get(text.strip().lower())
    if truth is None:
        raise ValueError(f"{text!r} is neither true nor false")
    return truth


def tls_server(config: TlsConfig) -> TlsServer | None:
    """A server's TLS, None if it speaks none. Raises `TlsConfigError`."""
    if config.server_mode is TlsMode.DISABLED:
        return None
    return _server(config, f"tls.server.mode={config.server_mode.value}")


def _server(config: TlsConfig, because: str) -> TlsServer:
    """`because`: the setting that asks for it."""
    if not config.server_cert_path or not config.server_key_path:
        raise TlsConfigError(f"{because} needs tls.server.certPath and tls.server.keyPath")
    asks = config.server_need_client_auth is not ClientAuth.NONE
    if asks != config.server_auth_client or (asks and not config.server_trust_cert_path):
        # With only some of them RocketMQ takes any certificate, or asks for none, and seems to check.
        raise TlsConfigError(
            "clients are checked with tls.server.need.client.auth=require (or optional), tls.server.authClient=true "
            "and tls.server.trustCertPath together, or not at all"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_own(context, "tls.server", config.server_cert_path, config.server_key_path, config.server_key_password)
    if asks:
        _load_trusted(context, "tls.server", config.server_trust_cert_path)
        required = config.server_need_client_auth is ClientAuth.REQUIRE
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return TlsServer(context, config.server_mode, config.handshake_timeout_ms, because)


def tls_client(config: TlsConfig) -> TlsClient | None:
    """A client's TLS, None if it speaks none. Raises `TlsConfigError`."""
    if not config.enable:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = config.client_check_hostname
    if config.client_auth_server:
        if config.client_trust_cert_path:
            _load_trusted(context, "tls.client", config.client_trust_cert_path)
        else:
            context.load_default_certs()
    elif config.client_check_hostname:
        raise TlsConfigError("tls.client.checkHostname=true needs tls.client.authServer=true")
    else:
        context.verify_mode = ssl.CERT_NONE
        _log.warning("tls.client.authServer is false: whoever answers is believed to be the server")
    if bool(config.client_cert_path) != bool(config.client_key_path):
        raise TlsConfigError("tls.client.certPath and tls.client.keyPath need each other")
    if config.client_cert_path:
        _load_own(context, "tls.client", config.client_cert_path, config.client_key_path, config.client_key_password)
    return TlsClient(context, config.client_check_hostname, config.handshake_timeout_ms)


def _between_brokers(config: TlsConfig) -> tuple[TlsServer, TlsClient]:
    """What a broker is to its slaves and to its master. Whom it has an authority for it checks, always.

    Raises `TlsConfigError`.
    """
    checks = bool(config.server_trust_cert_path)
    config = attrs.evolve(
        config,
        server_mode=TlsMode.ENFORCING,
        server_need_client_auth=ClientAuth.REQUIRE if checks else ClientAuth.NONE,
        server_auth_client=checks,
        enable=True,
        client_auth_server=config.client_auth_server or bool(config.client_trust_cert_path),
    )
    if not checks:
        _log.warning("haTlsEnable=true without tls.server.trustCertPath: whoever speaks TLS may be a slave")
    server, client = _server(config, "haTlsEnable=true"), tls_client(config)
    assert client is not None, "it is enabled above"
    return server, client


def _load_own(context: ssl.SSLContext, side: str, cert_path: str, key_path: str, password: str) -> None:
    try:
        # Never None: OpenSSL would ask the terminal for an encrypted key's password.
        context.load_cert_chain(cert_path, key_path, password)
    except (OSError, ValueError) as error:
        raise TlsConfigError(
            f"{side}.certPath {cert_path} and {side}.keyPath {key_path} (with {side}.keyPassword) cannot be used "
            f"together: {_reason(error)}"
        ) from error


def _load_trusted(context: ssl.SSLContext, side: str, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        raise TlsConfigError(f"{side}.trustCertPath {path} cannot be used: {_reason(error)}") from error


@attrs.define(eq=False, repr=False)
class TlsServer:
    """Makes the transports of accepted connections."""

    _context: ssl.SSLContext
    _mode: TlsMode
    _handshake_timeout_ms: int
    #: The setting that asks for TLS.
    _because: str

    def transport(self, stream: trio.SocketStream) -> Transport:
        """The transport of a connection. The peer speaks first: only then is it known whether that is TLS."""
        return _AcceptedTransport(stream, self)

    async def accept(self, stream: trio.SocketStream) -> Transport:
        """Wait for the first byte, and shake hands if TLS begins with it. Raises `TlsHandshakeError`, `OSError`.

        The wait has no time-out: idle connections are closed elsewhere.
        """
        first = await stream.socket.recv(1, trio.socket.MSG_PEEK)
        if first and first[0] != _HANDSHAKE_MAGIC_CODE:
            if self._mode is TlsMode.ENFORCING:
                raise TlsHandshakeError(f"plain text, where {self._because} asks for TLS")
            return SocketTransport(stream)
        if not first:
            return SocketTransport(stream)
        tls_stream = trio.SSLStream(stream, self._context, server_side=True, https_compatible=True)
        return await _shake_hands(tls_stream, self._handshake_timeout_ms)

    async def accept_in_time(self, stream: trio.SocketStream) -> TlsTransport:
        """As `accept`, but a peer that says nothing, or ends, is a `TlsHandshakeError`, too."""
        with trio.move_on_after(self._handshake_timeout_ms / 1000):
            transport = await self.accept(stream)
            if not isinstance(transport, TlsTransport):
                raise TlsHandshakeError("the peer closed the connection")
            return transport
        raise _too_slow(self._handshake_timeout_ms)


@attrs.define(eq=False, repr=False)
class TlsClient:
    """Makes the transports of a client's connections."""

    _context: ssl.SSLContext
    _check_hostname: bool
    _handshake_timeout_ms: int

    async def connect(self, stream: trio.SocketStream, host: str) -> TlsTransport:
        """Shake hands with a server. Raises `TlsHandshakeError`; the stream is closed then."""
        server_hostname = host if self._check_hostname else None
        tls_stream = trio.SSLStream(stream, self._context, server_hostname=server_hostname, https_compatible=True)
        try:
            return await _shake_hands(tls_stream, self._handshake_timeout_ms)
        except BaseException:
            stream.socket.close()
            raise


@attrs.frozen
class Tls:
    """The TLS of one process, as a server and as a client."""

    server: TlsServer | None = None
    client: TlsClient | None = None
    #: What a broker is to its slaves, and to its master (haTlsEnable).
    ha_server: TlsServer | None = None
    ha_client: TlsClient | None = None

    @classmethod
    def from_config(cls, config: TlsConfig, *, ha: bool = False) -> Tls:
        """`ha`: between brokers, too (haTlsEnable). Raises `TlsConfigError`."""
        between_brokers = _between_brokers(config) if ha else (None, None)
        return cls(tls_server(config), tls_client(config), *between_brokers)


def _too_slow(timeout_ms: int) -> TlsHandshakeError:
    return TlsHandshakeError(f"no TLS handshake within {timeout_ms} ms")


async def _shake_hands(stream: trio.SSLStream[trio.SocketStream], timeout_ms: int) -> TlsTransport:
    try:
        with trio.fail_after(timeout_ms / 1000):
            await stream.do_handshake()
    except trio.TooSlowError:
        raise _too_slow(timeout_ms) from None
    except trio.BrokenResourceError as error:
        raise TlsHandshakeError(f"no TLS handshake: {_reason(error)}") from error
    return TlsTransport(stream)


def _reason(error: BaseException) -> str:
    """What OpenSSL or the system said, without Trio's words around it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__


@attrs.define(eq=False, repr=False)
class TlsTransport:
    """TLS over TCP, its handshake done."""

    _stream: trio.SSLStream[trio.SocketStream]

    async def receive_into(self, buffer: memoryview) -> int:
        """See `Transport`."""
        try:
            data = await self._stream.receive_some(len(buffer))
        except trio.BrokenResourceError as error:
            raise TlsBrokenError(_reason(error)) from error
        buffer[: len(data)] = data
        return len(data)

    async def send_some(self, data: bytes | memoryview) -> int:
        """See `Transport`: all of it. A cancelled call leaves a connection that nothing can be sent on."""
        try:
            await self._stream.send_all(data)
        except trio.BrokenResourceError as error:
            raise TlsBrokenError(_reason(error)) from error
        return len(data)

    def try_send(self, data: bytes) -> int:
        """See `Transport`: what is encrypted must be sent, and that may have to wait."""
        del data
        return 0

    def close(self) -> None:
        """See `Transport`. No close_notify is sent: the length of each frame says whether it is whole."""
        self._stream.transport_stream.socket.close()


@attrs.define(eq=False, repr=False)
class _AcceptedTransport:
    """A server's connection: plain or TLS, which is known once the peer has sent its first byte."""

    _stream: trio.SocketStream
    _tls: TlsServer
    _transport: Transport | None = attrs.field(default=None, init=False)
    _accepting: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def receive_into(self, buffer: memoryview) -> int:
        """See `Transport`."""
        return await (self._transport or await self._accept()).receive_into(buffer)

    async def send_some(self, data: bytes | memoryview) -> int:
        """See `Transport`."""
        return await (self._transport or await self._accept()).send_some(data)

    def try_send(self, data: bytes) -> int:
        """See `Transport`."""
        return 0 if self._transport is None else self._transport.try_send(data)

    def close(self) -> None:
        """See `Transport`."""
        self._stream.socket.close()

    async def _accept(self) -> Transport:
        async with self._accepting:
            if self._transport is None:
                self._transport = await self._tls.accept(self._stream)
            return self._transport
