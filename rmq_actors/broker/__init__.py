"""The broker: it assembles the store and replication, and is what clients will talk to."""
