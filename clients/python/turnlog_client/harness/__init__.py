"""For authors of harnesses: `Harness(answer).run()` serves one turn over JSON lines on stdin and stdout.

It needs nothing but Python's standard library. The protocol is in `docs/harness-protocol.md`, and any language can
speak it.

    from turnlog_client.harness import Harness, Turn

    async def answer(turn: Turn) -> None:
        async with turn.tool("search", {"query": turn.message.text}) as call:
            call.result(search(turn.message.text))
        await turn.say("Found it.", usage={"output_tokens": 3})

    Harness(answer).run()
"""

from turnlog_client.harness.serve import Harness
from turnlog_client.harness.turn import HistoryRecord, Message, Tool, ToolCall, Turn, TurnFailed

__all__ = ["Harness", "HistoryRecord", "Message", "Tool", "ToolCall", "Turn", "TurnFailed"]
