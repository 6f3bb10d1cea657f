"""The long run: make fuzz ARGS="--messages 1000000 --seed 7"."""

import argparse
import asyncio
import json
import os
import secrets
import signal
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
sys.path.insert(0, str(Path(__file__).parents[1]))

from support.postgres import postgres_running

from fuzz.campaign import Campaign
from fuzz.world import replayed, world


async def main() -> int:
    options = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    options.add_argument("--messages", type=int, default=30_000)
    options.add_argument("--seed", type=int, default=secrets.randbelow(2**32), help="a fresh one where it is left out")
    options.add_argument("--first-round", type=int, default=0, help="begin with this one, to see it again")
    options.add_argument("--seconds", type=float, default=float("inf"), help="stop after this long")
    options.add_argument("--keep", type=Path, default=Path(".cache/fuzz"), help="folder for inputs that fail")
    asked = options.parse_args()
    print(f"seed {asked.seed}", flush=True)
    began = time.monotonic()
    async with postgres_running() as postgres:
        dsn = postgres.database_create(await postgres.template_create())
        with tempfile.TemporaryDirectory() as folder:
            async with world(dsn, Path(folder)) as fuzzed:
                campaign = Campaign(fuzzed, asked.seed, asked.keep, lambda text: print(text, flush=True))
                for number in (signal.SIGINT, signal.SIGTERM):
                    asyncio.get_running_loop().add_signal_handler(number, setattr, campaign, "stopping", True)
                await campaign.run(asked.messages, asked.first_round, asked.seconds)
                longest, warnings = fuzzed.meter.longest, fuzzed.warnings()
        code, said = await replayed(dsn)
    tally = campaign.tally
    print("ends:", json.dumps(dict(sorted(tally.ends.items(), key=lambda end: -end[1]))))
    for method, ends in sorted(tally.of_method.items()):
        print(f"  {method}:", json.dumps(dict(sorted(ends.items(), key=lambda end: -end[1])[:8])))
    print("log:", json.dumps(warnings))
    print(said.strip()[-2000:])
    print(
        f"seed {asked.seed}: {tally.messages} messages in {time.monotonic() - began:.0f} s, "
        f"{len(tally.faults)} faults, "
        f"longest callback {longest:.1f} ms of CPU time, check --replay {code}"
    )
    return 1 if tally.faults or code else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
