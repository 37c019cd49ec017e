"""The broker: what composes the store and high availability, and what clients will talk to."""
