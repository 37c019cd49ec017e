"""Bodies of requests and responses: values with RocketMQ's class names, written in the JSON of fastjson 1.x.

`decoding` and `encoding` do the work, `registry` says which request code carries which body. What a name server reads
and writes is in `routes`, `topic_configs` and `register_broker`; the other modules hold what brokers, clients and
mqadmin exchange.
"""

from rmq_actors.wire.bodies.decoding import decode_body, unknown_members
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.registry import REQUEST_BODIES, RESPONSE_BODIES, BodyForm

__all__ = ["REQUEST_BODIES", "RESPONSE_BODIES", "BodyForm", "decode_body", "encode_body", "unknown_members"]
