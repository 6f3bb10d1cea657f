"""`make soak`: an hour of mixed load with faults, and whether everything stayed flat."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from soak.report import write, write_page
from soak.run import soak
from soak.verdicts import Bounds

DOCS = Path(__file__).resolve().parents[2] / "docs"


def main() -> int:
    """0 where every verdict holds."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long the load that is judged goes on")
    parser.add_argument("--seed", type=int, default=1, help="of the load and of the order of faults")
    parser.add_argument("--fill", type=int, default=20_000, help="Sessions to make before, which a replica remembers")
    parser.add_argument("--to", type=Path, default=DOCS, help="folder for soak.md, soak.png and soak.json")
    parser.add_argument("--page", action="store_true", help="only write soak.md again, from soak.json")
    given = parser.parse_args()
    if given.page:
        write_page(given.to)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        running = soak(Path(folder), seconds=60 * given.minutes, seed=given.seed, fill=given.fill, bounds=Bounds())
        found = asyncio.run(running)
    write(found, given.to)
    for line in found["verdicts"]:
        print(f"{'holds' if line.holds else 'FAILS'}  {line.says}: {line.value:.3g} of {line.bound:g} {line.unit}")
    print(*found["unexpected"], sep="\n")
    return 0 if all(line.holds for line in found["verdicts"]) else 1


if __name__ == "__main__":
    sys.exit(main())
