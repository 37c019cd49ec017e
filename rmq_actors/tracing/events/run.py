"""The run, its faults, and what its checkers say."""

from __future__ import annotations

from rmq_actors.tracing.event import Event, attribute


class RunStart(Event, kind="run.start", emitter="testing.scenarios, cli"):
    """The run begins."""


class RunEnd(Event, kind="run.end", emitter="testing.scenarios, cli"):
    """The run ends; status is its outcome."""

    status: str
    detail: str | None = None


class FaultBegin(Event, kind="fault.begin", emitter="sim_net.faults.nemesis", actor="sim_net"):
    """A fault takes effect; fault.nodes: the nodes that it is of, with commas between."""

    fault_id: int
    fault_kind: str = attribute("fault.kind")
    nodes: str = attribute("fault.nodes")


class FaultEnd(Event, kind="fault.end", emitter="sim_net.faults.nemesis", actor="sim_net"):
    """A fault is over; fault.nodes: the nodes that it is of, with commas between."""

    fault_id: int
    fault_kind: str = attribute("fault.kind")
    nodes: str = attribute("fault.nodes")


class FaultObserved(
    Event, kind="fault.observed", emitter="testing.observation, testing.replication_run, testing.sim_cluster"
):
    """The program under test met a fault."""

    status: str
    parent_seq: int | None = None
    detail: str | None = None


class InvariantBrokenEvent(
    Event, kind="invariant.broken", emitter="testing.replication_run, testing.sim_cluster", actor="Judge"
):
    """An invariant does not hold; status names it."""

    status: str
    detail: str


class OperatorPromote(Event, kind="operator.promote", emitter="testing.promotions", actor="Operator"):
    """An operator makes this node the master; status says by what it was chosen: longest or shortest log."""

    status: str


class OperatorCommand(Event, kind="operator.command", emitter="testing.drawn_operator", actor="Operator"):
    """An operator has done something about this node; status says what, detail why it could not be done."""

    status: str
    detail: str | None = None


class OperatorRole(Event, kind="operator.role", emitter="testing.drawn_operator", actor="Operator"):
    """An operator's command gives this broker a role; status asked, then done, or why not, as detail says.

    refused: the command cannot be carried out; unwritten: the disk takes no settings or no term, or their file cannot
    be read; failed: it ends.
    """

    status: str
    role: str
    detail: str


class OperatorSetUpAnew(Event, kind="operator.set_up_anew", emitter="testing.sim_brokers", actor="Operator"):
    """An operator removes all that a slave has."""


class OperatorStop(Event, kind="operator.stop", emitter="testing.settings", actor="Operator"):
    """An operator asks this node's broker to stop in order."""


class OperatorFiles(Event, kind="operator.files", emitter="testing.lost_files", actor="Operator"):
    """An operator has changed files of this node's broker; detail says what and which.

    status: changed; refused, if the broker must not go to work as it is; blocked,
    if its settings cannot be replaced; mended, if all is as it was.
    """

    status: str
    detail: str


class ClientTable(Event, kind="client.table", emitter="testing.table_clients", actor="TableClients"):
    """A client has had a topic or a group made, or an offset committed; status ok, durable, or what that failed by."""

    status: str
    part: str
    entry: str


class ClientSend(
    Event,
    kind="client.send",
    emitter="testing.remote_clients, testing.application_clients, testing.topic_clients",
    actor="Producer",
):
    """A producer's message was answered with status, a code's name, or was not, by an error's name.

    key names the message; queue_offset and offset say where it is, -1 if that is not known.
    """

    status: str
    offset: int
    key: str
    queue_id: int
    queue_offset: int


class ClientTransaction(Event, kind="client.transaction", emitter="testing.transactional_clients", actor="Producer"):
    """A producer has decided how a transaction ends, or a broker has confirmed it; key names its message.

    status: commit or roll_back: decided; committed or rolled_back: confirmed.
    """

    status: str
    key: str


class ClientPull(Event, kind="client.pull", emitter="testing.remote_clients", actor="Consumer"):
    """A consumer's pull from queue_offset was answered with status, a code's name, and where to pull next."""

    status: str
    queue_id: int
    queue_offset: int
    queue_offset_next: int
    queue_offset_min: int


class ClientRead(Event, kind="client.read", emitter="testing.remote_clients", actor="Consumer"):
    """A consumer has a message of the pull told before; status as_sent or altered; expected: the offset that was due.

    checksum: the CRC-32 of the record.
    """

    status: str
    offset: int
    size: int
    queue_id: int
    queue_offset: int
    expected: int
    checksum: int


class ClientConsume(Event, kind="client.consume", emitter="testing.consumer_groups", actor="Listener"):
    """A member of a group has a message: begin, then consumed, later if it is to come again, or cancelled.

    client: its clientId; key names the message, offset is where the broker that gave it has it; checksum: the body's.
    """

    status: str
    offset: int
    group: str = attribute("messaging.consumer.group.name")
    client: str = attribute("messaging.client.id")
    topic: str
    queue_id: int
    queue_offset: int
    key: str
    checksum: int


class ClientMember(Event, kind="client.member", emitter="testing.consumer_groups", actor="Application"):
    """A consumer of a group is there (joined), or no more: left, cancelled, or crashed with its machine."""

    status: str
    group: str = attribute("messaging.consumer.group.name")
    client: str = attribute("messaging.client.id")


