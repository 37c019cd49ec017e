"""What clients and operator do in a scenario, and the brokers' settings: the parameters of a case, checked."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence

import attrs

from rmq_actors.broker.config import BROKER_KEYS, BrokerConfig
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.settings.configure import Properties, configure, known_keys
from rmq_actors.settings.field_types import shown
from rmq_actors.store.config import BrokerRole, FlushDiskType
from rmq_actors.testing.planted_bugs import PLANTED_BUGS
from sim_net.search.search import Parameter

_FLUSH_TYPES = tuple(flush_type.value for flush_type in FlushDiskType)
_ROLES = (BrokerRole.SYNC_MASTER.value, BrokerRole.ASYNC_MASTER.value)
#: Each role with each way to flush: runs take them in turn, by their seeds.
COMBINATIONS = tuple(itertools.product(_ROLES, _FLUSH_TYPES, _FLUSH_TYPES))
#: How a master is lost, or gives up its role; which slave is promoted then; and what happens to diverged logs.
LOSSES = ("kill", "power_loss", "step_down")
CHOICES = ("longest", "shortest")
DIVERGENCE = ("halt", "command", "setting")
_IN_FLIGHT_MAX = 100
_BODY_BYTES_MAX = 60_000
_BATCH_BYTES_MAX = 32 * 1024
_FILE_BYTES_MIN, _FILE_BYTES_MAX = 300, 1 << 20
_QUEUE_FILE_BYTES_MAX = 1 << 20
_SKEW_MAX = 20
#: What a record has beside its body, and the head of the blank that ends its file.
RECORD_BESIDE_BODY_BYTES = 200
_FAIL_OVERS_MAX = 3
#: Which consumer groups there are: one of a kind of consumer, or one of each kind.
KINDS_OF_GROUPS = ("concurrent", "orderly", "pull")
GROUPS = ("none", *KINDS_OF_GROUPS, "all")
_MEMBER_CHANGES_MAX = 20
#: How the members of a group share queues, by the strategies' names.
ALLOCATIONS = ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH")
_CONSUME_BATCH_MAX = 32
_TOPIC_LIVES_MAX = 100
_STRANGERS_MAX = 1_000
_ERRANDS_MAX = 100
_ACCOUNTS_MAX = 1_000
_NAME_SERVERS_MAX = 3
#: The settings of brokers; and a broker that has them all, for a look at values.
_KEYS = frozenset(known_keys(BrokerConfig, BROKER_KEYS))
_ANY_BROKER = BrokerConfig(remoting=RemotingServerConfig(listen_port=10911))
#: How often the master goes on alone when it has too few slaves.
_AUTO = 0.1
#: How often messages go through clients.
_CLIENTS = 0.5
#: How often producers have these settings.
_AUTO_BATCH, _LATENCY_FAULTS = 0.4, 0.2
#: How often a master that may have a transient pool has one, and how often logs are cleaned.
_POOL = 0.3
_CLEANING = 0.3
#: How often HA ports let nobody in but slaves.
_SLAVES_ALONE = 0.3
#: Brokers rest in one of so many runs, and for how long: slaves ask their masters for tables three times.
_GROUPS_A_REST, _REST_S = 4, 30.0


def _whole_number(minimum: int, maximum: int | None = None) -> Callable[[object, attrs.Attribute[int], int], None]:
    limits = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"

    def check(_: object, attribute: attrs.Attribute[int], value: int) -> None:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or not minimum <= value <= (value if maximum is None else maximum):
            raise ValueError(f"parameters[{attribute.name!r}] must be a whole number {limits}, not {value!r}")

    return check


def _seconds(_: object, attribute: attrs.Attribute[float], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"parameters[{attribute.name!r}] must be a finite number of at least 0, not {value!r}")


def _share(_: object, attribute: attrs.Attribute[float], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"parameters[{attribute.name!r}] must be a number from 0 to 1, not {value!r}")


def _one_of(*choices: str) -> Callable[[object, attrs.Attribute[str], str], None]:
    def check(_: object, attribute: attrs.Attribute[str], value: str) -> None:
        if value not in choices:
            raise ValueError(f"parameters[{attribute.name!r}] must be one of {', '.join(choices)}, not {value!r}")

    return check


def _flag(_: object, attribute: attrs.Attribute[bool], value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"parameters[{attribute.name!r}] must be true or false, not {value!r}")  # noqa: TRY004 - bad input


def _known_bug(_: object, __: attrs.Attribute[str | None], value: object) -> None:
    if value is not None and value not in PLANTED_BUGS:
        raise ValueError(f"no planted bug is called {value!r}; there are {', '.join(PLANTED_BUGS)}")


def settings_of(text: str) -> dict[str, str]:
    """Properties by RocketMQ's keys, out of "key=value;key=value". Raises ValueError naming what is no such thing."""
    found: dict[str, str] = {}
    for part in filter(None, text.split(";")):
        key, is_given, value = part.partition("=")
        if not is_given or key not in _KEYS:
            raise ValueError(f"{part!r} is not a setting of a broker as key=value")
        found[key] = value
    return found


