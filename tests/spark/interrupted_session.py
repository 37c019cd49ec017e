"""`python -m tests.spark.interrupted_session`: a session that an interrupt leaves, and what was logged, as JSON.

It is a process of its own, as it kills its Java: that of the tests here is shared.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from typing import Any

import attrs
from py4j.clientserver import FinalizerWorker
from py4j.protocol import Py4JNetworkError

from rmq_actors.analysis.session import open_session


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@attrs.frozen
class Told:
    """What the process prints."""

    #: What was logged of the errors that were told to Py4J's loggers in the session.
    within: list[str]
    #: How the session was left.
    left_by: str
    #: What was logged from then on, when Java's objects were let go.
    afterwards: list[str]
    #: Threads that would tell Java of objects that are let go.
    finalizers: int


def _tell_errors() -> None:
    by_an_interrupt, by_itself = BrokenPipeError(), BrokenPipeError()
    by_an_interrupt.__context__ = KeyboardInterrupt()
    for logger in (logging.getLogger(), logging.getLogger("py4j.clientserver")):
        logger.error("interrupted", exc_info=by_an_interrupt)
        logger.error("lost", exc_info=by_itself)


def main() -> None:
    kept, held, left_by, within = _Kept(), list[Any](), "", list[str]()
    logging.getLogger().addHandler(kept)
    try:
        with open_session() as session:
            _tell_errors()
            within = list(kept.messages)
            java: Any = session._jvm
            held = [java.java.lang.Object() for _ in range(50)]  # as every data frame holds some
            held.pop()
            try:
                raise KeyboardInterrupt
            finally:
                # As when Java is asked for something on the way out: the interrupt has reached it, too.
                raise Py4JNetworkError("Answer from Java side is empty")
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001  # the test wants to know which
        left_by = type(error).__name__
    held.clear()
    finalizers = [thread for thread in threading.enumerate() if isinstance(thread, FinalizerWorker)]
    told = Told(within, left_by, kept.messages[len(within) :], len(finalizers))
    sys.stdout.write(json.dumps(attrs.asdict(told)))


if __name__ == "__main__":
    main()
