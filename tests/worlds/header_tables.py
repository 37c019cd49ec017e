"""What RocketMQ 4.9.8 has: its request codes, and the fields of its header classes, as tables to compare with."""

from __future__ import annotations

#: Name and number.
REQUEST_CODES = """
SEND_MESSAGE 10, PULL_MESSAGE 11, QUERY_MESSAGE 12, QUERY_BROKER_OFFSET 13, QUERY_CONSUMER_OFFSET 14,
UPDATE_CONSUMER_OFFSET 15, UPDATE_AND_CREATE_TOPIC 17, GET_ALL_TOPIC_CONFIG 21, GET_TOPIC_CONFIG_LIST 22,
GET_TOPIC_NAME_LIST 23, UPDATE_BROKER_CONFIG 25, GET_BROKER_CONFIG 26, TRIGGER_DELETE_FILES 27,
GET_BROKER_RUNTIME_INFO 28, SEARCH_OFFSET_BY_TIMESTAMP 29, GET_MAX_OFFSET 30, GET_MIN_OFFSET 31,
GET_EARLIEST_MSG_STORETIME 32, VIEW_MESSAGE_BY_ID 33, HEART_BEAT 34, UNREGISTER_CLIENT 35,
CONSUMER_SEND_MSG_BACK 36, END_TRANSACTION 37, GET_CONSUMER_LIST_BY_GROUP 38, CHECK_TRANSACTION_STATE 39,
NOTIFY_CONSUMER_IDS_CHANGED 40, LOCK_BATCH_MQ 41, UNLOCK_BATCH_MQ 42, GET_ALL_CONSUMER_OFFSET 43,
GET_ALL_DELAY_OFFSET 45, CHECK_CLIENT_CONFIG 46, UPDATE_AND_CREATE_ACL_CONFIG 50, DELETE_ACL_CONFIG 51,
GET_BROKER_CLUSTER_ACL_INFO 52, UPDATE_GLOBAL_WHITE_ADDRS_CONFIG 53, PUT_KV_CONFIG 100, GET_KV_CONFIG 101,
DELETE_KV_CONFIG 102, REGISTER_BROKER 103, UNREGISTER_BROKER 104, GET_ROUTEINFO_BY_TOPIC 105,
GET_BROKER_CLUSTER_INFO 106, UPDATE_AND_CREATE_SUBSCRIPTIONGROUP 200, GET_ALL_SUBSCRIPTIONGROUP_CONFIG 201,
GET_TOPIC_STATS_INFO 202, GET_CONSUMER_CONNECTION_LIST 203, GET_PRODUCER_CONNECTION_LIST 204,
WIPE_WRITE_PERM_OF_BROKER 205, GET_ALL_TOPIC_LIST_FROM_NAMESERVER 206, DELETE_SUBSCRIPTIONGROUP 207,
GET_CONSUME_STATS 208, SUSPEND_CONSUMER 209, RESUME_CONSUMER 210, RESET_CONSUMER_OFFSET_IN_CONSUMER 211,
RESET_CONSUMER_OFFSET_IN_BROKER 212, ADJUST_CONSUMER_THREAD_POOL 213, WHO_CONSUME_THE_MESSAGE 214,
DELETE_TOPIC_IN_BROKER 215, DELETE_TOPIC_IN_NAMESRV 216, GET_KVLIST_BY_NAMESPACE 219,
RESET_CONSUMER_CLIENT_OFFSET 220, GET_CONSUMER_STATUS_FROM_CLIENT 221, INVOKE_BROKER_TO_RESET_OFFSET 222,
INVOKE_BROKER_TO_GET_CONSUMER_STATUS 223, QUERY_TOPIC_CONSUME_BY_WHO 300, GET_TOPICS_BY_CLUSTER 224,
REGISTER_FILTER_SERVER 301, REGISTER_MESSAGE_FILTER_CLASS 302, QUERY_CONSUME_TIME_SPAN 303,
GET_SYSTEM_TOPIC_LIST_FROM_NS 304, GET_SYSTEM_TOPIC_LIST_FROM_BROKER 305, CLEAN_EXPIRED_CONSUMEQUEUE 306,
GET_CONSUMER_RUNNING_INFO 307, QUERY_CORRECTION_OFFSET 308, CONSUME_MESSAGE_DIRECTLY 309, SEND_MESSAGE_V2 310,
GET_UNIT_TOPIC_LIST 311, GET_HAS_UNIT_SUB_TOPIC_LIST 312, GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST 313,
CLONE_GROUP_OFFSET 314, VIEW_BROKER_STATS_DATA 315, CLEAN_UNUSED_TOPIC 316, GET_BROKER_CONSUME_STATS 317,
UPDATE_NAMESRV_CONFIG 318, GET_NAMESRV_CONFIG 319, SEND_BATCH_MESSAGE 320, QUERY_CONSUME_QUEUE 321,
QUERY_DATA_VERSION 322, RESUME_CHECK_HALF_MESSAGE 323, SEND_REPLY_MESSAGE 324, SEND_REPLY_MESSAGE_V2 325,
PUSH_REPLY_MESSAGE_TO_CLIENT 326, ADD_WRITE_PERM_OF_BROKER 327, GET_ALL_PRODUCER_INFO 328,
DELETE_EXPIRED_COMMITLOG 329
"""

