"""What a power loss does to a disk: which changes of names and bytes outlive it; the others are journaled."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Literal, Protocol

from sim_net.disk.directory import FileTree
from sim_net.disk.page_cache import CachedFile, Loss, Survival


class Record(Protocol):
    """How an entry of the disk's node gets into the journal."""

    def __call__(self, kind: str, **attributes: str | float) -> object:
        """Journal it."""


def lose_power(tree: FileTree, survival: Survival, unsynced: Literal["any", "prefix"], record: Record) -> None:
    """Leave what is durable and, of the rest, what `unsynced` lets survive, as `DiskConfig` says."""
    keep_file: Callable[[CachedFile], Loss]
    keeps_name: Callable[[int], bool]
    if unsynced == "prefix":
        serials = tree.serials()
        number = survival.version(len(serials))
        cut = serials[number] if number < len(serials) else math.inf
        keep_file = partial(CachedFile.keep_prefix, survival=survival, cut=cut)
        keeps_name = partial(operator.gt, cut)
    else:
        keep_file, keeps_name = partial(CachedFile.keep_any, survival=survival), _Fates(survival).survives
    for path in tree.keep(keeps_name):
        record("storage.lost", path=path, status="name")
    kept: dict[CachedFile, None] = {}
    for path, file in tree.files():
        if file not in kept:  # one that was renamed may have two names
            kept[file] = None
            _record_loss(path, keep_file(file), record)


def _record_loss(path: str, loss: Loss, record: Record) -> None:
    if loss.size:
        record("storage.lost", path=path, status="data", size=loss.size)
    if loss.length:
        record("storage.lost", path=path, status="length")
    if loss.torn_pages:
        record("storage.torn", path=path, pages=loss.torn_pages)


class _Fates:
    """Which changes of names survive one power loss: each is drawn once, as a rename has two ends."""

    def __init__(self, survival: Survival) -> None:
        self._survival = survival
        self._drawn: dict[int, bool] = {}

    def survives(self, serial: int) -> bool:
        if serial not in self._drawn:
            self._drawn[serial] = bool(self._survival.version(1))
        return self._drawn[serial]
