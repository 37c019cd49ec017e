"""The blocks of code in the documents: every fence of README, ARCHITECTURE, CONTRIBUTING and docs."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import attrs

PROJECT = Path(__file__).resolve().parents[2]
PAGES = [PROJECT / "README.md", PROJECT / "ARCHITECTURE.md", PROJECT / "CONTRIBUTING.md", *PROJECT.glob("docs/**/*.md")]
_FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)


#: So much of a block's first line tells it from the others of its page.
KEY_CHARS = 60


@attrs.frozen
class Block:
    """A block, and where it is."""

    page: str
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def key(self) -> tuple[str, str]:
        """What stays when lines move: the page, and how the block begins."""
        return self.page, self.text.partition("\n")[0][:KEY_CHARS]

    @property
    def commands(self) -> list[str]:
        """The commands of a shell's block: every line (`sh`), or those after a prompt (`console`)."""
        lines = self.text.splitlines()
        if self.kind == "sh":
            return [line for line in lines if line]
        return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def blocks_of(path: Path) -> Iterator[Block]:
    """The blocks of a page, in their order."""
    page = path.read_text(encoding="utf-8")
    for found in _FENCE.finditer(page):
        line = page.count("\n", 0, found.start()) + 1
        yield Block(str(path.relative_to(PROJECT)), line, found["kind"], textwrap.dedent(found["text"]))


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
