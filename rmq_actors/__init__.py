"""A RocketMQ-compatible message broker with master/slave replication, written as Trio actors.

What users need is here by name, and imported at its first use: a program that needs the actors alone does not load a
broker. `rmq_actors.testing` has what tests need, `rmq_actors.actors` and `sim_net` stand alone.
"""

from __future__ import annotations

# Type checkers take it for theirs. What is imported here delays the line from which Ctrl-C ends a command tidily
# (`cli.entry`), so neither `typing` nor `importlib` is.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from rmq_actors.actors.asyncio_host import open_trio_guest as open_trio_guest
    from rmq_actors.broker.config import BrokerConfig as BrokerConfig
    from rmq_actors.client.admin import Admin as Admin
    from rmq_actors.client.client_error import BadAnswer as BadAnswer
    from rmq_actors.client.client_error import BrokerRefused as BrokerRefused
    from rmq_actors.client.client_error import BrokerUnreachable as BrokerUnreachable
    from rmq_actors.client.client_error import ClientClosed as ClientClosed
    from rmq_actors.client.client_error import ClientError as ClientError
    from rmq_actors.client.client_error import ClientTimeout as ClientTimeout
    from rmq_actors.client.client_error import ConnectionLost as ConnectionLost
    from rmq_actors.client.client_error import MessageRefused as MessageRefused
    from rmq_actors.client.client_error import NameServersUnreachable as NameServersUnreachable
    from rmq_actors.client.client_error import NoRoute as NoRoute
    from rmq_actors.client.client_error import SendFailed as SendFailed
    from rmq_actors.client.client_error import TooManyRequests as TooManyRequests
    from rmq_actors.client.config import ClientConfig as ClientConfig
    from rmq_actors.client.config import ProducerConfig as ProducerConfig
    from rmq_actors.client.consumer_config import PullConsumerConfig as PullConsumerConfig
    from rmq_actors.client.consumer_config import PushConsumerConfig as PushConsumerConfig
    from rmq_actors.client.consumer_requests import PullResult as PullResult
    from rmq_actors.client.message_ext import MessageExt as MessageExt
    from rmq_actors.client.message_listener import Concurrently as Concurrently
    from rmq_actors.client.message_listener import ConsumeConcurrentlyContext as ConsumeConcurrentlyContext
    from rmq_actors.client.message_listener import ConsumeOrderlyContext as ConsumeOrderlyContext
    from rmq_actors.client.message_listener import Orderly as Orderly
    from rmq_actors.client.producer import Producer as Producer
    from rmq_actors.client.pull_consumer import PullConsumer as PullConsumer
    from rmq_actors.client.push_consumer import PushConsumer as PushConsumer
    from rmq_actors.client.send_result import LocalTransactionState as LocalTransactionState
    from rmq_actors.client.send_result import SendResult as SendResult
    from rmq_actors.client.send_result import TransactionSendResult as TransactionSendResult
    from rmq_actors.client.transactions import TransactionListener as TransactionListener
    from rmq_actors.embedding.asyncio_clients import AsyncioClient as AsyncioClient
    from rmq_actors.embedding.asyncio_clients import AsyncioProducer as AsyncioProducer
    from rmq_actors.embedding.asyncio_clients import open_asyncio_client as open_asyncio_client
    from rmq_actors.embedding.asyncio_consumers import AsyncioAdmin as AsyncioAdmin
    from rmq_actors.embedding.asyncio_consumers import AsyncioPullConsumer as AsyncioPullConsumer
    from rmq_actors.embedding.asyncio_consumers import AsyncioPushConsumer as AsyncioPushConsumer
    from rmq_actors.embedding.broker import load_broker_config as load_broker_config
    from rmq_actors.embedding.broker import open_configured_broker as open_configured_broker
    from rmq_actors.embedding.clients import open_admin as open_admin
    from rmq_actors.embedding.clients import open_producer as open_producer
    from rmq_actors.embedding.cluster import CLUSTER_STORE as CLUSTER_STORE
    from rmq_actors.embedding.cluster import RealCluster as RealCluster
    from rmq_actors.embedding.cluster import log_sha256 as log_sha256
    from rmq_actors.embedding.cluster import open_cluster as open_cluster
    from rmq_actors.embedding.cluster_protocol import BrokerDown as BrokerDown
    from rmq_actors.embedding.cluster_protocol import BrokerStatus as BrokerStatus
    from rmq_actors.embedding.cluster_protocol import Cluster as Cluster
    from rmq_actors.embedding.cluster_protocol import ExchangeFailed as ExchangeFailed
    from rmq_actors.embedding.cluster_protocol import Unsupported as Unsupported
    from rmq_actors.embedding.consumers import open_pull_consumer as open_pull_consumer
    from rmq_actors.embedding.consumers import open_push_consumer as open_push_consumer
    from rmq_actors.embedding.local_store import open_message_store as open_message_store
    from rmq_actors.embedding.name_server import open_local_name_server as open_local_name_server
    from rmq_actors.embedding.remoting_client import open_remoting_client as open_remoting_client
    from rmq_actors.ha.config import HaConfig as HaConfig
    from rmq_actors.protocols.allocation import AllocateMessageQueueAveragely as AllocateMessageQueueAveragely
    from rmq_actors.protocols.allocation import (
        AllocateMessageQueueAveragelyByCircle as AllocateMessageQueueAveragelyByCircle,
    )
    from rmq_actors.protocols.allocation import AllocateMessageQueueByConfig as AllocateMessageQueueByConfig
    from rmq_actors.protocols.allocation import AllocateMessageQueueByMachineRoom as AllocateMessageQueueByMachineRoom
    from rmq_actors.protocols.allocation import AllocateMessageQueueConsistentHash as AllocateMessageQueueConsistentHash
    from rmq_actors.protocols.consume_results import ConsumeConcurrentlyStatus as ConsumeConcurrentlyStatus
    from rmq_actors.protocols.consume_results import ConsumeOrderlyStatus as ConsumeOrderlyStatus
    from rmq_actors.protocols.pull_results import PullStatus as PullStatus
    from rmq_actors.protocols.put_completion import PutStatus as PutStatus
    from rmq_actors.protocols.queue_selection import select_message_queue_by_hash as select_message_queue_by_hash
    from rmq_actors.protocols.send_retries import SendStatus as SendStatus
    from rmq_actors.store.config import BrokerRole as BrokerRole
    from rmq_actors.store.config import FlushDiskType as FlushDiskType
    from rmq_actors.store.config import MessageStoreConfig as MessageStoreConfig
    from rmq_actors.store.puts.message_puts import PutResult as PutResult
    from rmq_actors.wire.acl_signature import SessionCredentials as SessionCredentials
    from rmq_actors.wire.bodies.heartbeat import ConsumeFromWhere as ConsumeFromWhere
    from rmq_actors.wire.bodies.heartbeat import MessageModel as MessageModel
    from rmq_actors.wire.bodies.message_queues import MessageQueue as MessageQueue
    from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig as SubscriptionGroupConfig
    from rmq_actors.wire.bodies.topic_configs import TopicConfig as TopicConfig
    from rmq_actors.wire.record import Message as Message
    from rmq_actors.wire.record import StoredMessage as StoredMessage
    from rmq_actors.wire.record import decode_message as decode_message

