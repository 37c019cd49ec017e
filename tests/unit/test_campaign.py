"""A campaign over several processes: what cannot be written is told by the process that was asked for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_actors.testing.campaign import Campaign, run_campaign


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_cannot_be_written_is_an_error_of_the_system(tmp_path: Path, jobs: int) -> None:
    (tmp_path / "traces").touch()
    with pytest.raises(NotADirectoryError, match="traces"):
        run_campaign(Campaign(range(2), jobs=jobs, out=tmp_path), lambda _: None)
