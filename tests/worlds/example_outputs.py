"""What the examples print, run from the sources or with the wheel: a regular expression for each."""

from __future__ import annotations

from pathlib import Path

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
    "consume": r"billing: 10 messages\nshipping: paid, packed, sent\naudit: 10 messages\n$",
    "embedded_cluster": ORDERS + LOGS,
    "message_store": (
        r"(PUT_OK: order \d has the id 7F0000010000[0-9A-F]{20}\n){3}FOUND: 3 messages, the next offset is 3\n"
        r"order-2 is 'order 2', tagged 'new'"
    ),
    "outbox": (
        r"coffee: COMMIT_MESSAGE\ntoo much: ROLLBACK_MESSAGE\ntea: the service dies before the broker is told\n"
        r"the broker asks about tea: written\nwritten: coffee, tea; published: coffee, tea\n$"
    ),
    "own_invariant": (
        r"any_ack: on the slave: \d+ bytes confirmed, the slave has 0 \(at event \d+\)\n"
        r"without a planted bug 20 worlds have passed\non real sockets the slave has 10 orders\n$"
    ),
    "produce": (
        r"one: SEND_OK, number 0 of its queue\na batch: 3 messages\n"
        r"MessageRefused: the message body length is zero; again: False\nOrders: 16 messages\n$"
    ),
    "read_from_slave": (
        r"the master is down, and all 10 have come, from the slave\n"
        r"nothing is sent: (SendFailed|BrokerUnreachable); again: True\nthe master is back: one more has come\n$"
    ),
    "remoting_client": (
        r"broker-a: master 0 at 127\.0\.0\.1:\d+\nbroker-a: slave 1 at 127\.0\.0\.1:\d+\n"
        r"BenchmarkTest: 1024 queues on broker-a\ncode 3: request type 4711 not supported"
    ),
    "simulated_echo": r"line 2 came back after 4\.\d+ s[\s\S]*both runs: digest [0-9a-f]{32}",
    "two_masters_two_slaves": TWO_MASTERS.format(kind="sync", role="SYNC_MASTER"),
}
#: What needs Spark, and so Java.
SPARK_EXPECTED = {
    "analyze_traces": (
        r"20 runs, \d+ events\n( +[A-Z]\w+: +\d+ puts, median +\d+\.\d ms, slowest +\d+\.\d ms\n)+"
        r"( +no fault: +\d+ puts, median +\d+\.\d ms, slowest +\d+\.\d ms\n)"
    ),
}
