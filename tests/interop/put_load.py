"""Messages that are put without a pause, by several connections, into a broker that may be killed meanwhile."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import attrs

from tests.worlds.java_client import SUCCESS, JavaClient

TOPIC = "TopicInterop"
#: The name of a message, in its body.
NAME = re.compile(rb"<(\w+-\d+-\d+)>")

_CONNECTIONS = 4
_BODY_BYTES = 6_000


@attrs.define(eq=False)
class PutLoad:
    """Says what was answered. A connection that ends takes no further part."""

    #: The names of the messages that the broker answered SUCCESS for.
    acknowledged: set[bytes] = attrs.field(factory=set, init=False)
    _stopping: threading.Event = attrs.field(factory=threading.Event, init=False)

    def put(self, port: int, prefix: str, connection: int) -> None:
        """Put until told to stop, or until the broker hangs up; of sizes up to 6 kB, by number."""
        with contextlib.suppress(OSError), JavaClient.connect(port) as client:
            number = 0
            while not self._stopping.is_set():
                name = f"{prefix}-{connection}-{number}".encode()
                body = b"<%s>" % name + bytes([number % 251]) * (number * 977 % _BODY_BYTES)
                if client.send_message(TOPIC, body, queue_id=connection).code == SUCCESS:
                    self.acknowledged.add(name)
                number += 1

    def stop(self) -> None:
        """Let each connection end with the put that it is at."""
        self._stopping.set()


@contextlib.contextmanager
def put_without_pause(port: int, prefix: str) -> Iterator[PutLoad]:
    """A load on the broker that listens on a port, for the length of a block; `prefix` names its messages."""
    load = PutLoad()
    with ThreadPoolExecutor(_CONNECTIONS) as threads:
        running = [threads.submit(load.put, port, prefix, connection) for connection in range(_CONNECTIONS)]
        try:
            yield load
        finally:
            load.stop()
    for ended in running:
        ended.result()
