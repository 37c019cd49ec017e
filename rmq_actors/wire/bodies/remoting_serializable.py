"""What all bodies are made of (RemotingSerializable): structs whose members have the names of RocketMQ's beans."""

from __future__ import annotations

import msgspec


class RemotingSerializable(msgspec.Struct, frozen=True, rename="camel"):
    """A body, or a part of one.

    Subclasses declare their fields in the order of the wire's names: that of the alphabet, in which fastjson writes.
    A field with a default may be missing or null in JSON; `None` stands for Java's null, which is not written. Java's
    sets are lists here, in the order of the text.
    """
