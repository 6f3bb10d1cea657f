"""The queue over HTTP, for workers in other languages."""

import hmac
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .errors import LeaseExpired, PayloadTooLarge, QueueFull
from .job import Job, State
from .queue import Queue
from .store import Store

STATUS_OF = {QueueFull: 429, PayloadTooLarge: 413, LeaseExpired: 409, ValueError: 400, KeyError: 400}


def make_server(path: str, secret: str, port: int) -> ThreadingHTTPServer:
    """A server on the loopback interface; the caller runs it. Each request opens the file anew."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if not self._authorized():
                self._answer(401, {"error": "wrong or missing token"})
                return
            store = Store(path)
            try:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))) or b"{}")
                self._answer(200, route(Queue(store), self.path, body))
            except tuple(STATUS_OF) as error:
                self._answer(STATUS_OF[type(error)], {"error": str(error)})
            finally:
                store.close()

        def _authorized(self) -> bool:
            given = self.headers.get("Authorization", "").removeprefix("Bearer ")
            # Constant time: how long it takes says nothing about how much was right.
            return hmac.compare_digest(given.encode(), secret.encode())

        def _answer(self, status: int, body: Any) -> None:
            raw = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def route(queue: Queue, path: str, body: dict[str, Any]) -> Any:
    """Carries out one request. Raises KeyError for a path or a field that is not there."""
    if path == "/add":
        return {"job_id": queue.add(body["kind"], body.get("payload"), delay=body.get("delay", 0.0))}
    if path == "/claim":
        job = queue.claim()
        return (
            {} if job is None else {"job_id": job.job_id, "kind": job.kind, "payload": job.payload, "token": job.token}
        )
    held = Job(body["job_id"], "", None, State.RUNNING, body.get("attempts", 1), 0.0, body["token"])
    if path == "/complete":
        queue.complete(held)
    elif path == "/fail":
        queue.fail(held, body.get("error", ""))
    elif path == "/heartbeat":
        queue.heartbeat(held)
    else:
        raise KeyError(path)
    return {}
