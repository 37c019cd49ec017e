"""High availability: a master streams its commit log to slaves, which report how far they have it.

Every broker runs `HAService` (as RocketMQ does, slaves too); a slave runs `HAClient` beside it. The decisions are in
`protocols.ha_master`, `protocols.ha_slave` and `protocols.group_transfer`; the actors here do the I/O.
"""
