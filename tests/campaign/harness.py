"""The harness of a campaign: does what the message wishes, in events that name themselves. Standard library only.

A message is `MARKER COUNT MILLISECONDS END`; an event says `RUN/ATTEMPT/I/COUNT`.
"""

import json
import select
import sys
import time


def put(**message: object) -> None:
    print(json.dumps(message), flush=True)


def told_to_stop(seconds: float) -> bool:
    """Waits, unless the runner says something first."""
    return bool(select.select([sys.stdin], [], [], seconds)[0])


def main() -> None:
    start = json.loads(sys.stdin.readline())
    _, count, pause, end = start["message"]["text"].split(" ")
    if end == "late" and start["attempt_no"] == 1:
        time.sleep(30)
    put(type="ready", protocol=1)
    name = f"{start['run_id']}/{start['attempt_no']}"
    for i in range(1, int(count) + 1):
        if told_to_stop(int(pause) / 1000):
            put(type="settle", outcome="failed", error={"code": "campaign.stopped", "message": "told to"})
            return
        text = f"{name}/{i}/{count}"
        put(type="event", event_type="agent.message", payload={"parts": [{"text": text}]})
    if end == "exit":
        sys.exit(3)
    if end == "hang":
        told_to_stop(5)
    error = {"code": "campaign.wished", "message": "as was wished"} if end != "ok" else None
    put(type="settle", outcome="failed", error=error) if error else put(type="settle", outcome="succeeded")


if __name__ == "__main__":
    main()
