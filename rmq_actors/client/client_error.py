"""What a call of a client can fail by. Each error says whether trying again may help, and the broker's code, if any.

ClientError
├── mistakes of the caller: MessageRefused, ClientClosed
├── mistakes of a peer: BadAnswer
├── refusals: BrokerRefused, NoRoute
└── the network: ClientTimeout, BrokerUnreachable, NameServersUnreachable, ConnectionLost, TooManyRequests
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from rmq_actors.wire.response_code import ResponseCode

#: With these a broker says that it is busy, or not yet able: the same request may succeed later.
_RETRIABLE_CODES = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)


class ClientError(Exception):
    """A call of a client failed (MQClientException). `code` is the ResponseCode that says why, if a peer gave one."""

    #: Whether the same call may succeed if it is made again.
    retriable: bool = False
    code: int | None = None

    def __copy__(self) -> Self:
        """The same error once more, for another task: each that raises an error adds to its traceback."""
        again = type(self).__new__(type(self), *self.args)
        again.__dict__.update(self.__dict__)
        return again


class ClientClosed(ClientError):
    """The client has stopped, or was never started."""


class MessageRefused(ClientError):
    """The client does not send this: it, its topic or its group is illegal (Validators), or it fits no frame."""

    code: ClassVar[int | None] = ResponseCode.MESSAGE_ILLEGAL  # type: ignore[misc]


class ClientTimeout(ClientError):
    """No answer came in time. The request may have been carried out all the same."""

    retriable = True


class BrokerUnreachable(ClientError):
    """There is no connection to the broker, or no address of it is known: nothing was sent."""

    retriable = True


class ConnectionLost(ClientError):
    """The connection ended before the answer came. The request may have been carried out all the same."""

    retriable = True


class TooManyRequests(ClientError):
    """Too many requests of this client wait for their answers already: nothing was sent."""

    retriable = True


class NameServersUnreachable(ClientError):
    """No name server answers; the message says what happened at each."""

    retriable = True


class NoRoute(ClientError):
    """The name servers know no broker that has the topic."""

    code: ClassVar[int | None] = ResponseCode.TOPIC_NOT_EXIST  # type: ignore[misc]


class BadAnswer(ClientError):
    """A peer's answer cannot be read; the message says what is wrong with it."""


class BrokerRefused(ClientError):
    """A peer refuses a request (MQBrokerException): its address, its code, and its reason as `remark`."""

    code: int

    def __init__(self, address: str, request_code: int, code: int, remark: str | None) -> None:
        super().__init__(f"{address}: request {request_code} is answered {code}: {remark}")
        self.address = address
        self.code = code
        self.remark = remark
        self.retriable = code in _RETRIABLE_CODES


class SendFailed(ClientError):
    """A message was not stored, or it is not known: every attempt failed. What ended them is the cause.

    That is the last attempt's error, or why no other attempt could be made. `code` and `retriable` are the cause's.
    """

    def __init__(self, topic: str, brokers: Sequence[str], last: ClientError) -> None:
        times = f"{len(brokers)} time" + ("" if len(brokers) == 1 else "s")
        super().__init__(f"topic {topic}: sent {times}, to {', '.join(brokers)}, and still failed: {last}")
        self.brokers = tuple(brokers)
        self.code = last.code
        self.retriable = last.retriable
