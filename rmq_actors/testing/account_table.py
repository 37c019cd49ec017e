"""The accounts of brokers whose requests are signed, as a scenario gives them, and what each of them may do. Pure.

What is right is computed here from the accounts alone: no rule of the broker's is called.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import attrs

from rmq_actors.ports.disk import Disk

#: The topics that accounts are about, and the groups.
OWN_TOPIC, OTHER_TOPIC, SHUT_TOPIC, FREE_TOPIC = ACCOUNT_TOPICS = ("AccOwn", "AccOther", "AccShut", "AccFree")
#: Nobody sends to it, but messages of other topics enter its queues.
FURTHER_TOPIC = "AccFurther"
OWN_GROUP, OTHER_GROUP, FREE_GROUP = ACCOUNT_GROUPS = ("GroupOwn", "GroupOther", "GroupFree")
RETRY = "%RETRY%"
#: The files: the usual one, one beside it, and one that only an operator at the machine writes.
MAIN_FILE, FURTHER_FILE, HAND_FILE = "conf/plain_acl.yml", "conf/acl/further.yml", "conf/acl/by-hand.yml"
#: The machine of those who visit brokers with accounts. An address of a white list is the beginning of its address.
VISITORS, VISITORS_ADDRESS, ADDRESS_BEFORE = "visitors", "10.0.0.40", "10.0.0.4"
ADMINISTRATOR, HAND, WHITENED = "administrator", "by-hand-account", "whitened-account"
#: What an administrator makes, changes and deletes while brokers run, and what nobody has ever made.
CHANGING = ("changing-one", "changing-two", "changing-three")
UNKNOWN = "unknown-account"
#: How the law calls the addresses that need no account: no access key is empty.
WHITE_LIST = ""
#: A need that only an administrator's account meets.
BY_ADMINISTRATOR = "administrator"
#: What stands before a need that a broker sees only once it has looked into a request.
DEEP = "~"

Permissions = tuple[tuple[str, str], ...]
Verdict = Literal["may", "refused", "refused_later", "unknown"]


def _pairs(listed: Mapping[str, str] | Iterable[Sequence[str]]) -> Permissions:
    pairs = listed.items() if isinstance(listed, Mapping) else listed
    return tuple((name, permission) for name, permission in pairs)


@attrs.frozen
class Account:
    """One account. `secret` numbers its secret keys; `admin`, permissions and `white` are as in the file."""

    access_key: str
    secret: int = 0
    admin: bool = False
    default_topic: str = "DENY"
    default_group: str = "DENY"
    topics: Permissions = attrs.field(default=(), converter=_pairs)
    groups: Permissions = attrs.field(default=(), converter=_pairs)
    white: str = ""

    @property
    def text(self) -> str:
        """For traces, without the secret key; `Account.of` reads it."""
        return json.dumps(attrs.asdict(self), separators=(",", ":"))

    @classmethod
    def of(cls, text: str) -> Account | None:
        """The account of a text; None: it is deleted."""
        return cls(**json.loads(text)) if text else None

    @property
    def in_file(self) -> dict[str, Any]:
        """As a file has it."""
        said: dict[str, Any] = {
            "accessKey": self.access_key,
            "secretKey": secret_key(self.access_key, self.secret),
            "admin": self.admin,
            "defaultTopicPerm": self.default_topic,
            "defaultGroupPerm": self.default_group,
            "topicPerms": [f"{name}={permission}" for name, permission in self.topics],
            "groupPerms": [f"{name}={permission}" for name, permission in self.groups],
        }
        return {**said, "whiteRemoteAddress": self.white} if self.white else said

    def has(self, needs: Iterable[str]) -> bool:
        """Whether it has every permission of `needs`: see `need`."""
        return all(map(self._has, needs))

    def _has(self, needed: str) -> bool:
        if needed == BY_ADMINISTRATOR:
            return self.admin
        if self.admin and not self.topics and not self.groups:
            return True
        kind, name, any_of = needed.split(":")
        listed, default = (self.topics, self.default_topic) if kind == "topic" else (self.groups, self.default_group)
        owned = dict(listed).get(name, default).split("|")
        return "DENY" not in owned and any(each in owned for each in any_of.split("|"))


def secret_key(access_key: str, number: int) -> str:
    """An account's secret key of a number; -1: one that it never had."""
    return f"secret-{number}-of-{access_key}"


