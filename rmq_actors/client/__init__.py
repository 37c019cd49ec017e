"""Clients of RocketMQ: what a producer, a consumer and an administrator share, and each of them.

A client asks name servers for the routes of its topics (`topic_routes`), tells brokers that it is there
(`heartbeat_service`), and makes requests (`requests`). `client_instance` holds these together. What a client decides,
such as the queue of a message, is in `protocols`; here is what waits and asks.
"""
