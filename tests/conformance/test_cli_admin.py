"""`rmq-actors admin` with a broker on real sockets."""

from __future__ import annotations

import base64
import json

import pytest
import trio
from typer.testing import CliRunner

from rmq_actors.cli.main import app
from rmq_actors.embedding.clients import open_admin
from rmq_actors.wire.bodies.topic_configs import TopicConfig


def admin(*arguments: str, code: int = 0) -> str:
    """What a command prints."""
    done = CliRunner().invoke(app, ["admin", *arguments])
    assert done.exit_code == code, done.output
    return done.output


def test_a_topic_is_made_sent_to_found_and_removed(served_name_server: str) -> None:
    to = ("-n", served_name_server)
    admin("create-topic", "Orders", "--queues", "2", *to)
    assert "Orders" in admin("topics", *to).splitlines()
    assert "Orders" in json.loads(admin("topics", "--json", *to))
    assert "broker-a: 2 queues to read, 2 to write, perm 6" in admin("route", "Orders", *to)
    assert json.loads(admin("route", "Orders", "--json", *to))["queueDatas"][0]["writeQueueNums"] == 2
    printed = admin("send", "Orders", "one", "--tags", "new", "--keys", "order-1", *to)
    assert "broker-a queue " in printed
    unique_id = printed.split()[1]
    found = ""
    for _ in range(100):  # until it is dispatched to the index
        found = admin("query", "Orders", "order-1", *to)
        if found:
            break
    assert found.startswith(unique_id)
    assert found.rstrip().endswith("b'one'")
    assert sorted(admin("reset-offsets", "CG", "Orders", "0", *to).splitlines()) == [
        "broker-a queue 0: 0",
        "broker-a queue 1: 0",
    ]
    assert "illegal characters" in admin("reset-offsets", "b ad", "Orders", "0", *to, code=2)
    assert "16384" in admin("create-topic", "Many", "--queues", "16385", *to, code=2)
    assert "error: " in admin("send", "bad topic!", "x", *to, code=2)
    admin("delete-topic", "Orders", "--yes", *to)
    assert "error: topic Orders: " in admin("delete-topic", "Orders", "--yes", *to, code=1)
    assert "Orders" not in admin("topics", *to).splitlines()
    assert "error: topic Orders: " in admin("route", "Orders", *to, code=1)


def test_name_servers_are_those_of_the_environment_unless_they_are_given(
    served_name_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As mqadmin and RocketMQ's clients take them."""
    monkeypatch.setenv("NAMESRV_ADDR", served_name_server)
    assert "DefaultCluster" in admin("topics").splitlines()
    assert "error: no name server answers: 127.0.0.1:1: " in admin("topics", "-n", "127.0.0.1:1", code=1)


def test_messages_are_shown_to_whoever_asks_and_consumed_by_a_group(served_name_server: str) -> None:
    to = ("-n", served_name_server)
    admin("create-topic", "Shown", "--queues", "2", *to)
    last = dict[str, str]()
    for body, tag in (("one", "new"), ("two", "paid"), ("three", "new"), ("four", "new")):
        last[admin("send", "Shown", body, "--tags", tag, *to).partition(" queue ")[2].split()[0]] = body

    def shown(*arguments: str) -> list[str]:
        lines = admin(*arguments, "--json", *to).splitlines()
        return sorted(base64.b64decode(json.loads(line)["body"]).decode() for line in lines)

    look = ("tail", "Shown", "--last", "9", "--count")
    assert shown(*look, "4") == ["four", "one", "three", "two"]
    assert shown(*look, "3", "--tags", "new") == ["four", "one", "three"]
    assert shown(*look, f"{len(last)}", "--last", "1") == sorted(last.values())
    assert shown("tail", "Shown", "--wait", "1") == []
    share = ("consume", "Shown", "Billing", "--from-first", "--count")
    first = shown(*share, "3")
    assert len(first) == 3
    assert sorted(first + shown(*share, "1")) == ["four", "one", "three", "two"]
    admin("send", "Shown", "five", *to)
    assert shown(*share, "1") == ["five"]
    assert "b'one'" in admin(*look, "5", *to)
    assert len(shown(*look, "5")) == 5
    assert "error: topic Nope: " in admin("tail", "Nope", *to, code=1)
    assert "error: topic Nope: " in admin("consume", "Nope", "Billing", *to, code=1)
    assert "consumer_group" in admin("consume", "Shown", "b ad", *to, code=2)
    assert "split" in admin("tail", "Shown", "--tags", "||", *to, code=2)
    assert "0.05" in admin("tail", "Shown", "--wait", "0", *to, code=2)


def test_a_topic_that_nobody_may_read_has_no_tail(served_name_server: str) -> None:
    async def make() -> None:
        async with open_admin(served_name_server) as client:
            await client.create_topic(
                TopicConfig(topic_name="Letterbox", read_queue_nums=0, write_queue_nums=2, perm=2)
            )

    trio.run(make)
    assert "no queue of Letterbox can be read" in admin("tail", "Letterbox", "-n", served_name_server, code=2)


def test_bad_usage_and_nobody_there_have_their_exit_codes() -> None:
    assert "host:port" in admin("topics", "-n", "nonsense", code=2)
    assert "error: no name server answers: 127.0.0.1:1: " in admin("topics", "-n", "127.0.0.1:1", code=1)
