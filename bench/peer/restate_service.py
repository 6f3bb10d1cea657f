"""What Restate invokes: a handler without steps, by its SDK for Python. Served by hypercorn, as its SDK recommends."""

import restate

service = restate.Service("Bench")


@service.handler()
async def answer(ctx: restate.Context, text: str) -> str:
    """Does nothing."""
    del ctx, text
    return "ok"


app = restate.app([service])
