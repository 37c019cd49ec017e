"""Properties to settings and back: names, types, errors that say where, and what any of it reads back as."""

from __future__ import annotations

import enum
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.ha.config import HaConfig
from rmq_actors.namesrv.config import NAMESRV_KEYS, NamesrvConfig
from rmq_actors.settings.configure import (
    ConfigurationError,
    Key,
    Properties,
    configure,
    known_keys,
    to_properties,
    unknown_keys,
)
from rmq_actors.settings.properties_text import TEXT_MAX_CHARS, format_properties, parse_properties
from rmq_actors.settings.rocketmq_keys import ROCKETMQ_KEYS
from rmq_actors.store.config import BrokerRole, MessageStoreConfig


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


@attrs.frozen
class Inner:
    interval_ms: int = attrs.field(default=5, validator=attrs.validators.ge(1))
    name: str | None = None


@attrs.frozen
class Settings:
    is_on: bool = False
    colour: Colour = Colour.RED
    size_max_bytes: int = attrs.field(default=10, validator=attrs.validators.in_(range(100)))
    hosts: tuple[str, ...] = ()
    inner: Inner = attrs.field(factory=Inner)
    perhaps: Inner | None = None
    derived: int = attrs.field(init=False, default=1)

    def __attrs_post_init__(self) -> None:
        if self.is_on and self.colour is Colour.GREEN:
            raise ValueError("what is on is red")


KEYS = {
    "perhaps.interval_ms": Key("perhapsIntervalSeconds", 1000),
    "perhaps.name": Key("perhapsName"),
    "inner.name": Key("innerNAME"),
}


def settings(**values: str) -> Settings:
    lines = {key: line for line, key in enumerate(values, 1)}
    return configure(Settings(), Properties("x.conf", values, lines), KEYS)


def test_every_type() -> None:
    assert settings(
        isOn="TRUE",
        colour="RED",
        sizeMax=" 42 ",
        hosts="a:1; b:2;",
        interval="7",
        innerNAME=" n ",
        perhapsIntervalSeconds="2",
        unknown="?",
    ) == Settings(
        is_on=True,
        size_max_bytes=42,
        hosts=("a:1", "b:2"),
        inner=Inner(7, " n "),
        perhaps=Inner(2000),
    )


def test_a_blank_is_nothing_where_nothing_is_a_value() -> None:
    assert configure(Settings(inner=Inner(name="x")), Properties("x", {"innerNAME": ""}), KEYS) == Settings()


def test_what_is_not_said_stays() -> None:
    base = Settings(colour=Colour.GREEN, inner=Inner(9))
    assert configure(base, Properties("x", {"sizeMax": "1"}), KEYS) == attrs.evolve(base, size_max_bytes=1)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"isOn": "yes"}, "x.conf, line 1: isOn=yes: it is true or false"),
        ({"a": "", "sizeMax": "1_0"}, "x.conf, line 2: sizeMax=1_0: it is an integer"),
        ({"sizeMax": ""}, "x.conf, line 1: sizeMax=: it is an integer"),
        ({"colour": "BLUE"}, "x.conf, line 1: colour=BLUE: it is one of RED, GREEN"),
        ({"colour": "B" * 9999}, f"x.conf, line 1: colour={'B' * 200}: it is one of RED, GREEN"),
        ({"interval": "0"}, "x.conf, line 1: interval=0: it must be >= 1: 0"),
        ({"interval": "0", "isOn": "1"}, "isOn=1: it is true or false; x.conf, line 1: interval=0"),
        ({"isOn": "true", "colour": "GREEN"}, "x.conf: what is on is red"),
    ],
)
def test_a_bad_value_is_named_with_its_place(values: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        settings(**values)
    assert text in str(caught.value)


@attrs.frozen
class Pair:
    low_bytes: int = 0
    high_bytes: int = attrs.field(default=9, validator=attrs.validators.ge(3))
    left: Inner = attrs.field(factory=Inner)
    right: Inner = attrs.field(factory=Inner)

    def __attrs_post_init__(self) -> None:
        if self.low_bytes > self.high_bytes:
            raise ValueError(f"low_bytes {self.low_bytes} and high_bytes {self.high_bytes} of interval_ms, no_field")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"low": "8", "a": "", "high": "7"}, "x.conf, lines 1, 3: low 8 and high 7 of interval_ms, no_field"),
        ({"a": "", "low": "10"}, "x.conf, line 2: low 10 and high 9 of interval_ms, no_field"),
        ({"a": "", "high": "2"}, "x.conf, line 2: high=2: it must be >= 3: 2"),
    ],
)
def test_what_does_not_go_together_is_named_by_its_keys_and_lines(values: dict[str, str], text: str) -> None:
    """But for a field that two layers have: which one is meant is not known."""
    lines = {key: line for line, key in enumerate(values, 1)}
    keys = {f"{side}.{name}": Key(f"{side}-{name}") for side in ("left", "right") for name in ("interval_ms", "name")}
    with pytest.raises(ConfigurationError) as caught:
        configure(Pair(), Properties("x.conf", values, lines), keys)
    assert str(caught.value) == text


