"""Certificates for tests, made again for each process: files as an operator has them."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

import attrs
import trustme
from cryptography.hazmat.primitives import serialization

from rmq_actors.remoting.tls import ClientAuth, TlsConfig, TlsMode

KEY_PASSWORD = "the-key-of-the-key"


@attrs.frozen
class CertificateFiles:
    """Paths. Keys are in PKCS#8, as netty wants them; `encrypted_key` is `key` with a password on it."""

    trust: str
    cert: str
    key: str
    encrypted_key: str


@functools.cache
def certificates(authority: str, name: str = "localhost") -> CertificateFiles:
    """What the certificate authority of that name gives to the host of that name."""
    directory = Path(tempfile.mkdtemp(prefix="tls-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    ca = _authority(authority)
    leaf = ca.issue_cert(name)
    trust, cert, key, encrypted = (str(directory / file) for file in ("ca.pem", "cert.pem", "key.pem", "encrypted.pem"))
    ca.cert_pem.write_to_path(trust)
    for blob in leaf.cert_chain_pems:
        blob.write_to_path(cert, append=True)
    private_key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    protection = serialization.BestAvailableEncryption(KEY_PASSWORD.encode())
    for path, encryption in ((key, serialization.NoEncryption()), (encrypted, protection)):
        pem = private_key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        Path(path).write_bytes(pem)
    return CertificateFiles(trust, cert, key, encrypted)


@functools.cache
def _authority(name: str) -> trustme.CA:
    return trustme.CA(organization_name=name)


def tls_server_config(mode: TlsMode = TlsMode.ENFORCING, *, asks: ClientAuth = ClientAuth.NONE) -> TlsConfig:
    """A server that our authority vouches for, and that trusts clients of our authority."""
    files = certificates("ours")
    config = TlsConfig(server_mode=mode, server_key_path=files.key, server_cert_path=files.cert)
    if asks is ClientAuth.NONE:
        return config
    return attrs.evolve(
        config, server_need_client_auth=asks, server_auth_client=True, server_trust_cert_path=files.trust
    )


def tls_client_config(trusts: str = "ours", *, has_cert_of: str = "") -> TlsConfig:
    """A client that trusts one authority, and may have a certificate of one."""
    config = TlsConfig(enable=True, client_auth_server=True, client_trust_cert_path=certificates(trusts).trust)
    if not has_cert_of:
        return config
    files = certificates(has_cert_of, "a-client")
    return attrs.evolve(config, client_cert_path=files.cert, client_key_path=files.key)
