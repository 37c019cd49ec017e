"""What a Prometheus scrapes of a broker: names, labels and their bound, and what the port refuses."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from rmq_actors.broker.metrics import BrokerMetrics, MetricFamily
from rmq_actors.broker.metrics_server import CONNECTIONS_MAX, exposition
from rmq_actors.embedding.broker import load_broker_config, open_configured_broker
from rmq_actors.protocols.metric_labels import BoundedLabels
from rmq_actors.wire.record import Message


@given(st.lists(st.frozensets(st.integers(0, 9))), st.integers(1, 5))
def test_labels_stay_few_and_stay_what_they_were(steps: list[frozenset[int]], limit: int) -> None:
    labels, before = BoundedLabels[int](limit), frozenset[int]()
    for keys in steps:
        labels.update(sorted(keys))
        shown = {key for key in range(10) if labels.is_shown(key)}
        assert shown <= keys
        assert len(shown) == min(limit, len(keys))
        assert before & keys <= shown  # what had a series keeps it
        before = frozenset(shown)


@given(st.lists(st.integers(0, 99), unique=True), st.integers(1, 9), st.integers(1, 9))
def test_a_new_limit_counts_at_once_and_takes_those_away_that_came_last(
    keys: list[int], before: int, after: int
) -> None:
    labels = BoundedLabels[int](before)
    labels.update(keys)
    labels.resize(after)
    assert [key for key in keys if labels.is_shown(key)] == keys[: min(before, after)]
    labels.update(keys)
    assert [key for key in keys if labels.is_shown(key)] == keys[:after]


def test_the_text_is_prometheus_own() -> None:
    family = MetricFamily("rocketmq_producer_tps", "Puts", ("topic",), {('a"\n\\b',): 1.5})
    [read] = text_string_to_metric_families(exposition([family]).decode())
    assert (read.name, read.samples[0].labels, read.samples[0].value) == (
        "rocketmq_producer_tps",
        {"topic": 'a"\n\\b'},
        1.5,
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


@asynccontextmanager
async def broker_with_metrics(tmp_path: Path, *lines: str) -> AsyncIterator[int]:
    port = free_port()
    path = tmp_path / "broker.conf"
    own = ("listenPort=0", f"storePathRootDir={tmp_path}/store", "mappedFileSizeCommitLog=262144")
    path.write_text("\n".join((*own, f"metricsPromExporterPort={port}", *lines)))
    async with open_configured_broker(load_broker_config(path)) as broker:
        for number in range(3):
            await broker.put_message(Message("Orders", b"%d" % number))
        assert broker.remoting is not None
        broker.remoting.metadata.consumer_offsets.commit_offset("here", "billing", "Orders", 0, 1)
        while broker.store.commit_log.max_offset > broker.store.files.reput.reput_from_offset:
            await trio.sleep(0.01)
        yield port


async def ask(port: int, request: bytes) -> tuple[bytes, str]:
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(request)
        answer = b"".join([chunk async for chunk in stream])
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body.decode()


GET = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"


async def scrape(port: int) -> dict[str, list[tuple[dict[str, str], float]]]:
    head, body = await ask(port, GET)
    assert head.startswith(b"HTTP/1.1 200"), head
    return {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(body)
    }


@pytest.mark.trio
async def test_a_broker_tells_its_metrics(tmp_path: Path) -> None:
    async with broker_with_metrics(tmp_path) as port:
        told = await scrape(port)
        broker = {"cluster": "DefaultCluster", "broker": "broker-a"}
        assert told["rmq_actors_is_master"] == [(broker, 1.0)]
        assert told["rmq_actors_slaves"] == [(broker, 0.0)]
        assert [labels for labels, _ in told["rocketmq_broker_tps"]] == [broker]
        group = {**broker, "topic": "Orders", "group": "billing"}
        assert told["rocketmq_consumer_offset"] == [(group, 1.0)]
        assert told["rocketmq_group_diff"] == [(group, 2.0)]
        topics = [labels["topic"] for labels, _ in told["rocketmq_producer_offset"]]
        assert "TBW102" in topics
        assert len(topics) == len(set(topics))


@pytest.mark.trio
async def test_topics_beyond_the_limit_are_one_series(tmp_path: Path) -> None:
    async with broker_with_metrics(tmp_path, "metricsTopicsMax=2") as port:
        for _ in range(2):
            told = await scrape(port)
            topics = [labels["topic"] for labels, _ in told["rocketmq_producer_offset"]]
            assert (len(topics), topics.count("other")) == (3, 1)


@pytest.mark.trio
@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", b"405"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 16_400, b"431"),
    ],
)
async def test_what_the_port_refuses_ends_no_broker(tmp_path: Path, request_: bytes, status: bytes) -> None:
    async with broker_with_metrics(tmp_path) as port:
        head, body = await ask(port, request_)
        assert head.startswith(b"HTTP/1.1 " + status), head
        assert body == ""
        assert await scrape(port)


@pytest.mark.trio
async def test_a_scrape_that_fails_ends_no_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def wrong(_: BrokerMetrics) -> list[MetricFamily]:
        await trio.lowlevel.checkpoint()
        raise KeyError("wrong")

    async with broker_with_metrics(tmp_path) as port:
        with monkeypatch.context() as patch:
            patch.setattr(BrokerMetrics, "gather", wrong)
            head, _ = await ask(port, GET)
            assert head.startswith(b"HTTP/1.1 500")
        assert "the metrics cannot be told" in caplog.text
        assert await scrape(port)


@pytest.mark.trio
async def test_scrapes_are_few_at_a_time(tmp_path: Path) -> None:
    async with broker_with_metrics(tmp_path) as port:
        silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
        for stream in silent:
            await stream.send_all(b"GET")
        await trio.testing.wait_all_tasks_blocked(cushion=0.05)
        async with await trio.open_tcp_stream("127.0.0.1", port) as refused:
            with trio.fail_after(60):
                assert await refused.receive_some() == b""
        for stream in silent:
            await stream.aclose()
        with trio.fail_after(60):
            while True:
                head, _ = await ask(port, GET)
                if head:
                    break
        assert head.startswith(b"HTTP/1.1 200")


@pytest.mark.trio
async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    async with broker_with_metrics(tmp_path) as port:
        with pytest.RaisesGroup(
            pytest.RaisesExc(OSError, match=f"127.0.0.1:{port}: Address already in use"),
            allow_unwrapped=True,
            flatten_subgroups=True,
        ):
            path = tmp_path / "second.conf"
            path.write_text(f"listenPort=0\nstorePathRootDir={tmp_path}/second\nmetricsPromExporterPort={port}\n")
            async with open_configured_broker(load_broker_config(path)):
                pass
