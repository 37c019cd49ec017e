"""Which header a request has, and which its response, by request code. None: no header of its own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rmq_actors.wire.headers import admin, clients, messages, namesrv, offsets, topics, transactions
from rmq_actors.wire.headers.codec import CommandHeader
from rmq_actors.wire.request_code import RequestCode as Code

_REQUESTS: dict[int, type[CommandHeader]] = {
    Code.SEND_MESSAGE: messages.SendMessageRequestHeader,
    Code.PULL_MESSAGE: offsets.PullMessageRequestHeader,
    Code.QUERY_MESSAGE: messages.QueryMessageRequestHeader,
    Code.QUERY_CONSUMER_OFFSET: offsets.QueryConsumerOffsetRequestHeader,
    Code.UPDATE_CONSUMER_OFFSET: offsets.UpdateConsumerOffsetRequestHeader,
    Code.UPDATE_AND_CREATE_TOPIC: topics.CreateTopicRequestHeader,
    Code.SEARCH_OFFSET_BY_TIMESTAMP: offsets.SearchOffsetRequestHeader,
    Code.GET_MAX_OFFSET: offsets.GetMaxOffsetRequestHeader,
    Code.GET_MIN_OFFSET: offsets.GetMinOffsetRequestHeader,
    Code.GET_EARLIEST_MSG_STORETIME: offsets.GetEarliestMsgStoretimeRequestHeader,
    Code.VIEW_MESSAGE_BY_ID: messages.ViewMessageRequestHeader,
    Code.UNREGISTER_CLIENT: clients.UnregisterClientRequestHeader,
    Code.CONSUMER_SEND_MSG_BACK: messages.ConsumerSendMsgBackRequestHeader,
    Code.END_TRANSACTION: transactions.EndTransactionRequestHeader,
    Code.GET_CONSUMER_LIST_BY_GROUP: clients.GetConsumerListByGroupRequestHeader,
    Code.CHECK_TRANSACTION_STATE: transactions.CheckTransactionStateRequestHeader,
    Code.NOTIFY_CONSUMER_IDS_CHANGED: clients.NotifyConsumerIdsChangedRequestHeader,
    Code.UPDATE_AND_CREATE_ACL_CONFIG: admin.CreateAccessConfigRequestHeader,
    Code.DELETE_ACL_CONFIG: admin.DeleteAccessConfigRequestHeader,
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: admin.UpdateGlobalWhiteAddrsConfigRequestHeader,
    Code.PUT_KV_CONFIG: namesrv.PutKVConfigRequestHeader,
    Code.GET_KV_CONFIG: namesrv.GetKVConfigRequestHeader,
    Code.DELETE_KV_CONFIG: namesrv.DeleteKVConfigRequestHeader,
    Code.REGISTER_BROKER: namesrv.RegisterBrokerRequestHeader,
    Code.UNREGISTER_BROKER: namesrv.UnRegisterBrokerRequestHeader,
    Code.GET_ROUTEINFO_BY_TOPIC: topics.GetRouteInfoRequestHeader,
    Code.GET_TOPIC_STATS_INFO: topics.GetTopicStatsInfoRequestHeader,
    Code.GET_CONSUMER_CONNECTION_LIST: clients.GetConsumerConnectionListRequestHeader,
    Code.GET_PRODUCER_CONNECTION_LIST: clients.GetProducerConnectionListRequestHeader,
    Code.WIPE_WRITE_PERM_OF_BROKER: namesrv.WipeWritePermOfBrokerRequestHeader,
    Code.DELETE_SUBSCRIPTIONGROUP: clients.DeleteSubscriptionGroupRequestHeader,
    Code.GET_CONSUME_STATS: clients.GetConsumeStatsRequestHeader,
    Code.DELETE_TOPIC_IN_BROKER: topics.DeleteTopicRequestHeader,
    Code.DELETE_TOPIC_IN_NAMESRV: topics.DeleteTopicFromNamesrvRequestHeader,
    Code.GET_KVLIST_BY_NAMESPACE: namesrv.GetKVListByNamespaceRequestHeader,
    Code.RESET_CONSUMER_CLIENT_OFFSET: offsets.ResetOffsetRequestHeader,
    Code.GET_CONSUMER_STATUS_FROM_CLIENT: offsets.GetConsumerStatusRequestHeader,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: offsets.ResetOffsetRequestHeader,
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: offsets.GetConsumerStatusRequestHeader,
    Code.GET_TOPICS_BY_CLUSTER: topics.GetTopicsByClusterRequestHeader,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: clients.QueryTopicConsumeByWhoRequestHeader,
    Code.REGISTER_FILTER_SERVER: admin.RegisterFilterServerRequestHeader,
    Code.REGISTER_MESSAGE_FILTER_CLASS: admin.RegisterMessageFilterClassRequestHeader,
    Code.QUERY_CONSUME_TIME_SPAN: clients.QueryConsumeTimeSpanRequestHeader,
    Code.GET_CONSUMER_RUNNING_INFO: clients.GetConsumerRunningInfoRequestHeader,
    Code.QUERY_CORRECTION_OFFSET: offsets.QueryCorrectionOffsetHeader,
    Code.CONSUME_MESSAGE_DIRECTLY: clients.ConsumeMessageDirectlyResultRequestHeader,
    Code.SEND_MESSAGE_V2: messages.SendMessageRequestHeaderV2,
    Code.CLONE_GROUP_OFFSET: offsets.CloneGroupOffsetRequestHeader,
    Code.VIEW_BROKER_STATS_DATA: admin.ViewBrokerStatsDataRequestHeader,
    Code.GET_BROKER_CONSUME_STATS: clients.GetConsumeStatsInBrokerHeader,
    Code.SEND_BATCH_MESSAGE: messages.SendMessageRequestHeaderV2,
    Code.QUERY_CONSUME_QUEUE: admin.QueryConsumeQueueRequestHeader,
    Code.QUERY_DATA_VERSION: namesrv.QueryDataVersionRequestHeader,
    Code.RESUME_CHECK_HALF_MESSAGE: transactions.ResumeCheckHalfMessageRequestHeader,
    Code.SEND_REPLY_MESSAGE: messages.SendMessageRequestHeader,
    Code.SEND_REPLY_MESSAGE_V2: messages.SendMessageRequestHeaderV2,
    Code.PUSH_REPLY_MESSAGE_TO_CLIENT: messages.ReplyMessageRequestHeader,
    Code.ADD_WRITE_PERM_OF_BROKER: namesrv.AddWritePermOfBrokerRequestHeader,
}

_RESPONSES: dict[int, type[CommandHeader]] = {
    Code.SEND_MESSAGE: messages.SendMessageResponseHeader,
    Code.PULL_MESSAGE: offsets.PullMessageResponseHeader,
    Code.QUERY_MESSAGE: messages.QueryMessageResponseHeader,
    Code.QUERY_CONSUMER_OFFSET: offsets.QueryConsumerOffsetResponseHeader,
    Code.GET_BROKER_CONFIG: admin.GetBrokerConfigResponseHeader,
    Code.SEARCH_OFFSET_BY_TIMESTAMP: offsets.SearchOffsetResponseHeader,
    Code.GET_MAX_OFFSET: offsets.GetMaxOffsetResponseHeader,
    Code.GET_MIN_OFFSET: offsets.GetMinOffsetResponseHeader,
    Code.GET_EARLIEST_MSG_STORETIME: offsets.GetEarliestMsgStoretimeResponseHeader,
    Code.CHECK_TRANSACTION_STATE: transactions.CheckTransactionStateResponseHeader,
    Code.GET_BROKER_CLUSTER_ACL_INFO: admin.GetBrokerAclConfigResponseHeader,
    Code.GET_KV_CONFIG: namesrv.GetKVConfigResponseHeader,
    Code.REGISTER_BROKER: namesrv.RegisterBrokerResponseHeader,
    Code.WIPE_WRITE_PERM_OF_BROKER: namesrv.WipeWritePermOfBrokerResponseHeader,
    Code.REGISTER_FILTER_SERVER: admin.RegisterFilterServerResponseHeader,
    Code.SEND_MESSAGE_V2: messages.SendMessageResponseHeader,
    Code.SEND_BATCH_MESSAGE: messages.SendMessageResponseHeader,
    Code.QUERY_DATA_VERSION: namesrv.QueryDataVersionResponseHeader,
    Code.SEND_REPLY_MESSAGE: messages.SendMessageResponseHeader,
    Code.SEND_REPLY_MESSAGE_V2: messages.SendMessageResponseHeader,
    Code.ADD_WRITE_PERM_OF_BROKER: namesrv.AddWritePermOfBrokerResponseHeader,
}

#: What a request carries.
REQUEST_HEADERS: Mapping[int, type[CommandHeader] | None] = MappingProxyType(
    {code: _REQUESTS.get(code) for code in Code}
)
#: What the response to that request carries when it succeeds. One that fails may carry nothing.
RESPONSE_HEADERS: Mapping[int, type[CommandHeader] | None] = MappingProxyType(
    {code: _RESPONSES.get(code) for code in Code}
)