#: Class: fields with their types in Java; a `?` before those that may be absent.
HEADERS = """
CheckTransactionStateRequestHeader: tranStateTableOffset:Long, commitLogOffset:Long, ?msgId:String,
    ?transactionId:String, ?offsetMsgId:String
CheckTransactionStateResponseHeader: producerGroup:String, tranStateTableOffset:Long, commitLogOffset:Long,
    commitOrRollback:Integer
CloneGroupOffsetRequestHeader: srcGroup:String, destGroup:String, ?topic:String, ?offline:boolean
ConsumeMessageDirectlyResultRequestHeader: consumerGroup:String, ?clientId:String, ?msgId:String, ?brokerName:String
ConsumerSendMsgBackRequestHeader: offset:Long, group:String, delayLevel:Integer, ?originMsgId:String,
    ?originTopic:String, ?unitMode:boolean, ?maxReconsumeTimes:Integer
CreateTopicRequestHeader: topic:String, defaultTopic:String, readQueueNums:Integer, writeQueueNums:Integer,
    perm:Integer, topicFilterType:String, ?topicSysFlag:Integer, order:Boolean
DeleteSubscriptionGroupRequestHeader: groupName:String, ?removeOffset:boolean
DeleteTopicRequestHeader: topic:String
EndTransactionRequestHeader: producerGroup:String, tranStateTableOffset:Long, commitLogOffset:Long,
    commitOrRollback:Integer, ?fromTransactionCheck:Boolean, msgId:String, ?transactionId:String
GetBrokerConfigResponseHeader: version:String
GetConsumeStatsInBrokerHeader: isOrder:boolean
GetConsumeStatsRequestHeader: consumerGroup:String, ?topic:String
GetConsumerConnectionListRequestHeader: consumerGroup:String
GetConsumerListByGroupRequestHeader: consumerGroup:String
GetConsumerRunningInfoRequestHeader: consumerGroup:String, clientId:String, ?jstackEnable:boolean
GetConsumerStatusRequestHeader: topic:String, group:String, ?clientAddr:String
GetEarliestMsgStoretimeRequestHeader: topic:String, queueId:Integer
GetEarliestMsgStoretimeResponseHeader: timestamp:Long
GetMaxOffsetRequestHeader: topic:String, queueId:Integer
GetMaxOffsetResponseHeader: offset:Long
GetMinOffsetRequestHeader: topic:String, queueId:Integer
GetMinOffsetResponseHeader: offset:Long
GetProducerConnectionListRequestHeader: producerGroup:String
GetTopicStatsInfoRequestHeader: topic:String
GetTopicsByClusterRequestHeader: cluster:String
NotifyConsumerIdsChangedRequestHeader: consumerGroup:String
PullMessageRequestHeader: consumerGroup:String, topic:String, queueId:Integer, queueOffset:Long, maxMsgNums:Integer,
    sysFlag:Integer, commitOffset:Long, suspendTimeoutMillis:Long, ?subscription:String, subVersion:Long,
    ?expressionType:String
PullMessageResponseHeader: suggestWhichBrokerId:Long, nextBeginOffset:Long, minOffset:Long, maxOffset:Long
QueryConsumeQueueRequestHeader: ?topic:String, ?queueId:int, ?index:long, ?count:int, ?consumerGroup:String
QueryConsumeTimeSpanRequestHeader: topic:String, group:String
QueryConsumerOffsetRequestHeader: consumerGroup:String, topic:String, queueId:Integer
QueryConsumerOffsetResponseHeader: offset:Long
QueryCorrectionOffsetHeader: ?filterGroups:String, compareGroup:String, topic:String
QueryMessageRequestHeader: topic:String, key:String, maxNum:Integer, beginTimestamp:Long, endTimestamp:Long
QueryMessageResponseHeader: indexLastUpdateTimestamp:Long, indexLastUpdatePhyoffset:Long
QueryTopicConsumeByWhoRequestHeader: topic:String
ReplyMessageRequestHeader: producerGroup:String, topic:String, defaultTopic:String, defaultTopicQueueNums:Integer,
    queueId:Integer, sysFlag:Integer, bornTimestamp:Long, flag:Integer, ?properties:String, ?reconsumeTimes:Integer,
    ?unitMode:boolean, bornHost:String, storeHost:String, storeTimestamp:long
ResetOffsetRequestHeader: topic:String, group:String, timestamp:long, isForce:boolean
ResumeCheckHalfMessageRequestHeader: ?msgId:String
SearchOffsetRequestHeader: topic:String, queueId:Integer, timestamp:Long
SearchOffsetResponseHeader: offset:Long
SendMessageRequestHeader: producerGroup:String, topic:String, defaultTopic:String, defaultTopicQueueNums:Integer,
    queueId:Integer, sysFlag:Integer, bornTimestamp:Long, flag:Integer, ?properties:String, ?reconsumeTimes:Integer,
    ?unitMode:boolean, ?batch:boolean, ?maxReconsumeTimes:Integer
SendMessageRequestHeaderV2: a:String, b:String, c:String, d:Integer, e:Integer, f:Integer, g:Long, h:Integer,
    ?i:String, ?j:Integer, ?k:boolean, ?l:Integer, ?m:boolean, ?n:String
SendMessageResponseHeader: msgId:String, queueId:Integer, queueOffset:Long, ?transactionId:String
UnregisterClientRequestHeader: clientID:String, ?producerGroup:String, ?consumerGroup:String
UpdateConsumerOffsetRequestHeader: consumerGroup:String, topic:String, queueId:Integer, commitOffset:Long
ViewBrokerStatsDataRequestHeader: statsName:String, statsKey:String
ViewMessageRequestHeader: offset:Long
AddWritePermOfBrokerRequestHeader: brokerName:String
AddWritePermOfBrokerResponseHeader: addTopicCount:Integer
DeleteKVConfigRequestHeader: namespace:String, key:String
DeleteTopicFromNamesrvRequestHeader: topic:String, ?clusterName:String
GetKVConfigRequestHeader: namespace:String, key:String
GetKVConfigResponseHeader: ?value:String
GetKVListByNamespaceRequestHeader: namespace:String
GetRouteInfoRequestHeader: topic:String, ?acceptStandardJsonOnly:Boolean
PutKVConfigRequestHeader: namespace:String, key:String, value:String
QueryDataVersionRequestHeader: brokerName:String, brokerAddr:String, clusterName:String, brokerId:Long
QueryDataVersionResponseHeader: changed:Boolean
RegisterBrokerRequestHeader: brokerName:String, brokerAddr:String, clusterName:String, haServerAddr:String,
    brokerId:Long, ?compressed:boolean, ?bodyCrc32:Integer
RegisterBrokerResponseHeader: ?haServerAddr:String, ?masterAddr:String
RegisterOrderTopicRequestHeader: topic:String, orderTopicString:String
UnRegisterBrokerRequestHeader: brokerName:String, brokerAddr:String, clusterName:String, brokerId:Long
WipeWritePermOfBrokerRequestHeader: brokerName:String
WipeWritePermOfBrokerResponseHeader: wipeTopicCount:Integer
CreateAccessConfigRequestHeader: accessKey:String, ?secretKey:String, ?whiteRemoteAddress:String, ?admin:boolean,
    ?defaultTopicPerm:String, ?defaultGroupPerm:String, ?topicPerms:String, ?groupPerms:String
DeleteAccessConfigRequestHeader: accessKey:String
GetBrokerAclConfigResponseHeader: version:String, ?allAclFileVersion:String, brokerName:String, brokerAddr:String,
    clusterName:String
UpdateGlobalWhiteAddrsConfigRequestHeader: globalWhiteAddrs:String, aclFileFullPath:String
RegisterFilterServerRequestHeader: filterServerAddr:String
RegisterFilterServerResponseHeader: brokerName:String, brokerId:long
RegisterMessageFilterClassRequestHeader: consumerGroup:String, topic:String, className:String, classCRC:Integer
"""
