"""Inputs that once made a fault, as files: the ordinary tests send them again.

A file names what existed when it was made; a replay puts in what exists then, of the same kind and length.
"""

import base64
import hashlib
import json
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fuzz.grammar import Names

if TYPE_CHECKING:
    from fuzz.messages import Call
    from fuzz.streams import Episode
    from fuzz.world import World

CORPUS = Path(__file__).with_name("corpus")


@dataclass
class Entry:
    """method: the RPC. state: for the runners' stream, which state it is sent in. raw: the messages.

    names: ids that are in them, each by its prefix.
    """

    about: str
    method: str
    raw: list[str]
    state: str = ""
    names: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of_call(cls, call: "Call", world: "World", about: str) -> "Entry":
        """A call that failed."""
        return cls(about, call.method, [packed(call.raw)], names=_within([call.raw], world.names))

    @classmethod
    def of_episode(cls, episode: "Episode", world: "World") -> "Entry":
        """A stream that failed."""
        raw = episode.sent[-20:]
        return cls(episode.fault, "Connect", [packed(each) for each in raw], episode.first, _within(raw, world.names))

    def messages(self, names: Names) -> list[bytes]:
        """The messages, with ids of things that exist now."""
        swaps: list[tuple[bytes, bytes]] = []
        used: dict[str, int] = {}
        for old, prefix in self.names.items():
            same = [each for each in names.by_prefix[prefix] if len(each) == len(old)]
            at = used[prefix] = used.get(prefix, -1) + 1
            if same:
                swaps.append((old.encode(), same[at % len(same)].encode()))
        made = []
        for text in self.raw:
            raw = unpacked(text)
            for old, new in swaps:
                raw = raw.replace(old, new)
            made.append(raw)
        return made


def keep(entry: Entry, folder: Path) -> Path:
    """Writes it; the same input is one file."""
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256("".join(entry.raw).encode()).hexdigest()[:10]
    path = folder / f"{entry.method}-{digest}.json"
    path.write_text(json.dumps(asdict(entry), indent=1) + "\n")
    return path


def load(path: Path) -> Entry:
    """Reads one."""
    return Entry(**json.loads(path.read_text()))


def packed(raw: bytes) -> str:
    """Bytes as a line of text; what repeats itself takes little room."""
    return base64.b64encode(zlib.compress(raw, 9)).decode()


def unpacked(text: str) -> bytes:
    """The bytes."""
    return zlib.decompress(base64.b64decode(text))


def _within(raws: list[bytes], names: Names) -> dict[str, str]:
    return {
        identity: prefix
        for prefix, known in names.by_prefix.items()
        for identity in known
        if any(identity.encode() in raw for raw in raws)
    }
