"""Signed requests (SessionCredentials, AclUtils, AclSigner): the sender and the proof, in three extension fields.

The values of all extension fields but the signature are signed, in the order of their names, and the body after them.
The signature is the HMAC-SHA1 of that with the account's secret key, in base64.
"""

from __future__ import annotations

import binascii
import hmac
from collections.abc import Mapping

import attrs

from rmq_actors.wire.remoting_command import RemotingCommand

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105 - the name of a field

#: QUERY_MESSAGE's mark of a query by unique key (MixAll.UNIQUE_MSG_QUERY_FLAG).
_UNIQUE_MSG_QUERY_FLAG = "_UNIQUE_KEY_QUERY"
#: MQVersion.V4_9_3: until then clients added that mark after the signature.
_VERSION_OF_LATE_MARK = 399


@attrs.frozen
class SessionCredentials:
    """An account as a client knows it. The secret key is never shown."""

    access_key: str
    secret_key: str = attrs.field(repr=False)
    security_token: str | None = attrs.field(default=None, repr=False)


def sign_command(command: RemotingCommand, credentials: SessionCredentials) -> None:
    """Put the account and the signature into a request whose other fields are complete; again, if it is sent again."""
    ext_fields = {**(command.ext_fields or {}), ACCESS_KEY: credentials.access_key}
    if credentials.security_token is not None:
        ext_fields[SECURITY_TOKEN] = credentials.security_token
    content = _content(ext_fields, command.body, SIGNATURE)
    ext_fields[SIGNATURE] = _signature(content, credentials.secret_key).decode()
    command.ext_fields = ext_fields


def is_signed_by(command: RemotingCommand, secret_key: str) -> bool:
    """Whether a request bears the signature that this key gives. Takes as long for any wrong one of that length."""
    ext_fields = command.ext_fields or {}
    left_out = [SIGNATURE]
    if command.version <= _VERSION_OF_LATE_MARK:
        left_out.append(_UNIQUE_MSG_QUERY_FLAG)
    expected = _signature(_content(ext_fields, command.body, *left_out), secret_key)
    return hmac.compare_digest(expected, _bytes(ext_fields.get(SIGNATURE, "")))


def _content(ext_fields: Mapping[str, str], body: bytes, *left_out: str) -> bytes:
    """What is signed."""
    names = sorted(ext_fields, key=None if all(map(str.isascii, ext_fields)) else _utf_16)
    return _bytes("".join([ext_fields[name] for name in names if name not in left_out])) + body


def _signature(content: bytes, secret_key: str) -> bytes:
    return binascii.b2a_base64(hmac.digest(secret_key.encode(), content, "sha1"), newline=False)


def _utf_16(name: str) -> bytes:
    """Sorts as Java does: by UTF-16 code units."""
    return name.encode("utf-16-be", "surrogatepass")


def _bytes(text: str) -> bytes:
    """UTF-8 as Java writes it: a surrogate that stands alone is a question mark."""
    return text.encode("utf-8", "replace")
