"""Which account may do what (PlainAccessValidator, PlainPermissionManager): accounts, needs of a request, verdict.

A request is let through when one of these holds: its peer's address is on the global white list; it names an account,
and the address is on that account's own white list, which stands for the signature and for every permission; it is
signed with the account's secret key, and the account has each permission that the request needs.

Groups are resources under the name of their retry topic. Where RocketMQ 4.9 lets requests around the rules, those of
5.3 hold: SEND_BATCH_MESSAGE needs what a send needs, a send to a retry topic needs that topic's own group (#7917), and
the codes that read or change accounts are an administrator's. Replies are held to the rules of sends, but for reply
topics, which nobody is given.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import attrs

from rmq_actors.protocols.remote_address import RemoteAddressStrategy
from rmq_actors.wire.acl_signature import ACCESS_KEY, is_signed_by
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.heartbeat import HeartbeatData
from rmq_actors.wire.bodies.message_queues import LockBatchRequestBody
from rmq_actors.wire.remoting_command import RemotingCommand, RemotingCommandError
from rmq_actors.wire.request_code import OwnRequestCode, RequestCode, RequestCode497

RETRY_GROUP_TOPIC_PREFIX = "%RETRY%"
REPLY_TOPIC_POSTFIX = "_REPLY_TOPIC"
RMQ_SYS_TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"

#: What only an administrator's account may ask for (Permission.ADMIN_CODE).
ADMIN_CODES: frozenset[int] = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode497.GET_BROKER_CLUSTER_ACL_CONFIG,
        RequestCode.GET_ALL_PRODUCER_INFO,
        RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        OwnRequestCode.TRUNCATE_LOG,
        OwnRequestCode.BEGIN_EXCHANGE,
        OwnRequestCode.PREPARE_EXCHANGE,
        OwnRequestCode.PROMOTE_EXCHANGE,
        OwnRequestCode.FOLLOW_AGAIN,
    }
)

_DENY = 1
#: How many characters of a peer's text are shown.
_SHOWN_MAX = 128


class Permission(enum.IntFlag):
    """What an account may do with a topic or a group. DENY outweighs the others."""

    DENY = 1
    PUB = 4
    SUB = 8

    def allows(self, needed: Permission) -> bool:
        """Whether an account with this permission may do what needs `needed`."""
        owned = int(self)  # as flags the operations take ten times as long
        return not owned & _DENY and owned & int(needed) != 0


class AclException(Exception):
    """A request that is not allowed; the text is RocketMQ's."""


@attrs.frozen
class PlainAccessResource:
    """One account. The secret key is never shown."""

    access_key: str
    secret_key: str = attrs.field(repr=False)
    white_remote_address: RemoteAddressStrategy | None = None
    admin: bool = False
    default_topic_perm: Permission = Permission.DENY
    default_group_perm: Permission = Permission.DENY
    #: By topic; a group is its retry topic.
    resource_perms: Mapping[str, Permission] = attrs.field(factory=dict)


@attrs.frozen
class PlainAccessRules:
    """All accounts of a broker, by access key, and the addresses that need no account."""

    accounts: Mapping[str, PlainAccessResource] = attrs.field(factory=dict)
    global_white_remote_addresses: Sequence[RemoteAddressStrategy] = ()

    def validate(self, remote_address: str, command: RemotingCommand) -> None:
        """Raise `AclException` for a request that "host:port" may not make."""
        account = self._account(remote_address, command)
        if account is None:
            return
        if not is_signed_by(command, account.secret_key):
            raise AclException(f"Check signature failed for accessKey={account.access_key}")
        needed = needed_permissions(command)
        if needed.get(RMQ_SYS_TRACE_TOPIC) != Permission.PUB:  # every account may leave traces of its messages
            _check_permissions(command.code, needed, account)

    def authorize(self, remote_address: str, command: RemotingCommand, needed: Mapping[str, Permission]) -> None:
        """Raise `AclException` for a validated request that needs more than could be seen before it was looked into."""
        account = self._account(remote_address, command)
        if account is not None:
            _check_permissions(command.code, needed, account)

    def _account(self, remote_address: str, command: RemotingCommand) -> PlainAccessResource | None:
        """The account that a request must be signed by; None where its address stands for everything."""
        host = remote_address.rpartition(":")[0]
        for strategy in self.global_white_remote_addresses:
            if strategy.match(host):
                return None
        access_key = (command.ext_fields or {}).get(ACCESS_KEY)
        if access_key is None:
            raise AclException("No accessKey is configured")
        account = self.accounts.get(access_key)
        if account is None:
            raise AclException(f"No acl config for {access_key[:_SHOWN_MAX]}")
        if account.white_remote_address is not None and account.white_remote_address.match(host):
            return None
        return account


def needed_permissions(command: RemotingCommand) -> dict[str, Permission]:
    """What a request needs, by resource. Raises `AclException` for a heartbeat that cannot be read."""
    resources_of = _RESOURCES.get(command.code)
    return {} if resources_of is None else resources_of(command)


def rule_of(code: int) -> Literal["administrator", "topics and groups", "account"]:
    """What a request needs beside an account: to be an administrator's, permissions of what it names, or nothing.

    Processors ask for more where only the answer shows what it is about (VIEW_MESSAGE_BY_ID, END_TRANSACTION).
    """
    if code in ADMIN_CODES:
        return "administrator"
    return "topics and groups" if code in _RESOURCES else "account"


def permission_to_send(topic: str) -> Permission:
    """What sending to a topic needs: a retry topic stands for its group."""
    return Permission.SUB if topic.startswith(RETRY_GROUP_TOPIC_PREFIX) else Permission.PUB


def retry_topic(group: str) -> str:
    """The resource that stands for a consumer group (MixAll.getRetryTopic)."""
    return RETRY_GROUP_TOPIC_PREFIX + group


