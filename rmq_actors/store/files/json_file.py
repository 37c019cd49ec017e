"""A file below `config/` (RocketMQ's ConfigManager): old or new content after a crash, never neither.

The new content is written beside the file and synced; then the file becomes the `.bak`, and the new one takes its
name. Each name always stands for whole, synced bytes, so any of the renames may be lost. A file that could not be
read never becomes the `.bak`. (RocketMQ syncs nothing, deletes before it renames, and copies what is corrupt over
its `.bak`: #3401, #6096, #9328, #9705.)
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Generic, Literal, TypeVar

import attrs
import trio

from rmq_actors.ports.disk import Disk
from rmq_actors.wire.fastjson import MAX_SIZE_BYTES, JsonInput, JsonValue, parse_fastjson, write_fastjson

T = TypeVar("T")

_log = logging.getLogger(__name__)


class ConfigFileDamaged(ValueError):
    """Neither a file nor its `.bak` can be read, though one is there; says why of each. Nothing was changed."""


@attrs.frozen
class Loaded(Generic[T]):
    """What was read: `value` is None where there is no file. `reason`: why it is not the file's own content."""

    value: T | None
    source: Literal["file", "backup", "none"]
    reason: str = ""


@attrs.define(eq=False, repr=False)
class ConfigFile:
    """One file of text, by its path, which stands in a directory. `max_bytes` bounds what is read and written."""

    _disk: Disk
    path: str
    max_bytes: int = MAX_SIZE_BYTES
    #: What is known of the bytes under `path`: only synced ones may become the `.bak`.
    _content: Literal["unknown", "read", "synced"] = attrs.field(default="unknown", init=False)
    #: Whether the directory's own name is known to be durable.
    _has_durable_directory: bool = attrs.field(default=False, init=False)
    _lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    def load_text(self, decode: Callable[[memoryview], T], *, quietly: bool = False) -> Loaded[T]:
        """Read the file, or its `.bak` where it is missing, empty or not readable. Raises `ConfigFileDamaged`.

        `decode` raises `ValueError` for what it cannot take: such a file is not readable. `quietly`: nothing is logged.
        """
        level = logging.DEBUG if quietly else logging.WARNING
        value, reason = self.look_at(self.path, decode)
        self._content = "unknown" if reason else "read"
        if not reason:
            return Loaded(value, "file")
        backup = f"{self.path}.bak"
        value, backup_reason = self.look_at(backup, decode)
        if not backup_reason:
            _log.log(level, "%s %s: %s is taken instead", self.path, reason, backup)
            return Loaded(value, "backup", f"{self.path} {reason}")
        reasons = f"{self.path} {reason}, {backup} {backup_reason}"
        if {reason, backup_reason} <= {IS_MISSING, IS_EMPTY}:
            if IS_EMPTY in (reason, backup_reason):
                _log.log(level, "%s: what it had is lost", reasons)
            return Loaded(None, "none", reasons)
        raise ConfigFileDamaged(reasons)

    def look_at(self, path: str, decode: Callable[[memoryview], T]) -> tuple[T | None, str]:
        """The content of `path`, which is the file or its `.bak`; and why there is none, "" if there is one."""
        try:
            file = self._disk.open(path, read_only=True)
        except FileNotFoundError:
            return None, IS_MISSING
        except IsADirectoryError:
            return None, "is a directory"
        except OSError as error:
            return None, f"cannot be opened ({error})"
        with contextlib.closing(file):
            if not file.size_bytes:
                return None, IS_EMPTY
            if file.size_bytes > self.max_bytes:
                return None, f"cannot be read ({file.size_bytes} bytes, at most {self.max_bytes} are read)"
            try:
                return decode(file.map()), ""
            except (ValueError, OSError) as error:
                return None, f"cannot be read ({error})"

    async def persist_text(self, data: bytes) -> None:
        """Replace the content; return when the new one is durable. One after the other, if several ask. A checkpoint.

        Raises `OSError`: a later load gives the old or the new content. `ValueError` for what is too long.
        """
        if len(data) > self.max_bytes:
            raise ValueError(f"{self.path}: {len(data)} bytes, at most {self.max_bytes} could be read again")
        async with self._lock:
            await self._persist(data)

    async def check_writable(self) -> None:
        """Raises `OSError` where `persist_text` would: no new file in the directory, no `.bak`. A checkpoint."""
        new = f"{self.path}.tmp"
        async with self._lock:
            # A directory cannot be replaced; a file that cannot be read can.
            with contextlib.suppress(FileNotFoundError, PermissionError), _names_directory(f"{self.path}.bak"):
                self._disk.open(f"{self.path}.bak", read_only=True).close()
            self._remove_unfinished()
            self._disk.open(new, allocate_bytes=1, exclusive=True).close()
            self._disk.remove(new)

    async def _persist(self, data: bytes) -> None:
        disk, directory = self._disk, self.path.rpartition("/")[0]
        new = f"{self.path}.tmp"
        self._remove_unfinished()
        try:
            with contextlib.closing(disk.open(new, allocate_bytes=len(data), exclusive=True)) as file:
                file.write_at(0, data)
                await file.sync()
            if self._content == "read":
                await self._sync_what_was_read()
        except BaseException:
            with contextlib.suppress(OSError):
                disk.remove(new)
            raise
        if self._content == "synced" and disk.exists(self.path):
            with _names_directory(f"{self.path}.bak"):
                disk.rename(self.path, f"{self.path}.bak")
        with _names_directory(self.path):
            disk.rename(new, self.path)
        self._content = "synced"
        await disk.sync_directory(directory)
        if not self._has_durable_directory:
            await disk.sync_directory(directory.rpartition("/")[0])
            self._has_durable_directory = True

    def _remove_unfinished(self) -> None:
        """Remove the new file of a process that has died."""
        new = f"{self.path}.tmp"
        with contextlib.suppress(FileNotFoundError), _names_directory(new):
            self._disk.remove(new)

    async def _sync_what_was_read(self) -> None:
        """RocketMQ may have written it: then it is in the page cache alone."""
        try:
            with contextlib.closing(self._disk.open(self.path, read_only=True)) as file:
                await file.sync()
        except OSError as error:
            _log.warning("%s cannot be synced (%s): it does not become the .bak", self.path, error)
            self._content = "unknown"
        else:
            self._content = "synced"


@contextlib.contextmanager
def _names_directory(path: str) -> Iterator[None]:
    """Say which name it is that a directory has: of a rename the system tells both, and not which one is wrong."""
    try:
        yield
    except IsADirectoryError as error:
        text = "a directory has the name of a file that is written here, move it away"
        raise IsADirectoryError(error.errno, text, path) from error


@attrs.define(eq=False, repr=False)
class JsonFile(ConfigFile):
    """A file of JSON."""

    def load(self, decode: Callable[[JsonValue], T], *, quietly: bool = False) -> Loaded[T]:
        """Read the file or its `.bak`, as `load_text` does. Raises `ConfigFileDamaged`."""
        return self.load_text(lambda data: decode(parse_fastjson(data, max_bytes=self.max_bytes)), quietly=quietly)

    async def persist(self, value: JsonInput) -> None:
        """Replace the content, as `persist_text` does. A checkpoint. `ValueError` for what is no JSON, too."""
        await self.persist_text(write_fastjson(value, pretty=True))


IS_MISSING = "is missing"
IS_EMPTY = "is empty"
