"""Services (RocketMQ's ServiceThread): tasks that a supervisor starts and stops, and channels between them."""