__version__ = "0.1.0"

# Written out, as type checkers read it so. `from rmq_actors import *` loads all of it, a broker too.
__all__ = [
    "CLUSTER_STORE",
    "Admin",
    "AllocateMessageQueueAveragely",
    "AllocateMessageQueueAveragelyByCircle",
    "AllocateMessageQueueByConfig",
    "AllocateMessageQueueByMachineRoom",
    "AllocateMessageQueueConsistentHash",
    "AsyncioAdmin",
    "AsyncioClient",
    "AsyncioProducer",
    "AsyncioPullConsumer",
    "AsyncioPushConsumer",
    "BadAnswer",
    "BrokerConfig",
    "BrokerDown",
    "BrokerRefused",
    "BrokerRole",
    "BrokerStatus",
    "BrokerUnreachable",
    "ClientClosed",
    "ClientConfig",
    "ClientError",
    "ClientTimeout",
    "Cluster",
    "Concurrently",
    "ConnectionLost",
    "ConsumeConcurrentlyContext",
    "ConsumeConcurrentlyStatus",
    "ConsumeFromWhere",
    "ConsumeOrderlyContext",
    "ConsumeOrderlyStatus",
    "ExchangeFailed",
    "FlushDiskType",
    "HaConfig",
    "LocalTransactionState",
    "Message",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "MessageRefused",
    "MessageStoreConfig",
    "NameServersUnreachable",
    "NoRoute",
    "Orderly",
    "Producer",
    "ProducerConfig",
    "PullConsumer",
    "PullConsumerConfig",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "PushConsumerConfig",
    "PutResult",
    "PutStatus",
    "RealCluster",
    "SendFailed",
    "SendResult",
    "SendStatus",
    "SessionCredentials",
    "StoredMessage",
    "SubscriptionGroupConfig",
    "TooManyRequests",
    "TopicConfig",
    "TransactionListener",
    "TransactionSendResult",
    "Unsupported",
    "decode_message",
    "load_broker_config",
    "log_sha256",
    "open_admin",
    "open_asyncio_client",
    "open_cluster",
    "open_configured_broker",
    "open_local_name_server",
    "open_message_store",
    "open_producer",
    "open_pull_consumer",
    "open_push_consumer",
    "open_remoting_client",
    "open_trio_guest",
    "select_message_queue_by_hash",
]

