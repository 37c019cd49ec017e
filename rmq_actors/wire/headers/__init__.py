"""Headers of requests and responses: values with RocketMQ's class names, out of a command's `ext_fields` and into them.

`codec` does the work, `registry` says which request code carries which header; the other modules hold the headers by
what they are about.
"""

from rmq_actors.wire.headers.codec import CommandHeader, decode_header, encode_header
from rmq_actors.wire.headers.registry import REQUEST_HEADERS, RESPONSE_HEADERS

__all__ = ["REQUEST_HEADERS", "RESPONSE_HEADERS", "CommandHeader", "decode_header", "encode_header"]