def _check_permissions(code: int, needed: Mapping[str, Permission], account: PlainAccessResource) -> None:
    if code in ADMIN_CODES and not account.admin:
        raise AclException(f"Need admin permission for request code={code}, but accessKey={account.access_key} is not")
    if account.admin and not account.resource_perms:
        return
    for resource, permission in needed.items():
        group = resource.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
        is_group = group != resource
        default = account.default_group_perm if is_group else account.default_topic_perm
        if not account.resource_perms.get(resource, default).allows(permission):
            shown = f"group:{group}" if is_group else f"topic:{resource}"
            raise AclException(f"No default permission for {shown[:_SHOWN_MAX]}")


_Resources = dict[str, Permission]


def _send(topic_field: str) -> Callable[[RemotingCommand], _Resources]:
    def resources(command: RemotingCommand) -> _Resources:
        topic = (command.ext_fields or {}).get(topic_field)
        if topic is None:
            return {}
        return {topic: permission_to_send(topic)}

    return resources


def _reply(topic_field: str) -> Callable[[RemotingCommand], _Resources]:
    send = _send(topic_field)

    def resources(command: RemotingCommand) -> _Resources:
        needed = send(command)
        return {topic: needed[topic] for topic in needed if not topic.endswith(REPLY_TOPIC_POSTFIX)}

    return resources


def _look(topic_field: str) -> Callable[[RemotingCommand], _Resources]:
    """What producers of a topic may know, and its consumers."""

    def resources(command: RemotingCommand) -> _Resources:
        topic = (command.ext_fields or {}).get(topic_field)
        return {} if topic is None else {topic: Permission.PUB | Permission.SUB}

    return resources


def _stats(command: RemotingCommand) -> _Resources:
    """Statistics of a topic, and of a group in it; those of the whole broker every account may see."""
    fields = command.ext_fields or {}
    topic, _, group = fields.get("statsKey", "").partition("@")
    if fields.get("statsName", "").startswith("BROKER_"):
        return {}
    return {topic: Permission.PUB | Permission.SUB, **({retry_topic(group): Permission.SUB} if group else {})}


def _clone(command: RemotingCommand) -> _Resources:
    return _subscribe("srcGroup", "topic")(command) | _subscribe("destGroup")(command)


def _locks(command: RemotingCommand) -> _Resources:
    try:
        asked = decode_body(LockBatchRequestBody, command.body)
    except RemotingCommandError as error:
        raise AclException(str(error)) from error
    topics = {queue.topic: Permission.SUB for queue in asked.mq_set}
    return {retry_topic(asked.consumer_group): Permission.SUB, **topics}


def _subscribe(group_field: str | None, topic_field: str | None = None) -> Callable[[RemotingCommand], _Resources]:
    def resources(command: RemotingCommand) -> _Resources:
        fields, needed = command.ext_fields or {}, {}
        if topic_field is not None and fields.get(topic_field):
            needed[fields[topic_field]] = Permission.SUB
        if group_field is not None and group_field in fields:
            needed[retry_topic(fields[group_field])] = Permission.SUB
        return needed

    return resources


def _heartbeat(command: RemotingCommand) -> _Resources:
    try:
        heartbeat = decode_body(HeartbeatData, command.body)
    except RemotingCommandError as error:
        raise AclException(str(error)) from error
    needed = {}
    for consumer in heartbeat.consumer_data_set:
        needed[retry_topic(consumer.group_name)] = Permission.SUB
        for subscription in consumer.subscription_data_set:
            needed[subscription.topic] = Permission.SUB
    return needed


_RESOURCES: Mapping[int, Callable[[RemotingCommand], _Resources]] = {
    RequestCode.SEND_MESSAGE: _send("topic"),
    RequestCode.SEND_MESSAGE_V2: _send("b"),
    RequestCode.SEND_BATCH_MESSAGE: _send("b"),
    RequestCode.SEND_REPLY_MESSAGE: _reply("topic"),
    RequestCode.SEND_REPLY_MESSAGE_V2: _reply("b"),
    RequestCode.CONSUMER_SEND_MSG_BACK: _subscribe("group"),
    RequestCode.PULL_MESSAGE: _subscribe("consumerGroup", "topic"),
    RequestCode.QUERY_MESSAGE: _subscribe(None, "topic"),
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: _subscribe("consumerGroup"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _subscribe("consumerGroup"),
    RequestCode.UPDATE_CONSUMER_OFFSET: _subscribe("consumerGroup", "topic"),
    RequestCode.QUERY_CONSUMER_OFFSET: _subscribe("consumerGroup", "topic"),
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.GET_MAX_OFFSET: _look("topic"),
    RequestCode.GET_MIN_OFFSET: _look("topic"),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _look("topic"),
    RequestCode.GET_EARLIEST_MSG_STORETIME: _look("topic"),
    RequestCode.GET_TOPIC_STATS_INFO: _look("topic"),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _look("topic"),
    RequestCode.GET_CONSUME_STATS: _subscribe("consumerGroup", "topic"),
    RequestCode.VIEW_BROKER_STATS_DATA: _stats,
    RequestCode.QUERY_CONSUME_QUEUE: _subscribe(None, "topic"),
    RequestCode.QUERY_CONSUME_TIME_SPAN: _subscribe("group", "topic"),
    RequestCode.QUERY_CORRECTION_OFFSET: _subscribe("compareGroup", "topic"),
    RequestCode.CLONE_GROUP_OFFSET: _clone,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _subscribe("consumerGroup"),
    RequestCode.GET_CONSUMER_RUNNING_INFO: _subscribe("consumerGroup"),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _subscribe("consumerGroup"),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _subscribe("group", "topic"),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _subscribe("group", "topic"),
}