@functools.cache
def _check_settings(text: str) -> None:
    """Raises ValueError."""
    if text:
        configure(_ANY_BROKER, Properties("the case", settings_of(text)), BROKER_KEYS)


def _known_settings(_: object, attribute: attrs.Attribute[str], value: object) -> None:
    if not isinstance(value, str):
        raise ValueError(f"parameters[{attribute.name!r}] must be a text, not {value!r}")  # noqa: TRY004 - bad input
    try:
        _check_settings(value)
    except ValueError as error:
        raise ValueError(f"parameters[{attribute.name!r}]: {error}") from error


@attrs.frozen
class Workload:
    """Two writers put `puts` messages in all, `in_flight` each at a time, and rest for up to `pause_s` seconds between.

    Bodies have 1 to `body_bytes_max` bytes, short ones more often: the greater `body_skew`, the more of them. Masters
    send frames of up to `transfer_batch_bytes` of the log (haTransferBatchSize), of which a file has `log_file_bytes`,
    one of a queue `queue_file_bytes`. `in_sync_replicas`: see `HaConfig`; with `auto_in_sync_replicas` a master may go
    on alone.

    With `transient_pool` the master's puts go through the pool (transientStorePoolEnable). Unless 0, each broker cleans
    its log every `clean_every_s` seconds as if its disk were short of space: of all files that no start needs. A slave
    whose master has deleted what comes next is set up again.

    With `clients` the writers are producers that send requests from another machine, again until one is answered, and a
    consumer pulls what they send; else writers call the broker in its process. With `transactions` producers send a
    part of the messages in transactions; it needs `clients`. Of their messages `delays` are delayed, and `retries` are
    sent back by the consumer: shares from 0 to 1. With `topic_lives` clients make topics, fill, read and delete them,
    so many times in all; it needs `clients`. With `strangers` others make so many requests that
    most clients never make, and lean on all ports; with `allows_slaves_alone` (haAllowedAddresses) HA ports let none
    in. With `errands` others run so many errands; it needs `clients`.
    With `accounts` brokers have accounts (aclEnable), and others make so many requests in their names; it needs
    `clients`.

    With `groups` the clients are this project's own producers and consumers: a group of concurrent, orderly or pull
    consumers, or one of each kind. Members come and go `member_changes` times; `retries` are told to come again. With
    `auto_batch` (autoBatch) messages of concurrent tasks leave together, with `latency_faults`
    (sendLatencyFaultEnable) producers avoid brokers that were slow; concurrent listeners get up to `consume_batch`
    messages (consumeMessageBatchMaxSize), and members share queues by `allocation`.

    In the end clients let brokers be for `rests_s`, unless it is 0: see `BrokerRest`.

    `settings` are those of all brokers that no other parameter sets, by RocketMQ's keys, "key=value;key=value"; those
    of `settings_apart` are of all but the first master. With `neighbour` there is a broker of another brokerName.

    With `name_servers` brokers register with so many, and slaves learn from these alone who is their master.

    Where roles change, clients have topics and groups made and commit offsets, `table_changes` of these in all. With
    `changes_in_exchanges` one comes right after the other while roles are exchanged.

    In `fail_overs` of them, from `fail_over_at_s` on, the master is lost (`lost_by`), one of the slaves is promoted
    (`promoted`), and the old master comes back as a slave `back_after_s` later. A log that diverges from the new
    master's stays as it is (`divergence` "halt"), or is cut by command, or by haTruncateOnDivergence.

    Raises ValueError naming what is wrong.

    More than 20 fields because each is a parameter that a seed draws.
    """

    puts: int = attrs.field(validator=_whole_number(0))
    pause_s: float = attrs.field(validator=_seconds)
    in_flight: int = attrs.field(default=1, validator=_whole_number(1, _IN_FLIGHT_MAX))
    body_bytes_max: int = attrs.field(default=900, validator=_whole_number(1, _BODY_BYTES_MAX))
    body_skew: int = attrs.field(default=3, validator=_whole_number(1, _SKEW_MAX))
    transfer_batch_bytes: int = attrs.field(default=512, validator=_whole_number(1, _BATCH_BYTES_MAX))
    log_file_bytes: int = attrs.field(default=4096, validator=_whole_number(_FILE_BYTES_MIN, _FILE_BYTES_MAX))
    queue_file_bytes: int = attrs.field(default=400, validator=_whole_number(20, _QUEUE_FILE_BYTES_MAX))
    master_role: str = attrs.field(default=BrokerRole.SYNC_MASTER.value, validator=_one_of(*_ROLES))
    master_flush: str = attrs.field(default=FlushDiskType.ASYNC_FLUSH.value, validator=_one_of(*_FLUSH_TYPES))
    slave_flush: str = attrs.field(default=FlushDiskType.ASYNC_FLUSH.value, validator=_one_of(*_FLUSH_TYPES))
    in_sync_replicas: int = attrs.field(default=2, validator=_whole_number(2))
    auto_in_sync_replicas: bool = attrs.field(default=False, validator=_flag)
    fail_overs: int = attrs.field(default=0, validator=_whole_number(0, _FAIL_OVERS_MAX))
    fail_over_at_s: float = attrs.field(default=1.0, validator=_seconds)
    lost_by: str = attrs.field(default="kill", validator=_one_of(*LOSSES))
    promoted: str = attrs.field(default="longest", validator=_one_of(*CHOICES))
    back_after_s: float = attrs.field(default=1.0, validator=_seconds)
    divergence: str = attrs.field(default="setting", validator=_one_of(*DIVERGENCE))
    transient_pool: bool = attrs.field(default=False, validator=_flag)
    clean_every_s: float = attrs.field(default=0.0, validator=_seconds)
    table_changes: int = attrs.field(default=0, validator=_whole_number(0))
    changes_in_exchanges: bool = attrs.field(default=False, validator=_flag)
    clients: bool = attrs.field(default=False, validator=_flag)
    transactions: bool = attrs.field(default=False, validator=_flag)
    delays: float = attrs.field(default=0.0, validator=_share)
    retries: float = attrs.field(default=0.0, validator=_share)
    groups: str = attrs.field(default="none", validator=_one_of(*GROUPS))
    member_changes: int = attrs.field(default=0, validator=_whole_number(0, _MEMBER_CHANGES_MAX))
    auto_batch: bool = attrs.field(default=False, validator=_flag)
    latency_faults: bool = attrs.field(default=False, validator=_flag)
    consume_batch: int = attrs.field(default=1, validator=_whole_number(1, _CONSUME_BATCH_MAX))
    allocation: str = attrs.field(default=ALLOCATIONS[0], validator=_one_of(*ALLOCATIONS))
    topic_lives: int = attrs.field(default=0, validator=_whole_number(0, _TOPIC_LIVES_MAX))
    strangers: int = attrs.field(default=0, validator=_whole_number(0, _STRANGERS_MAX))
    errands: int = attrs.field(default=0, validator=_whole_number(0, _ERRANDS_MAX))
    accounts: int = attrs.field(default=0, validator=_whole_number(0, _ACCOUNTS_MAX))
    allows_slaves_alone: bool = attrs.field(default=False, validator=_flag)
    rests_s: float = attrs.field(default=0.0, validator=_seconds)
    name_servers: int = attrs.field(default=0, validator=_whole_number(0, _NAME_SERVERS_MAX))
    settings: str = attrs.field(default="", validator=_known_settings)
    settings_apart: str = attrs.field(default="", validator=_known_settings)
    neighbour: bool = attrs.field(default=False, validator=_flag)
    planted_bug: str | None = attrs.field(default=None, validator=_known_bug)

    def __attrs_post_init__(self) -> None:
        if self.transactions and not self.clients:
            raise ValueError("parameters['transactions'] needs parameters['clients']: producers have a connection")
        if self.groups != "none" and (not self.clients or self.transactions or self.delays):
            raise ValueError("parameters['groups'] needs parameters['clients'], without transactions and delays")
        if self.topic_lives and (self.transactions or not self.clients):
            raise ValueError("parameters['topic_lives'] needs parameters['clients'], without transactions")
        if self.strangers and (self.topic_lives or self.transactions or not self.clients):
            raise ValueError(
                "parameters['strangers'] needs parameters['clients'], without transactions and topic_lives"
            )
        if self.errands and (self.strangers or self.topic_lives or self.transactions or not self.clients):
            raise ValueError(
                "parameters['errands'] needs parameters['clients'], without transactions, topic_lives and strangers"
            )
        if self.accounts and (self.errands or self.strangers or self.topic_lives or not self.clients):
            raise ValueError(
                "parameters['accounts'] needs parameters['clients'], without topic_lives, strangers and errands"
            )
        fits = self.log_file_bytes - RECORD_BESIDE_BODY_BYTES
        if self.body_bytes_max > fits:
            raise ValueError(
                f"parameters['body_bytes_max'] must be {fits} or less: a record must fit a file of the log"
            )

    @property
    def kinds_of_groups(self) -> Sequence[str]:
        """Which kinds of consumers have a group."""
        return KINDS_OF_GROUPS if self.groups == "all" else [each for each in KINDS_OF_GROUPS if each == self.groups]

    @property
    def acks(self) -> int:
        """How many slaves must have what is answered PUT_OK."""
        if self.master_role != BrokerRole.SYNC_MASTER.value or self.auto_in_sync_replicas:
            return 0
        return self.in_sync_replicas - 1

    @classmethod
    def of(cls, parameters: Mapping[str, Parameter]) -> Workload:
        """The workload of a case's parameters. Raises ValueError for one that is unknown, missing or wrong."""
        known = attrs.fields_dict(cls)
        unknown = [name for name in parameters if name not in known]
        if unknown:
            raise ValueError(f"no parameter is called {', '.join(map(repr, sorted(unknown)))}")
        # A missing one without a default is reported by its validator.
        given = {name: parameters.get(name) for name in ("puts", "pause_s")} | dict(parameters)
        return cls(**given)  # type: ignore[arg-type]  # the validators look at the types

    def to_parameters(self) -> dict[str, Parameter]:
        """The parameters of a case: those that differ from their defaults, and those that have none."""
        return {
            field.name: value
            for field in attrs.fields(type(self))
            if (value := getattr(self, field.name)) != field.default or field.default is attrs.NOTHING
        }


