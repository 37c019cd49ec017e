"""Access control as hooks (AclClientRPCHook, and what a broker makes of its AccessValidator)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import attrs

from rmq_actors.protocols.plain_access import AclException, Permission, PlainAccessRules
from rmq_actors.remoting.hooks import RpcRefused
from rmq_actors.tracing.events.remoting import RemotingDenied
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.acl_signature import SessionCredentials, sign_command
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.response_code import ResponseCode

_log = logging.getLogger(__name__)

#: How the answer to a refused request begins: RocketMQ's clients and their users recognise it by that.
_JAVA_NAME = "org.apache.rocketmq.acl.common.AclException"


@attrs.define(eq=False, repr=False)
class AclClientRpcHook:
    """Signs what a client sends (AclClientRPCHook)."""

    _credentials: SessionCredentials

    def before_request(self, remote_address: str, command: RemotingCommand) -> None:
        """See `RpcHook`."""
        sign_command(command, self._credentials)

    def after_response(self, remote_address: str, request: RemotingCommand, response: RemotingCommand) -> None:
        """See `RpcHook`."""


@attrs.define(eq=False, repr=False)
class AclServerRpcHook:
    """Refuses requests that the present rules do not allow, with SYSTEM_ERROR as RocketMQ does."""

    name = "PlainAccessValidator"
    _rules: Callable[[], PlainAccessRules]
    _tracer: Tracer

    def before_request(self, remote_address: str, command: RemotingCommand) -> None:
        """See `RpcHook`."""
        self._check(remote_address, command, None)

    def authorize(self, remote_address: str, command: RemotingCommand, needed: Mapping[str, Permission]) -> None:
        """Refuse a request that was let through, if what it is about shows that it needs more."""
        self._check(remote_address, command, needed)

    def _check(self, remote_address: str, command: RemotingCommand, needed: Mapping[str, Permission] | None) -> None:
        try:
            if needed is None:
                self._rules().validate(remote_address, command)
            else:
                self._rules().authorize(remote_address, command, needed)
        except AclException as error:
            reason = str(error)
            _log.warning("%s: %s: request %d refused: %r", self.name, remote_address, command.code, reason)
            self._tracer.emit(RemotingDenied(peer_address=remote_address, code=command.code, detail=reason[:200]))
            raise RpcRefused(ResponseCode.SYSTEM_ERROR, f"{_JAVA_NAME}: {reason}") from error

    def after_response(self, remote_address: str, request: RemotingCommand, response: RemotingCommand) -> None:
        """See `RpcHook`."""
