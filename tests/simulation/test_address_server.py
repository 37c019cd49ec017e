"""The list of name servers from an address server: what is asked, what is taken, and that nothing else is."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_actors.remoting.address_server import ANSWER_MAX_BYTES, BODY_MAX_BYTES, AddressServer, AddressServerError
from sim_net import Node, Schedule, ShortIO, World

LIST = ("10.1.1.1:9876", "ns.example.com:9876")
BODY = b"10.1.1.1:9876;ns.example.com:9876"
#: Serves one connection whose request has arrived.
Answer = Callable[[trio.SocketStream], Awaitable[None]]


def plain(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status.encode(), len(body), body)


def chunked(*chunks: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))


def send(*pieces: bytes, pause_s: float = 0.0) -> Answer:
    async def answer(stream: trio.SocketStream) -> None:
        for piece in pieces:
            await stream.send_all(piece)
            await trio.sleep(pause_s)

    return answer


async def never(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


class Fetched:
    """One fetch from a web server on another node."""

    def __init__(self, answer: Answer, server: AddressServer | None = None, *, short_io: bool = False) -> None:
        self.answer = answer
        self.server = server or AddressServer("web")
        self.result: tuple[str, ...] | AddressServerError = ()
        self.took_s = 0.0
        self.requests: list[bytes] = []
        self.world = World(1, guard_packages=("rmq_actors",))
        self.schedule = Schedule((ShortIO(0.0, 60.0, "broker", 7),) if short_io else ())
        self.world.run(self.main)

    async def main(self, world: World) -> None:
        web, broker = world.node("web"), world.node("broker")
        world.start_schedule(self.schedule)
        web.boot(self.serve)
        await trio.sleep(0.1)
        self.done = trio.Event()
        broker.boot(self.fetch)
        await self.done.wait()

    async def serve(self, node: Node) -> None:
        await trio.serve_tcp(self.handle, 8080, host=node.address)

    async def handle(self, stream: trio.SocketStream) -> None:
        request = bytearray()
        while not request.endswith(b"\r\n\r\n"):
            request += await stream.receive_some()
        self.requests.append(bytes(request))
        with contextlib.suppress(trio.BrokenResourceError):  # the client has heard enough
            await self.answer(stream)

    async def fetch(self, node: Node) -> None:
        began_s = trio.current_time()
        try:
            self.result = await self.server.fetch_name_servers()
        except AddressServerError as error:
            self.result = error
        self.took_s = trio.current_time() - began_s
        self.done.set()


def test_the_url_is_rocketmqs() -> None:
    assert AddressServer("jmenv.tbsite.net").url == "http://jmenv.tbsite.net:8080/rocketmq/nsaddr"
    assert AddressServer("web:80", "cluster-b").url == "http://web:80/rocketmq/cluster-b"
    assert AddressServer("web", unit_name="u1").url == "http://web:8080/rocketmq/nsaddr-u1?nofix=1"


@pytest.mark.parametrize(
    ("domain", "subgroup", "unit_name"),
    [
        ("", "nsaddr", ""),
        ("web:", "nsaddr", ""),
        ("web:99999", "nsaddr", ""),
        ("user@web/x", "nsaddr", ""),
        ("web", "ns addr", ""),
        ("web", "../secret", ""),
        ("web", "a\r\nHost: b", ""),
        ("web", "nsaddr", "u?x"),
        ("web", "nsäddr", ""),
    ],
)
def test_what_makes_no_url_is_refused(domain: str, subgroup: str, unit_name: str) -> None:
    with pytest.raises(ValueError, match=r"is not an address of the form|cannot be a part of a URL|cannot be a host"):
        AddressServer(domain, subgroup, unit_name)


def test_the_request_is_one_that_any_web_server_understands() -> None:
    fetched = Fetched(send(plain(BODY)), AddressServer("web", "grp", "u1"))
    assert fetched.requests == [b"GET /rocketmq/grp-u1?nofix=1 HTTP/1.1\r\nHost: web:8080\r\nConnection: close\r\n\r\n"]
    assert fetched.result == LIST


@pytest.mark.parametrize(
    "answer",
    [
        plain(BODY),
        plain(BODY + b"\r\n"),
        plain(b"\n " + BODY + b" ; \nthe first line counts"),
        plain(b"10.1.1.1:9876 ;; ns.example.com:9876;10.1.1.1:9876"),
        b"HTTP/1.0 200 OK\r\n\r\n" + BODY,
        b"HTTP/1.1 100 Continue\r\n\r\n" + plain(BODY),
        chunked(BODY),
        chunked(*[BODY[at : at + 1] for at in range(len(BODY))]),
    ],
)
@pytest.mark.parametrize("short_io", [False, True])
def test_every_form_of_the_same_answer_is_the_same_list(answer: bytes, short_io: bool) -> None:
    assert Fetched(send(answer), short_io=short_io).result == LIST


@settings(max_examples=25)
@given(st.lists(st.integers(1, len(plain(BODY)) - 1), max_size=6, unique=True).map(sorted))
def test_any_split_of_an_answer_is_the_same_list(cuts: list[int]) -> None:
    answer = plain(BODY)
    pieces = [answer[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    assert Fetched(send(*pieces, pause_s=0.2)).result == LIST


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (send(plain(BODY, "404 Not Found")), "the answer is 404, not 200"),
        (send(plain(BODY, "204 No Content")), "the answer is 204, not 200"),
        (
            send(b"HTTP/1.1 302 Found\r\nLocation: http://evil/\r\nContent-Length: 0\r\n\r\n"),
            "the answer is 302, not 200",
        ),
        (send(b"\0\0\0\x10 a remoting frame"), "the answer is not HTTP"),
        (send(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), "the answer is not HTTP"),
        (send(plain(BODY)[:-1]), "the answer is not HTTP: peer closed connection without sending complete message"),
        (send(b"HTTP/1.1 200 OK\r\n"), "the answer is not HTTP"),
        (send(), "the answer is not HTTP"),
        (send(plain(b"")), "the list is empty"),
        (send(plain(b" ; \n")), "the list is empty"),
        (send(plain(b"<html>moved</html>")), "'<html>moved</html>' is not an address of the form host:port"),
        (send(plain(b"10.1.1.1:9876;10.1.1.2")), "'10.1.1.2' is not an address of the form host:port"),
        (send(plain(b"10.1.1.1:0")), "'10.1.1.1:0' is not an address"),
        (send(plain(b"\xff:9876")), "the list is not text"),
        (send(plain(b";".join(b"h:%d" % port for port in range(1, 258)))), "257 name servers, at most 256 are taken"),
        (send(plain(b"x" * (BODY_MAX_BYTES + 1))), f"the list has more than {BODY_MAX_BYTES} bytes"),
        (send(chunked(*[b"x" * 1000] * 20)), f"the list has more than {BODY_MAX_BYTES} bytes"),
        (send(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000), "the answer is not HTTP"),
        (send(*[b"HTTP/1.1 100 Continue\r\n\r\n"] * 9000), f"the answer has more than {ANSWER_MAX_BYTES} bytes"),
    ],
)
def test_anything_else_is_no_list_and_says_why(answer: Answer, reason: str) -> None:
    result = Fetched(answer).result
    assert isinstance(result, AddressServerError)
    assert str(result).startswith("http://web:8080/rocketmq/nsaddr: ")
    assert str(result).count("nsaddr") == 1
    assert reason in str(result)


@pytest.mark.parametrize(
    "answer",
    [never, send(*[plain(BODY)[at : at + 1] for at in range(len(plain(BODY)))], pause_s=1.0)],
    ids=["never", "slowly"],
)
def test_the_whole_answer_has_one_deadline(answer: Answer) -> None:
    fetched = Fetched(answer, AddressServer("web", timeout_ms=2500))
    assert str(fetched.result) == "http://web:8080/rocketmq/nsaddr: no answer within 2500 ms"
    assert fetched.took_s == pytest.approx(2.5)


def test_a_server_that_is_not_there_is_named() -> None:
    refused = Fetched(never, AddressServer("web:81")).result
    assert isinstance(refused, AddressServerError)
    assert str(refused).startswith("http://web:81/rocketmq/nsaddr: ")
    unknown = Fetched(never, AddressServer("nowhere.example")).result
    assert isinstance(unknown, AddressServerError)
    assert str(unknown).startswith("http://nowhere.example:8080/rocketmq/nsaddr: gaierror")


def test_a_connection_that_breaks_is_named() -> None:
    async def reset(stream: trio.SocketStream) -> None:
        await stream.send_all(plain(BODY)[:20])
        await trio.sleep(0.5)
        stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        stream.socket.close()

    result = Fetched(reset).result
    assert isinstance(result, AddressServerError)
    assert "the connection broke: [Errno 104]" in str(result)