def draws_rest(seed: int) -> float:
    """For how long brokers are let be."""
    return _REST_S if seed // len(COMBINATIONS) % _GROUPS_A_REST == 0 else 0.0


def draw_replication(rng: random.Random, seed: int) -> Workload:
    """A random one where roles stay; some have a transient pool or clean their logs."""
    workload = _draw(rng, seed)
    store = random.Random(f"store/{seed}")
    has_pool = workload.master_flush == FlushDiskType.ASYNC_FLUSH.value and store.random() < _POOL
    clean_every_s = store.choice((0.3, 1.0)) if store.random() < _CLEANING else 0.0
    return attrs.evolve(workload, transient_pool=has_pool, clean_every_s=clean_every_s)


def draw_fail_overs(rng: random.Random, seed: int) -> Workload:
    """A random one in which masters are lost."""
    return attrs.evolve(
        _draw(rng, seed),
        fail_overs=rng.choice((1, 1, 2)),
        fail_over_at_s=rng.choice((0.5, 1.0, 2.0, 3.0)),
        lost_by=rng.choice(LOSSES),
        promoted=rng.choice(("longest", "longest", "shortest")),
        back_after_s=rng.choice((0.0, 0.3, 3.0)),
        divergence=rng.choice(DIVERGENCE),
    )


