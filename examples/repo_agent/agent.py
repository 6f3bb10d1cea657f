"""The harness: one question in, an answer with its places out, told step by step."""

import argparse
import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from turnlog_client.harness import Harness, Turn

from repo_agent.answer import Plan, plan, render
from repo_agent.question import Intent, Question, parse
from repo_agent.ranking import Corpus, Hit, rank, recall
from repo_agent.reading import excerpt
from repo_agent.tree import Listing, Tree

TOOLS = ("search", "read")
"""What an agent's version must enable for this harness to look at anything."""

_SHOWN_HITS = 10
_T = TypeVar("_T")


class _Interrupted(Exception):
    """The turn should come to an end."""


class RepoAgent:
    """Answers about one tree. delay: seconds to wait before each step, so that a person can see them pass."""

    def __init__(self, tree: Path, delay: float = 0.0) -> None:
        self._root = tree
        self._delay = delay

    async def answer(self, turn: Turn) -> None:
        """Does one turn."""
        missing = [name for name in TOOLS if name not in {tool.name for tool in turn.tools}]
        if missing:
            await turn.say(f"I was not given the tool(s) {', '.join(missing)}, so I cannot look at the source tree.")
            return
        try:
            tree = Tree(self._root)
        except OSError as error:
            turn.fail(
                "repo_agent.no_tree", f"The source tree {self._root} cannot be opened: {error.strerror or error}."
            )
        work = _Work(turn, tree, self._delay)
        try:
            text = await work.run()
        except _Interrupted:
            text = f"Stopped by an interrupt: {work.so_far}."
        await turn.say(text, usage=work.usage(text), model="repo-agent")


class _Work:
    """One question on its way to an answer."""

    def __init__(self, turn: Turn, tree: Tree, delay: float) -> None:
        self._turn = turn
        self._tree = tree
        self._delay = delay
        self._stop = threading.Event()
        self._read_bytes = 0
        self.so_far = "nothing was looked at yet"

    def usage(self, text: str) -> dict[str, int]:
        """What a model of the same task would be counted for: a token for every four bytes read or written."""
        return {"input_tokens": self._read_bytes // 4, "output_tokens": len(text.encode()) // 4}

    async def run(self) -> str:
        asked = [record.text for record in self._turn.history if record.type == "user.message"]
        question = parse(self._turn.message.text, asked)
        if question.intent is Intent.OVERVIEW:
            return await self._overview()
        corpus, hits = await self._search(question)
        made = await self._off_loop(lambda: plan(question, corpus, hits))
        await self._read(made, corpus)
        return await self._tell(render(made, corpus.texts))

    async def _search(self, question: Question) -> tuple[Corpus, list[Hit]]:
        await self._step()
        words = " ".join(term.word for term in question.terms)
        async with self._turn.tool("search", {"query": words}) as call:
            listing, corpus, hits = await self._off_loop(lambda: self._find(question))
            self.so_far = f"{corpus.files} files were searched"
            shown = [f"{hit.block.path}:{hit.line} {hit.block.symbol}".rstrip() for hit in hits[:_SHOWN_HITS]]
            cut = (
                ""
                if listing.complete
                else f"; the tree has more than {len(listing.paths)} files, the rest was left out"
            )
            call.result(f"{len(hits)} hits among {corpus.files} files{cut}\n" + "\n".join(shown))
        return corpus, hits

    def _find(self, question: Question) -> tuple[Listing, Corpus, list[Hit]]:
        listing = self._tree.listing()
        corpus = recall(question, self._tree.texts(listing.paths, self._stop.is_set), self._stop.is_set)
        return listing, corpus, rank(question, corpus, self._stop.is_set)

    async def _read(self, made: Plan, corpus: Corpus) -> None:
        for reading in made.readings:
            await self._step()
            where = {"path": reading.path, "start_line": reading.first, "end_line": reading.last}
            async with self._turn.tool("read", where) as call:
                lines = corpus.texts[reading.path].split("\n")
                text = excerpt(lines, reading.first, reading.last)
                self._read_bytes += len(text.encode())
                self.so_far += f", {reading.path}:{reading.focus} was read"
                call.result(text)

    async def _overview(self) -> str:
        await self._step()
        async with self._turn.tool("search", {"query": "README"}) as call:
            listing = await self._off_loop(self._tree.listing)
            readmes = sorted((path for path in listing.paths if _is_readme(path)), key=lambda path: path.count("/"))
            call.result("\n".join(readmes[:_SHOWN_HITS]) or "no hits")
        pieces = [f"I answer questions about the source tree at hand ({len(listing.paths)} files) by searching it.\n"]
        if readmes:
            await self._step()
            async with self._turn.tool("read", {"path": readmes[0], "start_line": 1, "end_line": 12}) as call:
                text = (await self._off_loop(lambda: self._tree.read(readmes[0]))) or ""
                head = text.split("\n")[:12]
                self._read_bytes += sum(len(line.encode()) for line in head)
                call.result(excerpt(head, 1, 12))
            pieces.append(f"\n{readmes[0]}:1 says:\n" + "\n".join(f"> {line}".rstrip() for line in head) + "\n")
        pieces.append(
            "\nAsk for a place, a value, a reason, or who uses something: `Where is …?`, `How long …?`, `Why …?`\n"
        )
        return await self._tell(pieces)

    async def _tell(self, pieces: Sequence[str]) -> str:
        for piece in pieces:
            await self._step()
            await self._turn.preview(piece)
        return "".join(pieces).rstrip()

    async def _step(self) -> None:
        """Between two steps: waits as long as was asked for, and no longer than until an interrupt."""
        if self._delay > 0:
            try:
                await asyncio.wait_for(self._turn.interrupted.wait(), self._delay)
            except TimeoutError:
                return
        if self._turn.interrupted.is_set():
            raise _Interrupted

    async def _off_loop(self, work: Callable[[], _T]) -> _T:
        """Does long work in a thread that stops soon after an interrupt or a cancel."""
        interrupt = asyncio.ensure_future(self._turn.interrupted.wait())
        task = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            await asyncio.wait([interrupt, task], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise _Interrupted
            return task.result()
        finally:
            interrupt.cancel()
            if not task.done():
                self._stop.set()
                task.add_done_callback(lambda done: done.cancelled() or done.exception())


def main() -> None:
    """Reads the arguments and serves one turn."""
    parser = argparse.ArgumentParser(prog="repo_agent", description="Answers questions about a source tree.")
    parser.add_argument(
        "--tree",
        type=Path,
        default=os.environ.get("REPO_AGENT_TREE"),
        help="the folder to answer about (or REPO_AGENT_TREE); relative to where the runner starts harnesses",
    )
    options = parser.parse_args()
    if options.tree is None:
        parser.error("say which tree with --tree or REPO_AGENT_TREE")
    agent = RepoAgent(Path(options.tree), _seconds(os.environ.get("REPO_AGENT_DELAY", "")))
    Harness(agent.answer, name="repo-agent", model="repo-agent").run()


def _seconds(text: str) -> float:
    try:
        return max(0.0, float(text or 0))
    except ValueError:
        raise SystemExit(f"REPO_AGENT_DELAY must be a number of seconds, not {text!r}") from None


def _is_readme(path: str) -> bool:
    return path.rpartition("/")[2].lower().startswith("readme")
