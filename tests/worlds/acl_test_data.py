"""What the real access control said to many requests (`tests/interop/acl_vectors.py`), and its rules as values."""

from __future__ import annotations

import base64
import functools
import json
from pathlib import Path
from typing import Any

from rmq_actors.protocols.plain_access import PlainAccessRules
from rmq_actors.remoting.plain_acl_file import parse_plain_acl
from rmq_actors.wire.remoting_command import RemotingCommand

DIRECTORY = Path(__file__).parents[1] / "golden" / "acl"


@functools.cache
def vectors(kind: str) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = json.loads((DIRECTORY / "vectors.json").read_text())[kind]
    assert len(answers) > 30
    return answers


@functools.cache
def rules() -> PlainAccessRules:
    path = DIRECTORY / "plain_acl.yml"
    return parse_plain_acl({path.name: path.read_bytes()})


def command_of(vector: dict[str, Any]) -> RemotingCommand:
    return RemotingCommand(
        vector.get("code", 310), dict(vector["ext_fields"]), body=base64.b64decode(vector["body"]), version=407
    )