def draw_transactions(rng: random.Random, seed: int) -> Workload:
    """A random one in which producers send messages in transactions, and most masters are lost."""
    workload = draw_fail_overs(rng, seed)
    return attrs.evolve(workload, clients=True, transactions=True, fail_overs=rng.choice((0, 1, 1, 2)))


def draw_delays(rng: random.Random, seed: int) -> Workload:
    """A random one in which many messages are delayed, and often masters are lost."""
    return attrs.evolve(
        draw_fail_overs(rng, seed),
        clients=True,
        fail_overs=rng.choice((0, 1, 1, 2)),
        delays=rng.choice((0.2, 0.5, 1.0)),
    )


def draw_retries(rng: random.Random, seed: int) -> Workload:
    """A random one whose consumer sends messages back."""
    return attrs.evolve(draw_delays(rng, seed), delays=rng.choice((0.0, 0.2)), retries=rng.choice((0.2, 0.5)))


def draw_produce_consume(rng: random.Random, seed: int) -> Workload:
    """A random one of producers and consumer groups whose members come and go, and most masters are lost."""
    settings = random.Random(f"clients' settings/{seed}")
    return attrs.evolve(
        draw_fail_overs(rng, seed),
        clients=True,
        fail_overs=rng.choice((0, 1, 1, 2)),
        retries=rng.choice((0.0, 0.1, 0.3)),
        groups=rng.choice(("all", "all", *KINDS_OF_GROUPS)),
        member_changes=rng.choice((0, 2, 5)),
        auto_batch=settings.random() < _AUTO_BATCH,
        latency_faults=settings.random() < _LATENCY_FAULTS,
        consume_batch=settings.choice((1, 1, 1, 4, 32)),
        allocation=settings.choice((ALLOCATIONS[0], *ALLOCATIONS)),
        rests_s=draws_rest(seed),
    )


