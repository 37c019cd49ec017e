"""Spoiled requests to access control, before and after they are signed: allowed, or refused with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from rmq_actors.protocols.plain_access import AclException
from rmq_actors.wire.acl_signature import SessionCredentials, sign_command
from rmq_actors.wire.remoting_command import RemotingCommand, RemotingCommandError, decode_command, encode_command
from tests.fuzz.decoder_case import ERROR_TEXT_CHARS
from tests.fuzz.mutations import Mutator, golden_frames
from tests.worlds.acl_test_data import rules


def run(seed: int) -> Mapping[str, int]:
    """One request by one account. Refused: by what."""
    random = Random(f"access control {seed}")
    mutator = Mutator(random)
    frame = random.choice(golden_frames())
    command = _decoded(mutator.frame(frame) if random.random() < 0.7 else frame)
    if command is None:
        return {"bad_frame": 1}
    if random.random() < 0.9:
        account = random.choice(list(rules().accounts.values()))
        sign_command(command, SessionCredentials(account.access_key, account.secret_key))
    if random.random() < 0.3:
        command = _decoded(mutator.ext_field(encode_command(command)))
        if command is None:
            return {"bad_frame": 1}
    reason = _refusal(command)
    assert len(reason) <= ERROR_TEXT_CHARS
    return {"refused" if reason else "allowed": 1}


def _refusal(command: RemotingCommand) -> str:
    """Why the request is refused, empty if it is not."""
    try:
        rules().validate("10.10.10.10:49152", command)
    except AclException as refused:
        return str(refused)
    return ""


def _decoded(frame: bytes) -> RemotingCommand | None:
    try:
        return decode_command(frame[4:])
    except RemotingCommandError:
        return None
