"""A short fault campaign, once with every kind of fault that can be brought about here."""

import asyncio
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from campaign.faults import KINDS

RUN = Path(__file__).with_name("run.py")
# Who is dead already cannot be killed, and where nobody writes nothing is cut; the others always fall.
MAY_MISS = {"kill-server", "kill-runner", "kill-harness", "kill-backend", "kill-postmaster", "drain-server"} | {
    "drain-runner", "freeze-server", "freeze-runner-past-its-lease", "cut-after-commit", "cut-before-commit"
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.rule("R1", "R32", "R175")
@pytest.mark.case(57)
async def test_thirty_faults_break_no_guarantee() -> None:
    # Open to every user, for PostgreSQL is none of root's; kept when something is broken.
    folder = Path(tempfile.mkdtemp(prefix="turnlog-faults-", dir="/tmp"))
    arguments = ["--faults", "30", "--rate", "2", "--seed", "1", "--turns", "10", "--out", str(folder)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(RUN), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        said, errors = await process.communicate()
    finally:
        if process.returncode is None:
            # Its own children end with it: it is told, not killed.
            process.terminate()
            await process.wait()
    assert process.returncode == 0, f"see {folder}: {said.decode()}{errors.decode()[-2000:]}"
    summary = json.loads(said)
    assert summary["broken_guarantees"] == {}
    assert summary["faults"] >= 25
    fell = {kind for kind, count in summary["faults_by_kind"].items() if count}
    assert KINDS.keys() - MAY_MISS - set(summary["kinds_not_possible_here"]) <= fell
    assert len(fell & MAY_MISS) >= 6
    assert summary["stored"]["runs"] >= 20
    assert summary["stored"]["requests ok"] >= 50
    assert summary["stored"]["requests unknown"] > 0
    if os.environ.get("TURNLOG_REQUIRE_SYSTEM"):
        assert summary["kinds_not_possible_here"] == []
    shutil.rmtree(folder)