def need(topic: str, any_of: str) -> str:
    """That one has one of these permissions on a topic; a retry topic stands for its group."""
    group = topic.removeprefix(RETRY)
    return f"topic:{topic}:{any_of}" if group == topic else f"group:{group}:SUB"


def of_group(group: str) -> str:
    """That one may be a member of a group."""
    return f"group:{group}:SUB"


#: The accounts that each broker has at first, by the file that they stand in.
FIRST_ACCOUNTS: Mapping[str, Sequence[Account]] = {
    MAIN_FILE: (
        Account(ADMINISTRATOR, admin=True),
        Account(
            "listed-account",
            topics={OWN_TOPIC: "PUB|SUB", OTHER_TOPIC: "SUB", SHUT_TOPIC: "DENY"},
            groups={OWN_GROUP: "SUB", OTHER_GROUP: "DENY"},
            default_topic="DENY",
        ),
        Account(
            "second-account",
            topics={OWN_TOPIC: "SUB", OTHER_TOPIC: "PUB", SHUT_TOPIC: "PUB|SUB"},
            groups={OTHER_GROUP: "SUB", OWN_GROUP: "DENY"},
            default_topic="PUB",
            default_group="SUB",
        ),
        Account("default-account", default_topic="PUB", default_group="SUB"),
        Account("powerless-account"),
        Account("limited-administrator", admin=True, topics={SHUT_TOPIC: "DENY"}, default_topic="SUB"),
        Account(WHITENED, white=ADDRESS_BEFORE),
    ),
    FURTHER_FILE: (Account(CHANGING[0], default_topic="PUB|SUB", default_group="SUB"),),
    HAND_FILE: (Account(HAND, default_topic="SUB", default_group="SUB"),),
}
ACCOUNTS_AT_FIRST: Mapping[str, Account] = {
    each.access_key: each for accounts in FIRST_ACCOUNTS.values() for each in accounts
}


def file_of(accounts: Iterable[Account], white: Sequence[str] = ()) -> bytes:
    """The text of a file of accounts: JSON, which is YAML."""
    said: dict[str, Any] = {"accounts": [each.in_file for each in accounts]}
    return json.dumps({"globalWhiteRemoteAddresses": list(white), **said} if white else said, indent=1).encode()


@attrs.frozen
class Claim:
    """Who says what they are: an access key, the number of the secret key that a request is signed with, an address.

    `access_key` "": the request names none. `secret` -1: it is not signed by any key that the account ever had.
    """

    access_key: str
    secret: int
    host: str


def verdict(account: Account | None, white: Sequence[str], claim: Claim, needs: Iterable[str | None]) -> Verdict:
    """What becomes of a request. A need that is None is not known; one after `DEEP` is looked at later."""
    if claim.host in white:
        return "may"
    if account is None:
        return "refused"
    if account.white == claim.host:
        return "may"
    needs = list(needs)
    known = [each for each in needs if each is not None]
    if claim.secret != account.secret or not account.has(needed_at_once(known)):
        return "refused"
    if not account.has(each.removeprefix(DEEP) for each in known):
        return "refused_later"
    return "unknown" if None in needs else "may"


def needed_at_once(needs: Iterable[str]) -> Iterator[str]:
    """Those that a broker sees before it looks into a request."""
    return (each for each in needs if not each.startswith(DEEP))


async def write_files(disk: Disk, contents: Mapping[str, bytes]) -> None:
    """Put files in the place of others, or make them; durable at the end. Raises `OSError`."""
    for path, data in contents.items():
        new = f"{path}.new"
        with contextlib.suppress(FileNotFoundError):
            disk.remove(new)
        with contextlib.closing(disk.open(new, allocate_bytes=len(data))) as file:
            file.write_at(0, data)
            await file.sync()
        disk.rename(new, path)
        await disk.sync_directories(sorted({"conf", path.rpartition("/")[0]}))
