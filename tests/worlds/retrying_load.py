"""Messages that several connections put without a pause, each again until it is acknowledged, whoever is killed."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import attrs

from tests.worlds.java_client import SUCCESS, JavaClient

TOPIC = "TopicOfRetries"
CONNECTIONS = 4
#: The name of a message, in its body.
_NAME = re.compile(rb"<(\d+-\d+)>")
_BODY_BYTES = 3_000
#: A broker answers sooner than that, or is lost.
_TIMEOUT_S = 10.0
#: The pause before a message is put again.
_AGAIN_S = 0.02


@attrs.define(eq=False)
class RetryingLoad:
    """Says what was answered SUCCESS. `port` may change: that is where it connects next."""

    port: int
    acknowledged: set[bytes] = attrs.field(factory=set, init=False)
    _stopping: threading.Event = attrs.field(factory=threading.Event, init=False)

    def put(self, queue_id: int) -> None:
        """Put until told to stop."""
        number = 0
        while not self._stopping.is_set():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), _TIMEOUT_S) as opened:
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                client, port = JavaClient(opened), self.port
                while not self._stopping.is_set() and port == self.port:
                    name = b"%d-%d" % (queue_id, number)
                    body = b"<%s>" % name + bytes([number % 251]) * (number * 977 % _BODY_BYTES)
                    if client.send_message(TOPIC, body, queue_id=queue_id).code == SUCCESS:
                        self.acknowledged.add(name)
                        number += 1
                    else:
                        self._stopping.wait(_AGAIN_S)
            self._stopping.wait(_AGAIN_S)

    def stop(self) -> None:
        """Let each connection end with the put that it is at."""
        self._stopping.set()


@contextlib.contextmanager
def retrying_load(port: int) -> Iterator[RetryingLoad]:
    """For the length of a block."""
    load = RetryingLoad(port)
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        running = [threads.submit(load.put, queue_id) for queue_id in range(CONNECTIONS)]
        try:
            yield load
        finally:
            load.stop()
    for ended in running:
        ended.result()


def names_read(port: int) -> set[bytes]:
    """The names of the messages that a consumer gets. Each queue's offsets go on without a gap."""
    names = set[bytes]()
    with JavaClient.connect(port) as client:
        for queue_id in range(CONNECTIONS):
            messages = client.pull_queue(TOPIC, queue_id)
            assert [each.queue_offset for each in messages] == list(range(len(messages)))
            for message in messages:
                name = _NAME.match(message.body)
                assert name is not None
                names.add(name[1])
    return names
