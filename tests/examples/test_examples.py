"""The examples run as they are and print what their readers are told."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
EXAMPLES = PROJECT / "examples"
ORDERS = r"(order \d is at offset \d+, and the slave has it\n){10}"
LOGS = r"both logs: \d+ bytes, SHA-256 \w{16}"
TWO_MASTERS = (
    r"2m-2s-{kind}: a client is told\n  broker-a: 0 at \S+, 1 at \S+\n  broker-b: 0 at \S+, 1 at \S+\n"
    r"broker-a, a {role}: 5 times PUT_OK\nbroker-b, a {role}: 5 times PUT_OK\n"
    r"the master of broker-a is killed; a client is told\n  broker-a: 1 at \S+\n  broker-b: 0 at \S+, 1 at \S+\n"
    r"its slave takes no messages \(SERVICE_NOT_AVAILABLE\), and has all that were confirmed:\n"
    r"(  broker-a, order \d\n){{5}}broker-b goes on: PUT_OK\n$"
)
EXPECTED = {
    "chaos_scenario": r"(seed \d: passed, \d+ puts acknowledged, \d+ virtual s\n){10}$",
    "actors_hello": (
        r"alice has 123 cents\naccounts/alice opens\nalice has 0 cents, after a crash\nbob has 7 cents, and did not"
        r"[\s\S]* alice +actor +running +1 [\s\S]* bob +actor +running +0 [\s\S]*the bank is closed"
    ),
    "asyncio_app": ORDERS + r"no second slave came within 0\.1 s\n" + LOGS,
    "embedded_cluster": ORDERS + LOGS,
    "message_store": (
        r"(PUT_OK: order \d has the id 7F0000010000[0-9A-F]{20}\n){3}FOUND: 3 messages, the next offset is 3\n"
        r"order-2 is 'order 2', tagged 'new'"
    ),
    "own_invariant": (
        r"any_ack: on the slave: \d+ bytes confirmed, the slave has 0 \(at event \d+\)\n"
        r"without a planted bug 20 worlds have passed\non real sockets the slave has 10 orders\n$"
    ),
    "remoting_client": (
        r"broker-a: master 0 at 127\.0\.0\.1:\d+\nbroker-a: slave 1 at 127\.0\.0\.1:\d+\n"
        r"BenchmarkTest: 1024 queues on broker-a\ncode 3: request type 4711 not supported"
    ),
    "simulated_echo": r"line 2 came back after 4\.\d+ s[\s\S]*both runs: digest [0-9a-f]{32}",
    "two_masters_two_slaves": TWO_MASTERS.format(kind="sync", role="SYNC_MASTER"),
}
#: With tests of their own.
OTHERS = {"chat_server", "simulated_chat"}


def run_example(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*EXPECTED} | OTHERS


def test_every_example_is_on_a_page() -> None:
    pages = "".join(page.read_text() for page in (PROJECT / "README.md", *(PROJECT / "docs").glob("*.md")))
    assert [path.name for path in EXAMPLES.glob("*.py") if f"examples/{path.name}" not in pages] == []


@pytest.mark.parametrize("name", EXPECTED)
def test_example(name: str) -> None:
    done = run_example(f"examples/{name}.py")
    assert done.returncode == 0, done.stderr
    assert re.search(EXPECTED[name], done.stdout), done.stdout


def test_the_asynchronous_masters_run_too() -> None:
    done = run_example("examples/two_masters_two_slaves.py", "2m-2s-async")
    assert done.returncode == 0, done.stderr
    assert re.search(TWO_MASTERS.format(kind="async", role="ASYNC_MASTER"), done.stdout), done.stdout


def test_the_bug_of_the_chat_server_is_found_and_replayed() -> None:
    found = run_example("examples/simulated_chat.py")
    assert found.returncode == 1, found.stdout + found.stderr
    assert re.match(r"run \d+ fails, with \d faults: \w+ was cut off by the server, for no reason\n", found.stdout), (
        found.stdout
    )
    small = re.search(r"^with [1-3] faults \(digest ([0-9a-f]{32})\): \w+ was cut off", found.stdout, re.MULTILINE)
    assert small is not None, found.stdout

    command = re.search(r"^replay it: python (.*)$", found.stdout, re.MULTILINE)
    assert command is not None, found.stdout
    replayed = run_example(*shlex.split(command[1]))
    assert replayed.returncode == 1, replayed.stdout + replayed.stderr
    assert f"digest {small[1]}" in replayed.stdout

    fixed = run_example(*shlex.split(command[1]), "--fixed")
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr


def test_the_fixed_chat_server_passes() -> None:
    done = run_example("examples/simulated_chat.py", "--fixed", "--runs", "200")
    assert done.stdout == "200 runs: all is well\n", done.stderr
    assert done.returncode == 0