def test_two_fields_with_one_key_are_our_mistake() -> None:
    with pytest.raises(ValueError, match="Settings: two fields have the key interval"):
        known_keys(Settings)


def test_a_setting_that_no_text_stands_for_is_our_mistake() -> None:
    @attrs.frozen
    class Odd:
        value: complex = 1j

    with pytest.raises(ConfigurationError, match="no property stands for a <class 'complex'>"):
        configure(Odd(), Properties("x", {"value": "1"}))


def test_unknown_keys_are_named_with_their_place() -> None:
    properties = Properties("x", {"isOn": "", "what": "", "why": ""}, {"what": 2})
    assert unknown_keys(properties, known_keys(Settings, KEYS)) == ["x, line 2: what", "x: why"]


#: Settings of this project, and keys of RocketMQ 5.
OWN_KEYS = {
    MessageStoreConfig: {
        "waitingPutsMax",
        "storeStatsSampling",
        "checkpointLogBytesMax",
        "diskSpaceCleanForciblyRatio",  # a system property of RocketMQ
        "diskSpaceWarningLevelRatio",
    },
    HaConfig: {
        "connectionsMaxPerAddress",
        "handshakesMax",
        "haAllowedAddresses",
        "haTlsEnable",
        "haListenHost",
        "totalReplicas",
        "inSyncReplicas",
        "minInSyncReplicas",
        "enableAutoInSyncReplicas",
        "haSocketRcvBufSize",
        "haSocketSndBufSize",
        "haTruncateOnDivergence",
        "syncFromLastFile",
        "connectionsMax",
        "connectTimeout",
        "reconnectPauseMin",
        "reconnectPauseMax",
        "readBuffer",
    },
    NamesrvConfig: {
        "brokerChannelExpiredTime",
        "deleteTopicWithBrokerRegistration",
        "kvConfigMax",
        "configQueueCapacity",
        "brokersMax",
        "topicsMax",
        "queueDatasMax",
        "filterServersMax",
        "nameLengthMax",
        "bindAddress",
        "connectionsMax",
        "receivedBytesMax",
        "receivedBytesPerAddressMax",
        "frameMaxLength",
        "writeBufferMax",
        "inFlightRequestsMax",
    },
}


@pytest.mark.parametrize("config_type", OWN_KEYS)
def test_every_setting_has_the_key_of_rocketmq_or_is_our_own(config_type: type[Any]) -> None:
    keys = NAMESRV_KEYS if config_type is NamesrvConfig else None
    assert set(known_keys(config_type, keys)) - ROCKETMQ_KEYS == OWN_KEYS[config_type]


# --- any settings -----------------------------------------------------------------------------------------------------

