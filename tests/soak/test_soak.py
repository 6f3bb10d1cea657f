"""The soak in small: it runs through, nothing is left behind, nothing unexpected is seen. Speeds are not judged."""

from math import inf
from pathlib import Path

import pytest
from soak.report import write
from soak.run import soak
from soak.verdicts import Bounds

# A day's growth says little after half a minute: what is caught here is what grows by tens of MiB at once.
SHORT = Bounds(memory_mib_day=100_000, latency_growth=inf, bytes_growth=1)


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_half_a_minute_of_it(tmp_path: Path) -> None:
    found = await soak(tmp_path, seconds=30, seed=7, fill=200, bounds=SHORT)
    assert not found["unexpected"]
    assert [line for line in found["verdicts"] if not line.holds] == []
    assert min(found["calls"][each] for each in ("follow", "read", "refuse", "talk", "hurry", "rotate")) > 0
    assert found["after"]["events"] > found["before"]["events"] > 0
    write(found, tmp_path)
    page = (tmp_path / "soak.md").read_text("utf-8")
    assert all(line.says in page for line in found["verdicts"])
    assert (tmp_path / "soak.png").read_bytes().startswith(b"\x89PNG")
