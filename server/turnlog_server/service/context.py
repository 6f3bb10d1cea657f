"""What every use case is told first: who calls, under which names, and how long there is."""

from collections.abc import Awaitable, Callable
from dataclasses import field

from turnlog_server.domain.access import Caller
from turnlog_server.domain.values import value


async def _same(caller: Caller) -> Caller:
    return caller


@value
class CallContext:
    """One call.

    method: `package.Service/Method`, the key of `domain.access.PERMISSIONS`.
    deadline: in the time of the event loop.
    request_id, fingerprint: of mutating requests; empty otherwise. The fingerprint covers the request without its id.
    judge: looks at the credential and at the permission again, as of now; raises a Refusal when either is gone.
    """

    method: str
    caller: Caller
    deadline: float
    request_id: str = ""
    fingerprint: bytes = b""
    judge: Callable[[Caller], Awaitable[Caller]] = field(default=_same)

    @property
    def rpc(self) -> str:
        """The method's short name, such as `AppendEvent`."""
        return self.method.rsplit("/", 1)[1]
