"""The name server: which brokers live, and where topics are (RocketMQ's namesrv)."""
