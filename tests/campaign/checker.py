"""Says which guarantee a campaign broke: `python checker.py HISTORY DSN`.

It shares nothing with the server: it reads the history that clients wrote, and the database with plain SQL, and knows
the contract. The names of guarantees are those of docs/guarantees.md.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from campaign import stored
from campaign.call_checks import Requests, check_followers, outcomes, read
from campaign.findings import Broken
from campaign.history import Line, lines_of
from campaign.log_checks import ENDS, check_log


@dataclass
class Verdict:
    """What is broken, and how much was looked at."""

    broken: list[Broken]
    counts: dict[str, int]

    @property
    def guarantees(self) -> set[str]:
        """The names of those that do not hold."""
        return {each.guarantee for each in self.broken}


def check(history: Iterable[Line], conn: stored.Conn) -> Verdict:
    """Compares what was seen with what is stored."""
    told = read(history)
    requests = Requests(told, stored.requests(conn))
    counts = {"sessions": 0, "events": 0, "runs": 0, "attempts": 0, "followers": sum(map(len, told.seen.values()))}
    missing = set(told.seen)

    def every_log() -> Iterator[Broken]:
        for session in stored.sessions(conn):
            counts["sessions"] += 1
            missing.discard(session.session_id)
            counts["events"] += len(session.rows)
            counts["runs"] += sum(kind in ENDS for _, kind, _ in session.rows)
            counts["attempts"] += sum(kind == "run.attempt_started" for _, kind, _ in session.rows)
            requests.feed(session)
            yield from check_log(session)
            yield from check_followers(told, session)
        for session_id in missing - told.deleted:
            yield Broken("Durable", session_id, "it was followed, and is not there")

    broken = [*told.broken, *every_log(), *requests.check()]
    counts |= {f"requests {how}": count for how, count in outcomes(told).items()}
    return Verdict(broken, counts)


def main(history: str, dsn: str) -> int:
    """Exit code 1 where a guarantee is broken."""
    with psycopg.connect(dsn) as conn:
        verdict = check(lines_of(Path(history)), conn)
    for each in verdict.broken:
        print(each)
    print(verdict.counts)
    return 1 if verdict.broken else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
