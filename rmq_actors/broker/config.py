"""The settings of one broker: its identity, its store, its replication."""

from __future__ import annotations

import attrs

from rmq_actors.ha.config import HaConfig
from rmq_actors.store.config import BrokerRole, MessageStoreConfig


@attrs.frozen
class BrokerConfig:
    """Raises `ValueError` when a slave has no master to follow."""

    broker_name: str = "broker-a"
    store: MessageStoreConfig = attrs.field(factory=MessageStoreConfig)
    ha: HaConfig = attrs.field(factory=HaConfig)

    def __attrs_post_init__(self) -> None:
        if self.store.broker_role is BrokerRole.SLAVE and self.ha.ha_master_address is None:
            raise ValueError(f"broker {self.broker_name}: brokerRole=SLAVE needs haMasterAddress")
