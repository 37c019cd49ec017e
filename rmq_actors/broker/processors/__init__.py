"""What a broker answers, by the subject of the request (RocketMQ's processors)."""
