"""A RocketMQ-compatible message broker with master/slave replication, written as Trio actors."""

__version__ = "0.1.0"
