"""Every block of code in docs/embedding.md runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "embedding.md"
BLOCKS = re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_the_page_has_its_blocks() -> None:
    assert [title for title, _ in BLOCKS] == ["In a Trio program", "In an asyncio program", "In pytest"]


@pytest.mark.parametrize("code", [code for _, code in BLOCKS], ids=[title for title, _ in BLOCKS])
def test_a_block_runs(code: str, tmp_path: Path) -> None:
    script = tmp_path / "test_block.py"
    script.write_text(code)
    runner = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if "pytest" in code else ["-W", "error"]
    done = subprocess.run(
        [sys.executable, *runner, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("1 passed" if "pytest" in code else "PUT_OK") in done.stdout
