"""How a command runs: on the quickest event loop there is, with a sentence for what the operator must mend."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import TypeVar

import typer

from turnlog_server.app.embedded import EmbeddedError
from turnlog_server.app.settings import SettingsError
from turnlog_server.domain.refusals import Refusal
from turnlog_server.store.errors import StoreSetupError

T = TypeVar("T")

# New objects before the collector looks at the youngest, and how often it looks at the older ones for each such look.
# Python's own 700 is a tenth of the time of a busy server, which makes few cycles and remembers many Sessions. Not more
# at once than takes a few hundredths of a second even if all of it is garbage, as where thousands of streams end: the
# event loop waits for it. All that is remembered is looked at rarely.
COLLECT = (10_000, 4, 600)


def run(work: Callable[[], Awaitable[T]]) -> T:
    """Runs it. What the operator must mend is said in a sentence, with exit code 1."""
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_awaited(work))
    except (SettingsError, EmbeddedError, StoreSetupError, Refusal) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def settle() -> None:
    """A server is up: what there is by now stays, and the collector need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)


async def _awaited(work: Callable[[], Awaitable[T]]) -> T:
    return await work()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
