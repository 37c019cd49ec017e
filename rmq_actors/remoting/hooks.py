"""Hooks that look at each request and answer (RPCHook), above all for access control."""

from __future__ import annotations

from typing import Protocol

from rmq_actors.wire.remoting_command import RemotingCommand


class RpcRefused(Exception):
    """A hook forbids a request: the peer is answered `code` with `remark`."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class RpcHook(Protocol):
    """Called on both sides: by a client around what it sends, by a server around what it processes."""

    def before_request(self, remote_address: str, command: RemotingCommand) -> None:
        """Look at a request, or add fields to it. Raises `RpcRefused`, on a server: it is answered with that."""
        ...

    def after_response(self, remote_address: str, request: RemotingCommand, response: RemotingCommand) -> None:
        """Look at an answer."""
        ...
