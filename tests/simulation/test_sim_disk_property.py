"""The simulated disk against a model: the versions of each sector, length and name that a power loss may leave."""

from __future__ import annotations

import errno
from typing import Any, Literal

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sim_net import DiskConfig, Node, SimDisk, SimFile, World, WorldConfig
from sim_net.disk.page_cache import CachedFile

SECTOR, PAGE = 512, 4096
FILES = ("d/a", "d/b", "e/c")
DIRECTORIES = ("", "d", "e")
LONGEST = 3 * PAGE


@attrs.define(eq=False)
class ModelFile:
    """A file as POSIX has it: what readers see, and each version that a sector or the length may fall back to."""

    cached: bytes = b""
    lengths: list[int] = attrs.field(factory=lambda: [0])
    #: The oldest is durable. A sector not in it has one version: what is cached.
    sectors: dict[int, list[bytes]] = attrs.field(factory=dict)
    #: Pages that a failed sync has left clean.
    untrusted: dict[int, None] = attrs.field(factory=dict)

    def sector(self, number: int) -> bytes:
        return self.cached[number * SECTOR : (number + 1) * SECTOR].ljust(SECTOR, b"\0")

    def change(self, cached: bytes, touched: range) -> None:
        before = {number: self.sector(number) for number in range(LONGEST // SECTOR)}
        self.cached = cached
        if self.lengths[-1] != len(cached):
            self.lengths.append(len(cached))
        if not touched:
            return
        for number in range(touched.start // SECTOR, -(-touched.stop // SECTOR)):
            self.sectors.setdefault(number, [before[number]]).append(self.sector(number))
        for page in range(touched.start // PAGE, -(-touched.stop // PAGE)):
            if page in self.untrusted:  # the whole page will be written now
                del self.untrusted[page]
                for number in range(page * PAGE // SECTOR, (page + 1) * PAGE // SECTOR):
                    if number in self.sectors:
                        self.sectors[number] += [before[number], self.sector(number)]

    def write(self, offset: int, data: bytes) -> None:
        if data:
            end = offset + len(data)
            cached = self.cached.ljust(offset, b"\0")
            self.change(cached[:offset] + data + cached[end:], range(offset, end))

    def truncate(self, size: int) -> None:
        self.change(self.cached[:size].ljust(size, b"\0"), range(size, max(size, len(self.cached))))

    def sync(self) -> None:
        self.lengths = [len(self.cached)]
        for number in list(self.sectors):
            if number * SECTOR // PAGE not in self.untrusted:
                del self.sectors[number]

    def fail_sync(self) -> None:
        for number, versions in self.sectors.items():
            if number * SECTOR // PAGE not in self.untrusted:
                self.untrusted[number * SECTOR // PAGE] = None
            del versions[1:]

    def check_survivor(self, left: bytes) -> None:
        assert len(left) in self.lengths
        for number in range(LONGEST // SECTOR):
            got = left[number * SECTOR : (number + 1) * SECTOR]
            versions = self.sectors.get(number, [self.sector(number)])
            assert got in [version[: len(got)] for version in versions], f"sector {number}"

    def restart_from(self, left: bytes) -> None:
        self.cached, self.lengths, self.sectors, self.untrusted = left, [len(left)], {}, {}


class Model:
    """A disk, driven step by step beside its model."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        #: What each path may stand for after a power loss, the durable file first, what it stands for now last.
        self.names: dict[str, list[ModelFile | None]] = {path: [None] for path in FILES}
        self.directories: dict[str, Literal["missing", "there", "durable"]] = {
            "": "durable",
            "d": "missing",
            "e": "missing",
        }
        self.files: dict[CachedFile, ModelFile] = {}
        self.handles: dict[ModelFile, SimFile] = {}
        self.written = 0

    def bind(self, path: str, file: ModelFile | None) -> None:
        self.names[path].append(file)

    async def do(self, kind: str, *arguments: Any) -> None:
        if kind in {"write", "truncate", "sync", "fail", "remove", "rename"}:
            path, *rest = arguments
            file = self.names[path][-1]
            if file is not None:
                await getattr(self, kind)(path, file, *rest)
        else:
            await getattr(self, kind)(*arguments)
        self.check_cache()

    async def open(self, path: str, size: int) -> None:
        handle = self.disk.open(path, allocate_bytes=size)
        file = self.files.get(handle.cached)
        if file is None:
            assert self.names[path][-1] is None
            file = self.files[handle.cached] = ModelFile()
            file.truncate(size)
            self.handles[file] = handle
            self.bind(path, file)
            directory = path.split("/", maxsplit=1)[0]
            if self.directories[directory] == "missing":
                self.directories[directory] = "there"

    async def write(self, path: str, file: ModelFile, offset: int, size: int) -> None:
        self.written += 1
        data = (self.written.to_bytes(2, "big") * size)[:size]
        self.handles[file].write_at(offset, data)
        file.write(offset, data)

    async def truncate(self, path: str, file: ModelFile, size: int) -> None:
        self.handles[file].truncate(size)
        file.truncate(size)

    async def sync(self, path: str, file: ModelFile) -> None:
        await self.handles[file].sync()
        file.sync()

    async def fail(self, path: str, file: ModelFile) -> None:
        self.disk.fail(errno.EIO, operation="sync")
        with pytest.raises(OSError, match="Input/output"):
            await self.handles[file].sync()
        file.fail_sync()

    async def remove(self, path: str, file: ModelFile) -> None:
        self.disk.remove(path)
        self.bind(path, None)

    async def rename(self, path: str, file: ModelFile, target: str) -> None:
        if self.directories[target[0]] == "missing":
            return
        self.disk.rename(path, target)
        if self.names[target][-1] is not file:  # two names of one file: POSIX does nothing
            self.bind(path, None)
            self.bind(target, file)

    async def sync_directory(self, directory: str) -> None:
        if self.directories[directory] == "missing":
            return
        await self.disk.sync_directory(directory)
        if directory:
            for path, versions in self.names.items():
                if path.startswith(directory):
                    del versions[:-1]
        else:
            for name, state in self.directories.items():
                if state == "there":
                    self.directories[name] = "durable"

    async def power_off(self) -> None:
        self.disk.power_off()
        left = self.content()
        self.disk.power_off()
        assert self.content() == left
        for directory, state in self.directories.items():
            if not self.disk.exists(directory):
                assert state != "durable"
                self.directories[directory] = "missing"
        for path, versions in self.names.items():
            now = None
            if self.disk.exists(path):
                now = self.files[self.disk.open(path).cached]
            gone = self.directories[path[0]] == "missing"
            assert now in versions or (gone and now is None)
            self.names[path] = [now]
        self.directories = {
            name: state if state == "missing" else "durable" for name, state in self.directories.items()
        }
        for file in {id(file): file for versions in self.names.values() for file in versions if file}.values():
            bytes_left = bytes(self.handles[file].map())
            file.check_survivor(bytes_left)
            file.restart_from(bytes_left)

    def content(self) -> dict[str, bytes]:
        return {path: bytes(self.disk.open(path).map()) for path in FILES if self.disk.exists(path)}

    def check_cache(self) -> None:
        """Readers see the last version of everything, whatever is durable."""
        assert self.content() == {path: versions[-1].cached for path, versions in self.names.items() if versions[-1]}


offsets = st.sampled_from([0, 1, 500, 511, 512, 513, 2048, 4095, 4096, 4097, 5000, 8192])
sizes = st.sampled_from([0, 1, 2, 100, 512, 1000, 1024, 4000, 4096])
lengths = st.sampled_from([0, 1, 100, 512, 4096, 5000, LONGEST])


def steps_with_bytes(paths: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.tuples(st.just("write"), paths, offsets, sizes),
        st.tuples(st.just("write"), paths, offsets, sizes),
        st.tuples(st.just("truncate"), paths, lengths),
        st.tuples(st.just("sync"), paths),
        st.tuples(st.just("fail"), paths),
        st.tuples(st.just("power_off")),
    )


paths = st.sampled_from(FILES)
steps_with_names = st.one_of(
    st.tuples(st.just("open"), paths, lengths),
    st.tuples(st.just("rename"), paths, paths),
    st.tuples(st.just("remove"), paths),
    st.tuples(st.just("sync_directory"), st.sampled_from(DIRECTORIES)),
    st.tuples(st.just("power_off")),
)
DURABLE = [("sync_directory", directory) for directory in DIRECTORIES]


unsynced_ways: st.SearchStrategy[Literal["any", "prefix"]] = st.sampled_from(["any", "prefix"])


def run_steps(
    seed: int, unsynced: Literal["any", "prefix"], todo: list[tuple[Any, ...]]
) -> tuple[str, dict[str, bytes]]:
    contents = {}

    async def program(node: Node) -> None:
        model = Model(node.disk)
        for path in FILES:
            await model.do("open", path, 0)
        for step in todo:
            await model.do(*step)
        await model.power_off()
        contents.update(model.content())

    async def main(world: World) -> None:
        world.node("a").boot(program)
        await world.nodes["a"].wait_down()

    world = World(seed, WorldConfig(disk=DiskConfig(unsynced=unsynced)))
    world.run(main)
    return world.digest, contents


@given(st.integers(0, 2**32), unsynced_ways, st.lists(steps_with_bytes(st.just(FILES[0])), min_size=1, max_size=30))
@settings(max_examples=300)
@example(
    seed=0,
    unsynced="any",
    todo=[
        ("write", FILES[0], 0, 2),
        ("sync", FILES[0]),
        ("truncate", FILES[0], 0),
        ("fail", FILES[0]),
        ("power_off",),
        ("write", FILES[0], 500, 1),
    ],
)
@example(
    seed=147,
    unsynced="prefix",
    todo=[
        ("write", FILES[0], 500, 4000),
        ("sync", FILES[0]),
        ("write", FILES[0], 0, 4000),
        ("write", FILES[0], 5000, 1),
        ("fail", FILES[0]),
        ("write", FILES[0], 4095, 2),
    ],
)
@example(
    seed=0,
    unsynced="any",
    todo=[
        ("truncate", FILES[0], LONGEST),
        ("write", FILES[0], 4095, 2),
        ("fail", FILES[0]),
        ("truncate", FILES[0], 5000),
        ("sync", FILES[0]),
    ],
)
def test_the_bytes_that_are_left_are_what_the_model_allows(
    seed: int, unsynced: Literal["any", "prefix"], todo: list[tuple[Any, ...]]
) -> None:
    run_steps(seed, unsynced, [*DURABLE, *todo])


@given(st.integers(0, 2**32), unsynced_ways, st.booleans(), st.lists(steps_with_names, min_size=1, max_size=30))
def test_the_names_that_are_left_are_what_the_model_allows(
    seed: int, unsynced: Literal["any", "prefix"], durable: bool, todo: list[tuple[Any, ...]]
) -> None:
    run_steps(seed, unsynced, [*(DURABLE if durable else ()), *todo])


@given(st.integers(0, 2**32), unsynced_ways, st.lists(steps_with_names | steps_with_bytes(paths), max_size=30))
def test_the_same_seed_leaves_the_same(
    seed: int, unsynced: Literal["any", "prefix"], todo: list[tuple[Any, ...]]
) -> None:
    assert run_steps(seed, unsynced, [*DURABLE, *todo]) == run_steps(seed, unsynced, [*DURABLE, *todo])
