"""Answers operators who look at accounts, and change them (a part of AdminBrokerProcessor, PlainPermissionManager).

Each change is checked with all other files, is durable before it is answered, and holds from then on. The rules of
access control keep everybody but administrators from asking.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import attrs

from rmq_actors.broker.client_requests import ClientRequests
from rmq_actors.ports.wall_clock import WallClock
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.hooks import RpcRefused
from rmq_actors.remoting.plain_acl_edits import (
    has_account,
    shown_accounts,
    version_of,
    with_account,
    with_white_addresses,
    without_account,
)
from rmq_actors.remoting.plain_acl_file import AclFileWatchService, PlainAclError
from rmq_actors.remoting.processor import ProcessorTable, RequestPool
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.plain_access import GetBrokerClusterAclConfigResponseBody, PlainAccessConfig
from rmq_actors.wire.bodies.topic_configs import DataVersion
from rmq_actors.wire.headers import decode_header, encode_header
from rmq_actors.wire.headers.admin import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode, RequestCode497
from rmq_actors.wire.response_code import ResponseCode

_log = logging.getLogger(__name__)


@attrs.frozen(eq=False)
class PlainAccessProcessor:
    """Changes are made one after the other, in the pool that is given to `register`."""

    _clients: ClientRequests
    _files: AclFileWatchService
    _broker_addr: Callable[[], str]
    _wall_clock: WallClock

    def register(self, processors: ProcessorTable, pool: RequestPool) -> None:
        """Take the request codes."""
        for code, process in (
            (RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, self._update_access_config),
            (RequestCode.DELETE_ACL_CONFIG, self._delete_access_config),
            (RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, self._update_white_addrs),
        ):
            processors.register_pooled([code], process, pool)
        processors.register([RequestCode.GET_BROKER_CLUSTER_ACL_INFO], self._get_version)
        processors.register([RequestCode497.GET_BROKER_CLUSTER_ACL_CONFIG], self._get_config)

    # --- changes ------------------------------------------------------------------------------------------------------

    async def _update_access_config(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(CreateAccessConfigRequestHeader, request.command)
        failed = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        if not header.secret_key:
            raise RpcRefused(failed, f"account {header.access_key}: a secretKey is needed, of 7 characters or more")
        config = PlainAccessConfig(
            access_key=header.access_key,
            admin=header.admin,
            default_group_perm=header.default_group_perm,
            default_topic_perm=header.default_topic_perm,
            group_perms=_split(header.group_perms),
            secret_key=header.secret_key,
            topic_perms=_split(header.topic_perms),
            white_remote_address=header.white_remote_address,
        )
        path = self._file_of(header.access_key) or self._files.file
        return await self._change(
            request, failed, path, lambda data: with_account(path, data, config, self._wall_clock.now_ms())
        )

    async def _delete_access_config(self, request: RemotingRequest) -> RemotingCommand:
        access_key = decode_header(DeleteAccessConfigRequestHeader, request.command).access_key
        failed, path = ResponseCode.DELETE_ACL_CONFIG_FAILED, self._file_of(access_key)
        if path is None:
            raise RpcRefused(
                failed, f"The accesskey[{access_key}] corresponding to accessConfig has been deleted failed."
            )
        return await self._change(
            request, failed, path, lambda data: without_account(path, data, access_key, self._wall_clock.now_ms())
        )

    async def _update_white_addrs(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(UpdateGlobalWhiteAddrsConfigRequestHeader, request.command)
        failed, named = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED, header.acl_file_full_path
        path = named.lstrip("/") if named else self._files.file
        if named and path not in self._files.contents:
            raise RpcRefused(failed, f"{named} is not one of the files of accounts")
        addresses = [address.strip() for address in header.global_white_addrs.split(",") if address.strip()]
        return await self._change(
            request, failed, path, lambda data: with_white_addresses(path, data, addresses, self._wall_clock.now_ms())
        )

    def _file_of(self, access_key: str) -> str | None:
        found = (path for path, data in self._files.contents.items() if has_account(path, data, access_key))
        return next(found, None)

    async def _change(
        self, request: RemotingRequest, failed: ResponseCode, path: str, edit: Callable[[bytes], bytes]
    ) -> RemotingCommand:
        who, code = request.connection.remote_address, request.command.code
        try:
            self._files.load()  # what an operator has written by hand is not overwritten
            await self._files.persist(path, edit(self._files.contents.get(path, b"")))
        except (PlainAclError, OSError) as error:
            _log.warning("%s: request %d is refused: %s", who, code, error)
            raise RpcRefused(failed, str(error)) from error
        _log.info("%s: request %d has changed %s", who, code, self._files.shown(path))
        return request.command.response(ResponseCode.SUCCESS)

    # --- looks --------------------------------------------------------------------------------------------------------

    def _get_version(self, request: RemotingRequest) -> RemotingCommand:
        versions = {f"/{path}": version_of(path, data) for path, data in self._files.contents.items()}
        config = self._clients.config()
        header = GetBrokerAclConfigResponseHeader(
            version=encode_body(versions.get(f"/{self._files.file}", DataVersion())).decode(),
            broker_name=config.broker_name,
            broker_addr=self._broker_addr(),
            cluster_name=config.broker_cluster_name,
            all_acl_file_version=encode_body(versions).decode(),
        )
        return request.command.response(ResponseCode.SUCCESS, None, encode_header(header))

    def _get_config(self, request: RemotingRequest) -> RemotingCommand:
        shown = [shown_accounts(path, data) for path, data in self._files.contents.items()]
        body = GetBrokerClusterAclConfigResponseBody(
            global_white_addrs=[address for addresses, _ in shown for address in addresses],
            plain_access_configs=[account for _, accounts in shown for account in accounts],
        )
        return request.command.response(ResponseCode.SUCCESS, body=encode_body(body))


def _split(text: str | None) -> list[str] | None:
    return None if text is None else [each for each in text.split(",") if each.strip()]
