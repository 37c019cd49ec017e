"""Changes of accounts that an administrator asks for, or an operator writes into a file, and how one is drawn. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from rmq_actors.testing.account_table import (
    ACCOUNT_GROUPS,
    ACCOUNT_TOPICS,
    ADDRESS_BEFORE,
    VISITORS_ADDRESS,
    WHITE_LIST,
    Account,
    secret_key,
)
from rmq_actors.testing.strange_requests import Dice
from rmq_actors.wire.headers import encode_header
from rmq_actors.wire.headers.admin import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode

_TOPIC_PERMISSIONS = ("DENY", "PUB", "SUB", "PUB|SUB")
_GROUP_PERMISSIONS = ("DENY", "SUB")
_SECRETS = 4
#: How often a change deletes an account, and how often it cannot be made.
_DELETIONS, _IMPOSSIBLE = 0.25, 0.15
_WHITE_LISTS = ((), (VISITORS_ADDRESS,), (ADDRESS_BEFORE,))


@attrs.frozen
class Change:
    """What is asked for: a new account, or none, or other addresses that need none; or what cannot be."""

    name: str
    account: Account | None = None
    white: Sequence[str] = ()
    #: Addresses that are in every list.
    always_white: Sequence[str] = ()
    is_impossible: bool = False

    @property
    def is_deletion(self) -> bool:
        """Whether an account is to go."""
        return self.name != WHITE_LIST and self.account is None and not self.is_impossible

    @property
    def text(self) -> str:
        """For traces: see `ClientAccountChange`."""
        if self.is_impossible:
            return "?"
        if self.name == WHITE_LIST:
            return ",".join(self.white)
        return "" if self.account is None else self.account.text

    def command(self) -> RemotingCommand:
        """The request, not signed."""
        if self.is_impossible:
            header = CreateAccessConfigRequestHeader(self.name, "short" if self.white else "long-enough", admin=False)
            fields = encode_header(header)
            return RemotingCommand(
                RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, {**(fields or {}), "topicPerms": "AccOwn=ALL"}
            )
        if self.name == WHITE_LIST:
            white = UpdateGlobalWhiteAddrsConfigRequestHeader(",".join((*self.always_white, *self.white)))
            return RemotingCommand(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, encode_header(white))
        if self.account is None:
            deletion = DeleteAccessConfigRequestHeader(self.name)
            return RemotingCommand(RequestCode.DELETE_ACL_CONFIG, encode_header(deletion))
        account = self.account
        header = CreateAccessConfigRequestHeader(
            self.name,
            secret_key(self.name, account.secret),
            account.white,
            account.admin,
            account.default_topic,
            account.default_group,
            ",".join(f"{name}={permission}" for name, permission in account.topics),
            ",".join(f"{name}={permission}" for name, permission in account.groups),
        )
        return RemotingCommand(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, encode_header(header))


def draw_account(dice: Dice, name: str) -> Account:
    """An account of that access key, with any secret key and any permissions; now and then an administrator's."""
    topics = {topic: dice.choice(_TOPIC_PERMISSIONS) for topic in ACCOUNT_TOPICS if dice.random() < 0.5}
    groups = {group: dice.choice(_GROUP_PERMISSIONS) for group in ACCOUNT_GROUPS if dice.random() < 0.5}
    return Account(
        name,
        secret=dice.randrange(_SECRETS),
        admin=dice.random() < 0.15,
        default_topic=dice.choice(_TOPIC_PERMISSIONS),
        default_group=dice.choice(_GROUP_PERMISSIONS),
        topics=topics,
        groups=groups,
    )


def draw_change(dice: Dice, name: str, brokers: Sequence[str]) -> Change:
    """A change of that account, or of the white list, which always has the addresses of brokers."""
    if name == WHITE_LIST:
        return Change(name, white=dice.choice(_WHITE_LISTS), always_white=brokers)
    if dice.random() < _IMPOSSIBLE:
        return Change(name, is_impossible=True)
    return Change(name, None if dice.random() < _DELETIONS else draw_account(dice, name))
