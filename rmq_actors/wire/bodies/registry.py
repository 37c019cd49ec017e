"""Which body a request has, and which its successful response, by request code. A code that is not here has none."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

from rmq_actors.wire.bodies import (
    broker_stats,
    clients,
    consumer_running_info,
    heartbeat,
    message_queues,
    offsets,
    register_broker,
    routes,
    subscription_groups,
    topic_configs,
)
from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.request_code import RequestCode as Code


class BodyForm(enum.Enum):
    """Bodies that are no JSON."""

    MESSAGE = "the body of a message"
    BATCH = "messages of a batch (`wire.batch`)"
    RECORDS = "records as in the commit log (`wire.record`)"
    PROPERTIES = "a properties file"
    CLASS = "the source of a Java class"


_REQUESTS: dict[int, type[RemotingSerializable] | BodyForm] = {
    Code.SEND_MESSAGE: BodyForm.MESSAGE,
    Code.UPDATE_BROKER_CONFIG: BodyForm.PROPERTIES,
    Code.HEART_BEAT: heartbeat.HeartbeatData,
    Code.CHECK_TRANSACTION_STATE: BodyForm.RECORDS,
    Code.LOCK_BATCH_MQ: message_queues.LockBatchRequestBody,
    Code.UNLOCK_BATCH_MQ: message_queues.UnlockBatchRequestBody,
    Code.CHECK_CLIENT_CONFIG: heartbeat.CheckClientRequestBody,
    Code.REGISTER_BROKER: register_broker.RegisterBrokerBody,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: subscription_groups.SubscriptionGroupConfig,
    Code.RESET_CONSUMER_CLIENT_OFFSET: offsets.ResetOffsetBody,
    Code.REGISTER_MESSAGE_FILTER_CLASS: BodyForm.CLASS,
    Code.CONSUME_MESSAGE_DIRECTLY: BodyForm.RECORDS,
    Code.SEND_MESSAGE_V2: BodyForm.MESSAGE,
    Code.UPDATE_NAMESRV_CONFIG: BodyForm.PROPERTIES,
    Code.SEND_BATCH_MESSAGE: BodyForm.BATCH,
    Code.QUERY_DATA_VERSION: topic_configs.DataVersion,
    Code.SEND_REPLY_MESSAGE: BodyForm.MESSAGE,
    Code.SEND_REPLY_MESSAGE_V2: BodyForm.MESSAGE,
    Code.PUSH_REPLY_MESSAGE_TO_CLIENT: BodyForm.MESSAGE,
}

_RESPONSES: dict[int, type[RemotingSerializable] | BodyForm] = {
    Code.PULL_MESSAGE: BodyForm.RECORDS,
    Code.QUERY_MESSAGE: BodyForm.RECORDS,
    Code.GET_ALL_TOPIC_CONFIG: topic_configs.TopicConfigSerializeWrapper,
    Code.GET_BROKER_CONFIG: BodyForm.PROPERTIES,
    Code.GET_BROKER_RUNTIME_INFO: routes.KVTable,
    Code.VIEW_MESSAGE_BY_ID: BodyForm.RECORDS,
    Code.GET_CONSUMER_LIST_BY_GROUP: clients.GetConsumerListByGroupResponseBody,
    Code.LOCK_BATCH_MQ: message_queues.LockBatchResponseBody,
    Code.GET_ALL_CONSUMER_OFFSET: offsets.ConsumerOffsetSerializeWrapper,
    Code.GET_ALL_DELAY_OFFSET: offsets.DelayOffsetSerializeWrapper,
    Code.REGISTER_BROKER: routes.KVTable,
    Code.GET_ROUTEINFO_BY_TOPIC: routes.TopicRouteData,
    Code.GET_BROKER_CLUSTER_INFO: routes.ClusterInfo,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: subscription_groups.SubscriptionGroupWrapper,
    Code.GET_TOPIC_STATS_INFO: offsets.TopicStatsTable,
    Code.GET_CONSUMER_CONNECTION_LIST: clients.ConsumerConnection,
    Code.GET_PRODUCER_CONNECTION_LIST: clients.ProducerConnection,
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: routes.TopicList,
    Code.GET_CONSUME_STATS: offsets.ConsumeStats,
    Code.GET_KVLIST_BY_NAMESPACE: routes.KVTable,
    Code.GET_CONSUMER_STATUS_FROM_CLIENT: offsets.GetConsumerStatusBody,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: offsets.ResetOffsetBody,
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: offsets.GetConsumerStatusBody,
    Code.GET_TOPICS_BY_CLUSTER: routes.TopicList,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: clients.GroupList,
    Code.QUERY_CONSUME_TIME_SPAN: offsets.QueryConsumeTimeSpanBody,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: routes.TopicList,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: routes.TopicList,
    Code.GET_CONSUMER_RUNNING_INFO: consumer_running_info.ConsumerRunningInfo,
    Code.QUERY_CORRECTION_OFFSET: offsets.QueryCorrectionOffsetBody,
    Code.CONSUME_MESSAGE_DIRECTLY: consumer_running_info.ConsumeMessageDirectlyResult,
    Code.GET_UNIT_TOPIC_LIST: routes.TopicList,
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: routes.TopicList,
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: routes.TopicList,
    Code.VIEW_BROKER_STATS_DATA: broker_stats.BrokerStatsData,
    Code.GET_BROKER_CONSUME_STATS: offsets.ConsumeStatsList,
    Code.GET_NAMESRV_CONFIG: BodyForm.PROPERTIES,
    Code.QUERY_CONSUME_QUEUE: broker_stats.QueryConsumeQueueResponseBody,
    Code.QUERY_DATA_VERSION: topic_configs.DataVersion,
    Code.GET_ALL_PRODUCER_INFO: clients.ProducerTableInfo,
}

#: The body of each request. REGISTER_BROKER's may be compressed (`RegisterBrokerBody.decode`); a client in C++ gets
#: `ResetOffsetBodyForC` with RESET_CONSUMER_CLIENT_OFFSET.
REQUEST_BODIES: Mapping[int, type[RemotingSerializable] | BodyForm] = MappingProxyType(_REQUESTS)
#: The body of each response whose code is SUCCESS; some leave it out when there is nothing to say.
RESPONSE_BODIES: Mapping[int, type[RemotingSerializable] | BodyForm] = MappingProxyType(_RESPONSES)
