"""A Java process whose RocketMQ classes are called from here, through py4j: mqadmin, producers, consumers.

Py4j comes with PySpark, and needs no Java compiler. Objects of Java are untyped here.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from py4j import java_gateway

from tests.worlds.java_process import JAVA_FLAGS, JavaRuntime, write_logback
from tests.worlds.server_process import wait_until

#: A consumer asks for its queues every 20 s.
CONSUME_TIMEOUT_S = 180.0
#: Instead of 3 s.
API_TIMEOUT_MS = 60_000
_POLL_TIMEOUT_MS = 500
#: An mqadmin command waits 5 s for an answer, or until another request on its connection has waited for 3 s, which
#: ends the connection; neither is an option.
_ADMIN_TRIES = 6
_LATE = re.compile("Remoting(Timeout|SendRequest)Exception")


class CommandFailed(Exception):
    """An mqadmin command printed a stack trace, or that it failed; carries all that it printed."""


class _Listener:
    """Notes what it is given, and says which of two answers of Java's it gives for that."""

    def __init__(
        self, consumed: list[tuple[int, bytes]], fails: Callable[[bytes], bool], done: Any, again: Any
    ) -> None:
        self._consumed, self._fails, self._done, self._again = consumed, fails, done, again

    def consumeMessage(self, messages: Any, _: Any) -> Any:  # noqa: N802 - Java's name
        found = [(int(message.getQueueId()), bytes(message.getBody())) for message in messages]
        self._consumed += found
        return self._again if any(self._fails(body) for _, body in found) else self._done

    def toString(self) -> str:  # noqa: N802 - Java's name
        """The consumer shows it to an operator who asks for its state."""
        return "Listener"


class _ConcurrentListener(_Listener):
    class Java:
        implements: ClassVar = ["org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently"]


class _OrderlyListener(_Listener):
    class Java:
        implements: ClassVar = ["org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly"]


class _TransactionListener:
    """Says how a message's transaction ends: when it has been sent, and each time that the broker asks."""

    def __init__(
        self, states: Any, execute: Callable[[bytes], str], check: Callable[[bytes], str], asked: list[bytes]
    ) -> None:
        self._states, self._execute, self._check, self._asked = states, execute, check, asked

    def executeLocalTransaction(self, message: Any, _: Any) -> Any:  # noqa: N802 - Java's name
        return self._states.valueOf(self._execute(bytes(message.getBody())))

    def checkLocalTransaction(self, message: Any) -> Any:  # noqa: N802 - Java's name
        body = bytes(message.getBody())
        self._asked.append(body)
        return self._states.valueOf(self._check(body))

    class Java:
        implements: ClassVar = ["org.apache.rocketmq.client.producer.TransactionListener"]