#: The module of each public name.
_MODULES = {
    "Admin": "client.admin",
    "AllocateMessageQueueAveragely": "protocols.allocation",
    "AllocateMessageQueueAveragelyByCircle": "protocols.allocation",
    "AllocateMessageQueueByConfig": "protocols.allocation",
    "AllocateMessageQueueByMachineRoom": "protocols.allocation",
    "AllocateMessageQueueConsistentHash": "protocols.allocation",
    "AsyncioAdmin": "embedding.asyncio_consumers",
    "AsyncioClient": "embedding.asyncio_clients",
    "AsyncioProducer": "embedding.asyncio_clients",
    "AsyncioPullConsumer": "embedding.asyncio_consumers",
    "AsyncioPushConsumer": "embedding.asyncio_consumers",
    "BadAnswer": "client.client_error",
    "BrokerConfig": "broker.config",
    "BrokerDown": "embedding.cluster_protocol",
    "BrokerRefused": "client.client_error",
    "BrokerRole": "store.config",
    "BrokerStatus": "embedding.cluster_protocol",
    "BrokerUnreachable": "client.client_error",
    "CLUSTER_STORE": "embedding.cluster",
    "ClientClosed": "client.client_error",
    "ClientConfig": "client.config",
    "ClientError": "client.client_error",
    "ClientTimeout": "client.client_error",
    "Cluster": "embedding.cluster_protocol",
    "Concurrently": "client.message_listener",
    "ConnectionLost": "client.client_error",
    "ConsumeConcurrentlyContext": "client.message_listener",
    "ConsumeConcurrentlyStatus": "protocols.consume_results",
    "ConsumeFromWhere": "wire.bodies.heartbeat",
    "ConsumeOrderlyContext": "client.message_listener",
    "ConsumeOrderlyStatus": "protocols.consume_results",
    "ExchangeFailed": "embedding.cluster_protocol",
    "FlushDiskType": "store.config",
    "HaConfig": "ha.config",
    "LocalTransactionState": "client.send_result",
    "Message": "wire.record",
    "MessageExt": "client.message_ext",
    "MessageModel": "wire.bodies.heartbeat",
    "MessageQueue": "wire.bodies.message_queues",
    "MessageRefused": "client.client_error",
    "MessageStoreConfig": "store.config",
    "NameServersUnreachable": "client.client_error",
    "NoRoute": "client.client_error",
    "Orderly": "client.message_listener",
    "Producer": "client.producer",
    "ProducerConfig": "client.config",
    "PullConsumer": "client.pull_consumer",
    "PullConsumerConfig": "client.consumer_config",
    "PullResult": "client.consumer_requests",
    "PullStatus": "protocols.pull_results",
    "PushConsumer": "client.push_consumer",
    "PushConsumerConfig": "client.consumer_config",
    "PutResult": "store.puts.message_puts",
    "PutStatus": "protocols.put_completion",
    "RealCluster": "embedding.cluster",
    "SendFailed": "client.client_error",
    "SendResult": "client.send_result",
    "SendStatus": "protocols.send_retries",
    "SessionCredentials": "wire.acl_signature",
    "StoredMessage": "wire.record",
    "SubscriptionGroupConfig": "wire.bodies.subscription_groups",
    "TooManyRequests": "client.client_error",
    "TopicConfig": "wire.bodies.topic_configs",
    "TransactionListener": "client.transactions",
    "TransactionSendResult": "client.send_result",
    "Unsupported": "embedding.cluster_protocol",
    "decode_message": "wire.record",
    "load_broker_config": "embedding.broker",
    "log_sha256": "embedding.cluster",
    "open_admin": "embedding.clients",
    "open_asyncio_client": "embedding.asyncio_clients",
    "open_cluster": "embedding.cluster",
    "open_configured_broker": "embedding.broker",
    "open_local_name_server": "embedding.name_server",
    "open_message_store": "embedding.local_store",
    "open_producer": "embedding.clients",
    "open_pull_consumer": "embedding.consumers",
    "open_push_consumer": "embedding.consumers",
    "open_remoting_client": "embedding.remoting_client",
    "open_trio_guest": "actors.asyncio_host",
    "select_message_queue_by_hash": "protocols.queue_selection",
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use. AttributeError for any other."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415  # see above

    value: object = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