def draw_topics(rng: random.Random, seed: int) -> Workload:
    """A random one in which topics come and go, and often masters are lost."""
    return attrs.evolve(
        draw_fail_overs(rng, seed),
        clients=True,
        puts=rng.choice((20, 40)),
        topic_lives=rng.choice((3, 6, 9)),
        fail_overs=rng.choice((0, 1, 1, 2)),
        fail_over_at_s=rng.choice((1.0, 5.0, 15.0, 30.0, 45.0)),
        rests_s=draws_rest(seed),
    )


def draw_topics_on_failing_disks(rng: random.Random, seed: int) -> Workload:
    """The same with small files, so that a topic has several, and often more messages wait for room."""
    return attrs.evolve(
        draw_topics(rng, seed),
        body_bytes_max=rng.choice((100, 400)),
        log_file_bytes=rng.choice((1200, 4096)),
        queue_file_bytes=rng.choice((20, 60, 400)),
    )


def draw_failing_disks(rng: random.Random, seed: int) -> Workload:
    """A random one with small files, so that many are made and removed, and often masters are lost."""
    return attrs.evolve(
        draw_fail_overs(rng, seed),
        puts=rng.choice((20, 40)),
        body_bytes_max=rng.choice((100, 400, 900)),
        log_file_bytes=rng.choice((1200, 1200, 4096)),
        queue_file_bytes=rng.choice((20, 60, 400)),
        fail_overs=rng.choice((0, 1, 1, 2)),
        clean_every_s=rng.choice((0.0, 0.0, 0.3, 1.0)),
        table_changes=rng.choice((0, 6)),
        clients=draws_clients(seed),
    )


