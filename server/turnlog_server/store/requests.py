"""Request ids of calls that name no Session: written in the transaction of their effect. The log writes its own."""

from turnlog_server.domain.requests import AcceptedRequest, RequestKey
from turnlog_server.store.execute import Execute, first
from turnlog_server.store.times import micros

REQUEST_PKEY = "request_ids_pkey"
"""The constraint whose violation says that a request with this id was accepted before."""

REQUEST_FIND = """
SELECT fingerprint, resource_id, seq, event_id, run_id, accept_time
  FROM request_ids
 WHERE scope = %(scope)s::text AND caller = %(caller)s::text
   AND method = %(method)s::text AND request_id = %(request_id)s::text
"""

REQUEST_INSERT = """
INSERT INTO request_ids (scope, caller, method, request_id, fingerprint, resource_id, seq, event_id, run_id)
VALUES (%(scope)s::text, %(caller)s::text, %(method)s::text, %(request_id)s::text, %(fingerprint)s::bytea,
        %(resource_id)s::text, %(seq)s::int8, %(event_id)s::text, %(run_id)s::text)
"""


async def request_find(
    execute: Execute, scope: str, caller: str, method: str, request_id: str
) -> AcceptedRequest | None:
    """The request, if one was accepted under this name."""
    key = RequestKey(scope, caller, method, request_id)
    row = await first(execute, REQUEST_FIND, _key_params(key))
    if row is None:
        return None
    fingerprint, resource_id, seq, event_id, run_id, accept_time = row
    return AcceptedRequest(key, bytes(fingerprint), resource_id, seq, event_id, run_id, micros(accept_time))


async def request_insert(execute: Execute, accepted: AcceptedRequest) -> None:
    """Remember an accepted request, by the clock of the database."""
    params = {
        "fingerprint": accepted.fingerprint,
        "resource_id": accepted.resource_id,
        "seq": accepted.seq,
        "event_id": accepted.event_id,
        "run_id": accepted.run_id,
    }
    await execute(REQUEST_INSERT, _key_params(accepted.key) | params)


def _key_params(key: RequestKey) -> dict[str, object]:
    return {"scope": key.scope, "caller": key.caller, "method": key.method, "request_id": key.request_id}
