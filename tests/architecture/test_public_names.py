"""What users import: the public names, and nothing else in examples and documents."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys

import pytest

from tests.architecture.project_copy import PROJECT

PUBLIC = {
    "rmq_actors": {
        "Admin",
        "AllocateMessageQueueAveragely",
        "AllocateMessageQueueAveragelyByCircle",
        "AllocateMessageQueueByConfig",
        "AllocateMessageQueueByMachineRoom",
        "AllocateMessageQueueConsistentHash",
        "AsyncioAdmin",
        "AsyncioClient",
        "AsyncioProducer",
        "AsyncioPullConsumer",
        "AsyncioPushConsumer",
        "BadAnswer",
        "BrokerConfig",
        "BrokerDown",
        "BrokerRefused",
        "BrokerRole",
        "BrokerStatus",
        "BrokerUnreachable",
        "CLUSTER_STORE",
        "ClientClosed",
        "ClientConfig",
        "ClientError",
        "ClientTimeout",
        "Cluster",
        "Concurrently",
        "ConnectionLost",
        "ConsumeConcurrentlyContext",
        "ConsumeConcurrentlyStatus",
        "ConsumeFromWhere",
        "ConsumeOrderlyContext",
        "ConsumeOrderlyStatus",
        "ExchangeFailed",
        "FlushDiskType",
        "HaConfig",
        "LocalTransactionState",
        "Message",
        "MessageExt",
        "MessageModel",
        "MessageQueue",
        "MessageRefused",
        "MessageStoreConfig",
        "NameServersUnreachable",
        "NoRoute",
        "Orderly",
        "Producer",
        "ProducerConfig",
        "PullConsumer",
        "PullConsumerConfig",
        "PullResult",
        "PullStatus",
        "PushConsumer",
        "PushConsumerConfig",
        "PutResult",
        "PutStatus",
        "RealCluster",
        "SendFailed",
        "SendResult",
        "SendStatus",
        "SessionCredentials",
        "StoredMessage",
        "SubscriptionGroupConfig",
        "TooManyRequests",
        "TopicConfig",
        "TransactionListener",
        "TransactionSendResult",
        "Unsupported",
        "decode_message",
        "load_broker_config",
        "log_sha256",
        "open_admin",
        "open_asyncio_client",
        "open_cluster",
        "open_configured_broker",
        "open_local_name_server",
        "open_message_store",
        "open_producer",
        "open_pull_consumer",
        "open_push_consumer",
        "open_remoting_client",
        "open_trio_guest",
        "select_message_queue_by_hash",
    },
    "rmq_actors.testing": {
        "BrokersUnderTest",
        "CLUSTER_FAULTS",
        "CaseFile",
        "ClusterBroken",
        "ClusterFixture",
        "ClusterView",
        "Effects",
        "Evidence",
        "FAIL_OVER",
        "FailOverOperator",
        "FaultFamilies",
        "Invariant",
        "Limit",
        "NodeView",
        "NotWell",
        "Operator",
        "PLANTED_BUGS",
        "REPLICATION",
        "REPLICATION_INVARIANTS",
        "REPLICATION_LIMITS",
        "RoleOperator",
        "RunResult",
        "SIM_STORE",
        "SIM_WORLD",
        "Scenario",
        "SimCluster",
        "StoreFixture",
        "Topology",
        "Workload",
        "Writers",
        "choices",
        "cluster_schedules",
        "random_case",
        "run_case",
        "run_handler",
    },
    "rmq_actors.analysis": {
        "JavaMissing",
        "TraceCheckFailed",
        "TraceSourceError",
        "Traces",
        "fault_intervals",
        "open_session",
        "puts",
        "replication_lag",
    },
}
#: The doors of what stands alone.
_OTHER_DOORS = {
    "rmq_actors.actors",
    "rmq_actors.tracing",
    "rmq_actors.tracing.spool",
    "sim_net",
    "sim_net.search.search",
    "sim_net.faults.strategies",
}
#: The classes of events, by area.
_EVENTS = "rmq_actors.tracing.events."
#: Pages and examples that speak to a broker request by request, as there are no clients yet, or show a part's inside.
_DEEPER = {"examples/remoting_client.py", "examples/two_masters_two_slaves.py"}


def imported(source: str) -> set[tuple[str, str]]:
    """Module and name of each import from the project."""
    return {
        (node.module, alias.name)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in ("rmq_actors", "sim_net")
        for alias in node.names
    }


def blocks() -> list[tuple[str, str]]:
    """Each example, and each block of Python in README and docs that imports something, with where it is."""
    found = [
        (str(path.relative_to(PROJECT)), path.read_text()) for path in sorted((PROJECT / "examples").rglob("*.py"))
    ]
    for path in [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]:
        found += [
            (str(path.relative_to(PROJECT)), block)
            for block in re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
            if re.search(r"^\s*from (rmq_actors|sim_net)", block, re.MULTILINE)
        ]
    return found


@pytest.mark.parametrize("package", PUBLIC)
def test_the_public_names_are_these(package: str) -> None:
    module = importlib.import_module(package)
    assert set(module._MODULES) == PUBLIC[package]
    for name in PUBLIC[package]:
        assert getattr(module, name) is not None
        assert name in dir(module)
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        module.no_such_name  # noqa: B018


@pytest.mark.parametrize("package", PUBLIC)
def test_type_checkers_see_the_same_names(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__file__ is not None
    source = ast.parse((PROJECT / module.__file__).read_text())
    seen = {
        alias.name: (node.module or "").removeprefix(f"{package}.")
        for node in ast.walk(source)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}.")
        for alias in node.names
    }
    assert seen == module._MODULES


def test_a_star_import_gives_the_public_names_and_no_others() -> None:
    given: dict[str, object] = {}
    exec("from rmq_actors import *", given)
    assert set(given) - {"__builtins__"} == PUBLIC["rmq_actors"]


def test_a_name_that_nobody_uses_loads_nothing() -> None:
    program = "import rmq_actors, rmq_actors.testing, sys; print('trio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=PROJECT)
    assert done.stdout == "False\n"


def test_examples_and_documents_import_public_names_alone() -> None:
    deeper = {
        (where, module, name)
        for where, source in blocks()
        if where not in _DEEPER
        for module, name in imported(source)
        if module not in _OTHER_DOORS and not module.startswith(_EVENTS) and name not in PUBLIC.get(module, ())
    }
    assert not deeper


def test_the_exceptions_are_needed() -> None:
    assert {where for where, _ in blocks()} >= _DEEPER