def draw_strangers(rng: random.Random, seed: int) -> Workload:
    """A random one in which strangers come, and often masters are lost."""
    return attrs.evolve(
        draw_fail_overs(rng, seed),
        clients=True,
        puts=rng.choice((10, 20)),
        strangers=rng.choice((20, 40, 60)),
        allows_slaves_alone=rng.random() < _SLAVES_ALONE,
        fail_overs=rng.choice((0, 0, 1, 1, 2)),
        rests_s=draws_rest(seed),
    )


def draw_errands(rng: random.Random, seed: int) -> Workload:
    """A random one in which clients run errands, some messages are delayed, and some masters are lost."""
    workload = draw_fail_overs(rng, seed)
    may_have_pool = FlushDiskType.ASYNC_FLUSH.value in (workload.master_flush, workload.slave_flush)
    return attrs.evolve(
        workload,
        clients=True,
        puts=rng.choice((10, 20)),
        delays=rng.choice((0.0, 0.5)),
        errands=rng.choice((8, 16, 24)),
        transient_pool=may_have_pool and rng.random() < _POOL,
        fail_overs=rng.choice((0, 0, 0, 1)),
    )


def _draw(rng: random.Random, seed: int) -> Workload:
    """Small enough for a run of a fraction of a second; role and flush are those of the seed."""
    role, master_flush, slave_flush = COMBINATIONS[seed % len(COMBINATIONS)]
    return Workload(
        puts=rng.choice((20, 40, 60)),
        pause_s=rng.choice((0.1, 0.3, 0.6)),
        in_flight=rng.choice((1, 1, 2, 5)),
        body_bytes_max=rng.choice((100, 900, 900)),
        transfer_batch_bytes=rng.choice((100, 512, 512, 4000)),
        log_file_bytes=rng.choice((4096, 4096, 8192)),
        master_role=role,
        master_flush=master_flush,
        slave_flush=slave_flush,
        in_sync_replicas=rng.choice((2, 2, 3)),
        auto_in_sync_replicas=rng.random() < _AUTO,
        clients=draws_clients(seed),
    )


def draws_clients(seed: int) -> bool:
    """Whether the seed's messages go through clients."""
    return random.Random(f"clients/{seed}").random() < _CLIENTS


#: What `choices` draws where it is not told.
_CHOICES: Mapping[str, Sequence[Parameter]] = {"puts": (20, 40, 60), "pause_s": (0.1, 0.3, 0.6)}


@attrs.frozen
class Choices:
    """Draws each parameter from the values that it may have: see `choices`."""

    values: Mapping[str, Sequence[Parameter]]

    def __attrs_post_init__(self) -> None:
        for name, values in self.values.items():
            if isinstance(values, str) or not isinstance(values, Sequence):
                raise ValueError(  # noqa: TRY004 - bad input
                    f"parameters[{name!r}] must be a tuple of the values that it may have, not {shown(values)}"
                )
            if not values:
                raise ValueError(f"parameters[{name!r}] needs a value to choose")
            for value in values:
                Workload.of({"puts": 0, "pause_s": 0.0, name: value})

    def __call__(self, rng: random.Random, _: int) -> Workload:
        """A workload: one value for each parameter."""
        return Workload.of({name: rng.choice(values) for name, values in self.values.items()})


def choices(**values: Sequence[Parameter]) -> Choices:
    """What a scenario draws: values that each of `Workload`'s parameters may have; the others have their defaults.

    A value that is named twice comes twice as often. Raises ValueError for a parameter or a value that there is not.
    """
    return Choices({**_CHOICES, **values})