class ClientCall(Event, kind="client.call", emitter="testing.consumer_groups", actor="Application"):
    """A call of a client has ended; status: ok, or an error's name; timeout_ms: what it had at most."""

    status: str
    name: str
    elapsed_ms: float
    timeout_ms: int


class ClientTopic(
    Event,
    kind="client.topic",
    emitter="testing.topic_clients, testing.errands, testing.errands_of_tables, testing.errands_of_settings, "
    "testing.errands_of_refusals",
    actor="TopicClients",
):
    """A client asks this node to create or delete a topic or its group, or sends to it: operation says which.

    status: asked, then what that was answered with, a code's name, or was not, by an error's name.
    """

    status: str
    operation: str
    topic: str


class ClientTopicOffset(Event, kind="client.topic_offset", emitter="testing.topic_clients", actor="TopicClients"):
    """A group commits an offset of a queue of a topic, or asks for it: operation says which, asked_ns when.

    status: asked, or a code's name; queue_offset: what was committed, or was answered.
    """

    status: str
    operation: str
    topic: str
    queue_id: int
    queue_offset: int
    asked_ns: int


class ClientTopicPull(Event, kind="client.topic_pull", emitter="testing.read_queue", actor="TopicClients"):
    """A pull of a topic's queue, asked at asked_ns, was answered with status, a code's name; -1: it names no offset."""

    status: str
    topic: str
    queue_id: int
    queue_offset: int
    queue_offset_next: int
    queue_offset_min: int
    asked_ns: int


class ClientTopicRead(Event, kind="client.topic_read", emitter="testing.read_queue", actor="TopicClients"):
    """A consumer has a message of the pull told before; offset is that of the log; status as_sent or altered."""

    status: str
    offset: int
    topic: str
    queue_id: int
    queue_offset: int
    asked_ns: int


class NameServerEmpty(Event, kind="name_server.empty", emitter="testing.name_servers", actor="Harness"):
    """The name server of this node begins, and knows no broker."""


class NameServerTells(Event, kind="name_server.tells", emitter="testing.routes", actor="Operator"):
    """The operator has looked at the routes of this node's name server in a quiet time: what it tells of a broker.

    broker_id is the broker's own, and ids are those at which routes name its address, has_rival: whether they name
    another one at broker_id, which has that, too. permission is the master's, and told the one that routes have; both
    are 0 for a slave.
    """

    broker: str
    broker_id: int
    ids: str
    has_rival: bool
    permission: int
    told: int


class BrokerRest(Event, kind="broker.rest", emitter="testing.rest", actor="Harness"):
    """Nobody has asked for anything for a while: what this broker has done in duration_ns all the same.

    role is the broker's, slaves how many follow it; steps those of its tasks, disk_operations those of its disk,
    held_pulls the pulls that wait. detail: the tasks that took most of the steps.
    """

    role: str
    slaves: int
    duration_ns: int
    steps: int
    disk_operations: int
    held_pulls: int
    detail: str


class ClientStranger(Event, kind="client.stranger", emitter="testing.stranger_clients", actor="Stranger"):
    """A stranger asks this node for what most clients never ask: operation is the kind of request, key its name.

    status: asked, then what that was answered with, a code's name, or was not, by an error's name. role is the broker's
    at that moment; detail: what else is wrong with the answer.
    """

    status: str
    operation: str
    key: str
    role: str
    detail: str


class ClientAccount(Event, kind="client.account", emitter="testing.account_clients", actor="Visitor"):
    """A client asks this node in the name of an account: operation is the kind of request, key its name.

    account is the access key, empty where the request names none; secret the number of the secret key that it is signed
    with, -1 for no right one; host the client's address; needs what it needs, with spaces between, after ~ what shows
    only later. topic: where its message goes; about: the request whose message it is about, which was at offset; half:
    whether the message is one of a transaction.
    status: asked, then denied, oneway, the name of the code of the answer, or of an error. shown: the topics of the
    messages that the answer has. detail: what else is wrong with the answer.
    """

    status: str
    operation: str
    key: str
    account: str
    secret: int
    host: str
    needs: str
    topic: str
    about: str
    offset: int
    half: bool
    shown: str
    detail: str


class ClientAccountChange(
    Event, kind="client.account_change", emitter="testing.account_administrator", actor="Administrator"
):
    """An administrator changes an account of this node, or the addresses that need none: account is empty then.

    detail is the new account, without its secret key, or the addresses; empty: it is deleted; "?": it cannot be.
    status: asked, then done, denied, the name of the code of a refusal, or of an error. An operator who changes a file
    at the machine tells written, and done when it must hold.
    """

    status: str
    account: str
    detail: str


class ClientErrand(Event, kind="client.errand", emitter="testing.errand_clients", actor="Errand"):
    """A client runs an errand at this node: operation is the kind of errand, key the topic that it alone has.

    status: begun, then done, given_up if something was refused that it needs, or unanswered. detail: what was wrong.
    """

    status: str
    operation: str
    key: str
    detail: str


class ClientStrangerLeaves(Event, kind="client.stranger_leaves", emitter="testing.stranger_clients", actor="Stranger"):
    """A request of a stranger may leave a message in the log, of which checksum tells topic, body and properties.

    queue_id -1: in any queue; status: plain, or delayed.
    """

    status: str
    key: str
    queue_id: int
    checksum: int