class JavaGateway:
    """One Java process. Create with `open_java_gateway`."""

    # No attrs class: Hypothesis would print its fields, and py4j takes each question about them to Java.

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self._instances = itertools.count()

    @property
    def jvm(self) -> Any:
        """Java's classes by their full names: `jvm.org.apache.rocketmq.common.message.Message(...)`."""
        return self._gateway.jvm

    def mqadmin(self, name_server: str, command: str, *options: str) -> str:
        """Run an mqadmin command as its main method does; what it prints. Raises `CommandFailed`.

        It is run again when it was not answered in time: on a slow machine that says nothing.
        """
        for _ in range(_ADMIN_TRIES):
            text = self.run_mqadmin_once(name_server, command, *options)
            if not _LATE.search(text):
                break
        if "Exception" in text or "command failed" in text or "not exist" in text:
            raise CommandFailed(f"mqadmin {command} {' '.join(options)}:\n{text}")
        return text

    def run_mqadmin_once(self, name_server: str, command: str, *options: str) -> str:
        """What it prints, whatever that is."""
        arguments = self.array(self.jvm.java.lang.String, command, "-n", name_server, *options)
        printed = self.jvm.java.io.ByteArrayOutputStream()
        system = self.jvm.java.lang.System
        to = self.jvm.java.io.PrintStream(printed, True, "UTF-8")
        before = system.out, system.err
        system.setOut(to)
        system.setErr(to)
        try:
            # Some commands keep their client, which they have closed: each run gets new ones, as a process does.
            startup = self.jvm.java.lang.Class.forName("org.apache.rocketmq.tools.command.MQAdminStartup")
            for field in startup.getDeclaredFields():
                if field.getType().getName() == "java.util.List":  # subCommandList, SUB_COMMANDS
                    field.setAccessible(True)
                    commands = field.get(None)
                    commands.removeAll(commands)  # Python's `clear` of a Java list fails at its end
            self.jvm.org.apache.rocketmq.tools.command.MQAdminStartup.main0(arguments, None)
        finally:
            system.setOut(before[0])
            system.setErr(before[1])
        return str(printed.toString("UTF-8"))

    def produce(self, name_server: str, topic: str, bodies: Sequence[bytes]) -> list[str]:
        """Send messages one after another with a DefaultMQProducer; the broker that took each one."""
        client = self.jvm.org.apache.rocketmq.client
        producer = client.producer.DefaultMQProducer("PG_interop")
        producer.setNamesrvAddr(name_server)
        producer.setInstanceName(self._new_instance())
        producer.setSendMsgTimeout(API_TIMEOUT_MS)
        producer.setMqClientApiTimeout(API_TIMEOUT_MS)
        producer.start()
        try:
            message = self.jvm.org.apache.rocketmq.common.message.Message
            results = [producer.send(message(topic, bytearray(body))) for body in bodies]
            refused = [str(result) for result in results if result.getSendStatus().name() != "SEND_OK"]
            assert not refused, refused
            return [str(result.getMessageQueue().getBrokerName()) for result in results]
        finally:
            producer.shutdown()

    def consume(self, name_server: str, topic: str, count: int) -> list[bytes]:
        """The bodies of the first `count` messages that a DefaultLitePullConsumer of a new group gets."""
        client = self.jvm.org.apache.rocketmq.client
        consumer = client.consumer.DefaultLitePullConsumer(f"CG_{self._new_instance()}")
        consumer.setNamesrvAddr(name_server)
        consumer.setInstanceName(self._new_instance())
        consumer.setMqClientApiTimeout(API_TIMEOUT_MS)
        # Whether the topic is registered already.
        consumer.setPollNameServerInterval(1000)
        consumer.setConsumeFromWhere(
            self.jvm.org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        )
        consumer.subscribe(topic, "*")
        consumer.start()
        bodies: list[bytes] = []
        try:
            wait_until(lambda: self._poll(consumer, bodies) >= count, CONSUME_TIMEOUT_S, f"{count} messages of {topic}")
        finally:
            consumer.shutdown()
        return bodies

    @contextlib.contextmanager
    def push_consumer(
        self,
        name_server: str,
        group: str,
        topic: str,
        *,
        orderly: bool = False,
        broadcast: bool = False,
        tags: str = "*",
        fails: Callable[[bytes], bool] = lambda body: False,
        max_reconsume_times: int | None = None,
    ) -> Iterator[list[tuple[int, bytes]]]:
        """A DefaultMQPushConsumer for the length of a block; the queue and body of each message, as they are consumed.

        A message that `fails` is to be consumed again.
        """
        consumed: list[tuple[int, bytes]] = []
        consumer = self.jvm.org.apache.rocketmq.client.consumer.DefaultMQPushConsumer(group)
        consumer.setNamesrvAddr(name_server)
        consumer.setInstanceName(self._new_instance())
        consumer.setMqClientApiTimeout(API_TIMEOUT_MS)
        consumer.setConsumeFromWhere(
            self.jvm.org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        )
        if max_reconsume_times is not None:
            consumer.setMaxReconsumeTimes(max_reconsume_times)
        if broadcast:
            consumer.setMessageModel(self.jvm.org.apache.rocketmq.common.protocol.heartbeat.MessageModel.BROADCASTING)
        consumer.subscribe(topic, tags)
        listeners = self.jvm.org.apache.rocketmq.client.consumer.listener
        if orderly:
            orders = listeners.ConsumeOrderlyStatus
            consumer.registerMessageListener(
                _OrderlyListener(consumed, fails, orders.SUCCESS, orders.SUSPEND_CURRENT_QUEUE_A_MOMENT)
            )
        else:
            answers = listeners.ConsumeConcurrentlyStatus
            consumer.registerMessageListener(
                _ConcurrentListener(consumed, fails, answers.CONSUME_SUCCESS, answers.RECONSUME_LATER)
            )
        consumer.start()
        try:
            yield consumed
        finally:
            consumer.shutdown()

    @contextlib.contextmanager
    def transaction_producer(
        self, name_server: str, group: str, execute: Callable[[bytes], str], check: Callable[[bytes], str]
    ) -> Iterator[tuple[Any, list[bytes]]]:
        """A TransactionMQProducer for the length of a block, and the bodies about which the broker has asked it.

        `execute` and `check` give the name of a LocalTransactionState for a body.
        """
        asked: list[bytes] = []
        client = self.jvm.org.apache.rocketmq.client.producer
        producer = client.TransactionMQProducer(group)
        producer.setNamesrvAddr(name_server)
        producer.setInstanceName(self._new_instance())
        producer.setSendMsgTimeout(API_TIMEOUT_MS)
        producer.setMqClientApiTimeout(API_TIMEOUT_MS)
        # It finds a broker that has moved, and its broker hears of it, within a second.
        producer.setPollNameServerInterval(1000)
        producer.setHeartbeatBrokerInterval(1000)
        producer.setTransactionListener(_TransactionListener(client.LocalTransactionState, execute, check, asked))
        producer.start()
        try:
            yield producer, asked
        finally:
            producer.shutdown()

    def _poll(self, consumer: Any, bodies: list[bytes]) -> int:
        bodies += [bytes(message.getBody()) for message in consumer.poll(_POLL_TIMEOUT_MS)]
        return len(bodies)

    def _new_instance(self) -> str:
        # Two clients of one process share a connection when their instances bear the same name.
        return f"interop{next(self._instances)}"

    def array(self, java_class: Any, *values: Any) -> Any:
        """A Java array."""
        array = self._gateway.new_array(java_class, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array


@contextlib.contextmanager
def open_java_gateway(directory: Path, runtime: JavaRuntime, *java_options: str) -> Iterator[JavaGateway]:
    """A Java process that ends with the block, or with this process; `directory` is its home."""
    write_logback(directory, "tools")
    own = (
        f"-Drocketmq.home.dir={directory}",
        f"-Dlogback.configurationFile={directory}/conf/logback_tools.xml",
        f"-Duser.home={directory}",
        f"-Djava.io.tmpdir={directory}",
    )
    port, token, process = java_gateway.launch_gateway(
        classpath=runtime.classpath,
        javaopts=[*JAVA_FLAGS, *own, *java_options],
        java_path=runtime.java,
        cwd=str(directory),
        redirect_stdout=collections.deque(maxlen=1),
        redirect_stderr=collections.deque(maxlen=1),
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    parameters = java_gateway.GatewayParameters(port=port, auth_token=token, auto_convert=True)
    # Listeners in Python are called on a port that the system chooses.
    callbacks = java_gateway.CallbackServerParameters(port=0, daemonize=True, daemonize_connections=True)
    gateway = java_gateway.JavaGateway(gateway_parameters=parameters, callback_server_parameters=callbacks)
    server = gateway.java_gateway_server
    server.resetCallbackClient(
        server.getCallbackClient().getAddress(), gateway.get_callback_server().get_listening_port()
    )
    try:
        yield JavaGateway(gateway)
    finally:
        gateway.shutdown()
        process.kill()
        process.wait()
        process.stdin.close()