INNER = st.builds(Inner, interval_ms=st.integers(1, 2**40), name=st.none() | st.text(min_size=1).filter(str.strip))
WHOLE_SECONDS = st.builds(Inner, interval_ms=st.integers(1, 1000).map(lambda s: s * 1000), name=st.none())
ANY_SETTINGS = st.builds(
    Settings,
    is_on=st.booleans(),
    colour=st.just(Colour.RED),
    size_max_bytes=st.integers(0, 99),
    hosts=st.lists(st.text("ab:1.", min_size=1)).map(tuple),
    inner=INNER,
    perhaps=st.none() | WHOLE_SECONDS,
)


@given(ANY_SETTINGS)
def test_settings_are_read_back_from_the_text_that_they_are_written_as(value: Settings) -> None:
    text = format_properties(to_properties(value, KEYS))
    assert text.isascii()
    assert configure(Settings(), parse_properties(text, "x"), KEYS) == value


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_any_text_is_read_back(values: dict[str, str]) -> None:
    assert parse_properties(format_properties(values), "x").values == values


def test_plain_values_are_written_as_rocketmq_writes_them() -> None:
    values = {"kvConfigPath": "/srv/namesrv/kvConfig.json", "namesrvAddr": "127.0.0.1:9876;h:1", "a": "x=y z"}
    assert (
        format_properties(values)
        == "kvConfigPath=/srv/namesrv/kvConfig.json\nnamesrvAddr=127.0.0.1:9876;h:1\na=x=y z\n"
    )


def test_lines_are_counted_over_comments_blanks_and_continuations() -> None:
    properties = parse_properties("# c\n\na = 1\r\nb=x\\\n   y\\\r\n z\n! c\nc:3\na=2\n", "f")
    assert properties.values == {"a": "2", "b": "xyz", "c": "3"}
    assert properties.lines == {"a": 9, "b": 4, "c": 8}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a\\\n\nb", {"a": "", "b": ""}),
        ("a\\\\\nb", {"a\\": "", "b": ""}),
        ("a=b\\\n  \\\n #c", {"a": "b#c"}),
        ("\\\n#a\nb", {"b": ""}),
        ("  \\\n  !a", {}),
        ("#a\\\nb", {"b": ""}),
        ("a:b\\", {"a": "b"}),
        ("a\\\r\nb\\\rc", {"abc": ""}),
    ],
)
def test_lines_that_are_continued_are_java_s(text: str, values: dict[str, str]) -> None:
    """As java.util.Properties reads them (`tests/interop/test_java_properties.py`)."""
    assert parse_properties(text, "f").values == values


def test_a_text_is_limited_and_costs_no_more_for_being_continued_on_every_line() -> None:
    """Anybody may send one to a name server, which does nothing else meanwhile."""
    lines = TEXT_MAX_CHARS // 3
    assert parse_properties("a\\\n" * lines, "f").values == {"a" * lines: ""}
    assert parse_properties(format_properties({"a": "\\\n" * 40_000}), "f").values == {"a": "\\\n" * 40_000}
    with pytest.raises(ConfigurationError, match=f"f has {TEXT_MAX_CHARS + 1} characters, at most {TEXT_MAX_CHARS}"):
        parse_properties("a" * (TEXT_MAX_CHARS + 1), "f")


def test_an_escape_that_is_none_is_named_with_its_line() -> None:
    with pytest.raises(ConfigurationError, match=r"^f, line 3: .*\\u00xy"):
        parse_properties("a=1\n\nb=\\u00xy\n", "f")


def test_the_default_settings_of_the_store_say_what_they_are() -> None:
    values = to_properties(MessageStoreConfig())
    assert values["brokerRole"] == "ASYNC_MASTER"
    assert values["checkCRCOnRecover"] == "true"
    assert values["mappedFileSizeCommitLog"] == str(1024**3)
    assert configure(MessageStoreConfig(broker_role=BrokerRole.SLAVE), Properties("x", values)) == MessageStoreConfig()
