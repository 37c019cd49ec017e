"""Signatures: RocketMQ's own, and what a signature holds for."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rmq_actors.wire.acl_signature import ACCESS_KEY, SIGNATURE, SessionCredentials, is_signed_by, sign_command
from rmq_actors.wire.remoting_command import RemotingCommand, decode_command, encode_command
from tests.worlds.acl_test_data import command_of, vectors

CREDENTIALS = SessionCredentials("RocketMQ", "12345678")
FIELDS = st.dictionaries(st.text(max_size=12), st.text(max_size=12), max_size=8)
V4_9_3, V4_9_4 = 399, 401


def signed(fields: dict[str, str] | None, body: bytes = b"", version: int = 407) -> RemotingCommand:
    command = RemotingCommand(310, fields, body=body, version=version)
    sign_command(command, CREDENTIALS)
    return command


@pytest.mark.parametrize("vector", vectors("signatures"), ids=range(len(vectors("signatures"))))
def test_the_signature_is_rocketmqs(vector: dict[str, Any]) -> None:
    command = command_of(vector)
    sign_command(command, SessionCredentials("RocketMQ", "12345678 ü", vector["security_token"]))
    assert command.ext_fields is not None
    assert command.ext_fields[SIGNATURE] == vector["signature"]
    assert command.ext_fields.get("SecurityToken") == vector["security_token"]


def test_a_request_without_fields_gets_them() -> None:
    assert set(signed(None).ext_fields or {}) == {ACCESS_KEY, SIGNATURE}


@given(fields=FIELDS, body=st.binary(max_size=32), secret_key=st.text(min_size=1))
def test_one_key_fits(fields: dict[str, str], body: bytes, secret_key: str) -> None:
    command = signed(fields, body)
    assert is_signed_by(command, CREDENTIALS.secret_key)
    assert is_signed_by(command, secret_key) == (secret_key == CREDENTIALS.secret_key)


def test_fields_that_requests_share_stay_as_they_are() -> None:
    shared = {"b": "topicA"}
    signed(shared)
    assert shared == {"b": "topicA"}


@given(fields=FIELDS, body=st.binary(max_size=32))
def test_what_is_sent_again_is_signed_again(fields: dict[str, str], body: bytes) -> None:
    command = signed(fields, body)
    before = copy.deepcopy(command)
    sign_command(command, CREDENTIALS)
    assert command == before


@given(fields=FIELDS, body=st.binary(max_size=32), name=st.text(max_size=12), value=st.text(max_size=12))
def test_no_field_can_be_changed_without_the_key(fields: dict[str, str], body: bytes, name: str, value: str) -> None:
    command = signed(fields, body)
    assert command.ext_fields is not None
    assume(name != SIGNATURE and command.ext_fields.get(name, "") != value)
    before = dict(command.ext_fields)
    command.ext_fields[name] = value
    # Where one value ends and the next begins is not signed: that is RocketMQ's signature.
    assume(text_of(command.ext_fields) != text_of(before))
    assert not is_signed_by(command, CREDENTIALS.secret_key)


def text_of(fields: dict[str, str]) -> str:
    return "".join(
        fields[name] for name in sorted(fields, key=lambda name: name.encode("utf-16-be")) if name != SIGNATURE
    )


@given(fields=FIELDS, body=st.binary(max_size=32), other=st.binary(max_size=32))
def test_the_body_cannot_be_changed_without_the_key(fields: dict[str, str], body: bytes, other: bytes) -> None:
    assume(body != other)
    command = signed(fields, body)
    command.body = other
    assert not is_signed_by(command, CREDENTIALS.secret_key)


@pytest.mark.parametrize("signature", [None, "", "=", "\udcff", "ü" * 28, "A" * 28, "A" * 100_000])
def test_a_missing_or_odd_signature_is_a_wrong_one(signature: str | None) -> None:
    command = signed({"b": "topicA"})
    assert command.ext_fields is not None
    del command.ext_fields[SIGNATURE]
    if signature is not None:
        command.ext_fields[SIGNATURE] = signature
    assert not is_signed_by(command, CREDENTIALS.secret_key)


def test_nothing_to_sign_and_no_signature_is_a_wrong_one() -> None:
    assert not is_signed_by(RemotingCommand(310), CREDENTIALS.secret_key)


@given(fields=FIELDS, body=st.binary(max_size=32))
def test_a_signature_survives_the_wire(fields: dict[str, str], body: bytes) -> None:
    command = signed({name: value for name, value in fields.items() if name}, body)
    assert is_signed_by(decode_command(encode_command(command)[4:]), CREDENTIALS.secret_key)


def test_a_lone_surrogate_is_signed_as_java_writes_it() -> None:
    """JSON can carry one; UTF-8 cannot. Java writes a question mark."""
    lone, question_mark = signed({"b": "\ud800"}), signed({"b": "?"})
    assert lone.ext_fields is not None
    assert question_mark.ext_fields is not None
    assert lone.ext_fields[SIGNATURE] == question_mark.ext_fields[SIGNATURE]


@pytest.mark.parametrize(
    ("version", "left_out"), [(0, True), (317, True), (V4_9_3, True), (V4_9_4, False), (407, False), (461, False)]
)
def test_clients_up_to_4_9_3_mark_unique_keys_after_the_signature(version: int, left_out: bool) -> None:
    """4.9.4 to 4.9.8 sign the mark, and their brokers leave it out for everybody: such a query is refused there."""
    marked = signed({"topic": "topicA", "_UNIQUE_KEY_QUERY": "true"}, version=version)
    assert is_signed_by(marked, CREDENTIALS.secret_key) != left_out
    late = signed({"topic": "topicA"}, version=version)
    assert late.ext_fields is not None
    late.ext_fields["_UNIQUE_KEY_QUERY"] = "true"
    assert is_signed_by(late, CREDENTIALS.secret_key) == left_out


def test_secrets_are_not_shown() -> None:
    assert repr(SessionCredentials("RocketMQ", "12345678", "a token")) == "SessionCredentials(access_key='RocketMQ')"
