"""What clients, runners and followers were told, held against the log."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from turnlog.v1.event_pb2 import Event

from campaign.findings import Broken
from campaign.history import FENCED, Line, digest
from campaign.stored import Remembered, Stored

Answers = list[tuple[Line, Line | None]]


@dataclass
class Seen:
    """One follower of one Session: how far it came, and what it was given."""

    last: int = 0
    digests: list[tuple[int, str]] = field(default_factory=list)


@dataclass
class Told:
    """A history, sorted by who may be wrong."""

    tries: dict[str, Answers] = field(default_factory=lambda: defaultdict(list))
    heads: dict[str, list[Line]] = field(default_factory=lambda: defaultdict(list))
    seen: dict[str, dict[str, Seen]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(Seen)))
    revoked: dict[str, int] = field(default_factory=dict)
    broken: list[Broken] = field(default_factory=list)

    @property
    def deleted(self) -> set[str]:
        """Sessions that somebody asked to delete, and was not plainly refused."""
        asked = [tries for tries in self.tries.values() if tries[0][0]["method"] == "DeleteSession"]
        return {tries[0][0]["session"] for tries in asked if any(a is None or a["op"] != "refused" for _, a in tries)}


def read(lines: Iterable[Line]) -> Told:
    """Sorts a history, and finds what a follower alone can show: a gap, a repeat."""
    told = Told()
    open_calls: dict[int, tuple[str, int]] = {}
    for line in lines:
        match line["op"]:
            case "call":
                open_calls[line["id"]] = (line["request"], len(told.tries[line["request"]]))
                told.tries[line["request"]].append((line, None))
            case "ok" | "refused" | "unknown":
                request, index = open_calls.pop(line["id"])
                told.tries[request][index] = (told.tries[request][index][0], line)
            case "head":
                told.heads[line["session"]].append(line)
            case "revoked":
                told.revoked[line["client"]] = line["t"]
            case "seen":
                told.broken += _delivered(told.seen[line["session"]][line["follower"]], line)
    return told


def _delivered(seen: Seen, line: Line) -> Iterator[Broken]:
    for seq, body in line["events"]:
        if seq != seen.last + 1:
            what = f"{line['follower']} was given seq {seq} after seq {seen.last}"
            yield Broken("Resumable", line["session"], what)
        seen.last = seq
        seen.digests.append((seq, body))


def check_followers(told: Told, stored: Stored) -> Iterator[Broken]:
    """Each follower's union is the log: the same bytes, up to its head."""
    bodies = {seq: digest(body) for seq, _, body in stored.rows}
    session_id = stored.session_id
    for follower, seen in told.seen[session_id].items():
        for seq, body in seen.digests:
            if seq not in bodies:
                yield Broken("Durable", session_id, f"{follower} saw seq {seq}, which the log does not have")
            elif bodies[seq] != body:
                yield Broken("Unique", session_id, f"{follower} saw other bytes at seq {seq} than the log has")
        if seen.last < stored.head:
            yield Broken("Resumable", session_id, f"{follower} came to seq {seen.last} of {stored.head}")


class Requests:
    """Requests of all Sessions: feed it each log, then ask for what does not belong to one."""

    def __init__(self, told: Told, remembered: dict[str, list[Remembered]]) -> None:
        self._told = told
        self._remembered = remembered
        self._markers = {tries[0][0]["marker"]: name for name, tries in told.tries.items() if tries[0][0]["marker"]}
        self._places: dict[str, list[tuple[str, int, str]]] = defaultdict(list)
        self._heads: dict[str, int] = {}

    def feed(self, stored: Stored) -> None:
        """Notes where the log of a Session has what was asked for."""
        self._heads[stored.session_id] = stored.head
        for event in stored.events:
            for marker in markers_of(event):
                if (name := self._markers.get(marker)) is not None:
                    self._places[name].append((stored.session_id, event.seq, event.event_id))

    def check(self) -> Iterator[Broken]:
        """Each OK is there once, where it said; what is unknown at most once; what was refused nowhere."""
        deleted = self._told.deleted - self._heads.keys()
        for name, tries in self._told.tries.items():
            oks = [answer for _, answer in tries if answer is not None and answer["op"] == "ok"]
            all_refused = all(answer is not None and answer["op"] == "refused" for _, answer in tries)
            session = oks[0]["session"] if oks else tries[0][0]["session"]
            yield from _answers(name, session, oks)
            yield from self._access(name, session, tries)
            if all(answer is not None and answer.get("reason") == FENCED for _, answer in tries):
                if self._places[name]:
                    yield Broken("Fenced", session, f"{name} was sent without a lease, and is at {self._places[name]}")
            elif tries[0][0]["marker"] and session not in deleted:
                yield from self._effects(name, session, oks, all_refused)
            if not tries[0][0]["client"].startswith("runner"):
                yield from self._memory(name, session, oks, all_refused)
        yield from self._order()
        yield from self._reads(deleted)
        yield from self._existence()

    def _access(self, name: str, session: str, tries: Answers) -> Iterator[Broken]:
        """What is sent after a revocation was answered is refused, and changes nothing."""
        since = self._told.revoked.get(tries[0][0]["client"])
        if since is None:
            return
        late = [answer for sent, answer in tries if sent["t"] > since]
        if any(answer is not None and answer["op"] == "ok" for answer in late):
            yield Broken("CurrentAccess", session, f"{name} was answered OK after its key was revoked")
        if len(late) == len(tries) and self._places[name]:
            yield Broken("CurrentAccess", session, f"{name} was sent after its key was revoked: {self._places[name]}")

    def _effects(self, name: str, session: str, oks: list[Line], all_refused: bool) -> Iterator[Broken]:
        places = self._places[name]
        if len(places) > 1:
            yield Broken("Idempotent", session, f"{name} was carried out {len(places)} times: {places}")
        if all_refused and places:
            yield Broken("Idempotent", session, f"{name} was refused, and stands in the log: {places}")
        if oks and not places:
            yield Broken("Durable", session, f"{name} was answered OK, and is nowhere")
        for ok in oks:
            if places and ok["seq"] and (ok["session"], ok["seq"]) != places[0][:2]:
                yield Broken("Durable", session, f"{name} was answered seq {ok['seq']}, and stands at {places[0]}")
            if places and ok["event"] and ok["event"] != places[0][2]:
                yield Broken("Durable", session, f"{name} was answered {ok['event']}, and is {places[0][2]}")

    def _memory(self, name: str, session: str, oks: list[Line], all_refused: bool) -> Iterator[Broken]:
        rows = self._remembered.get(name, [])
        if oks and not rows:
            yield Broken("Idempotent", session, f"{name} was answered OK, and is not remembered")
        if rows and all_refused:
            yield Broken("Idempotent", session, f"{name} was refused, and is remembered")
        if len(rows) > 1:
            yield Broken("Idempotent", session, f"{name} is remembered {len(rows)} times")
        for ok in oks:
            if rows and ok["seq"] and ok["seq"] != rows[0].seq:
                yield Broken("Idempotent", session, f"{name} was answered seq {ok['seq']}, remembered is {rows[0].seq}")

    def _order(self) -> Iterator[Broken]:
        """What was sent after another was answered has the higher seq."""
        moments: dict[str, list[tuple[int, int, int, str]]] = defaultdict(list)
        for name, tries in self._told.tries.items():
            oks = [answer for _, answer in tries if answer is not None and answer["op"] == "ok" and answer["seq"]]
            if oks:
                moments[oks[0]["session"]].append((tries[0][0]["t"], 1, oks[0]["seq"], name))
                moments[oks[0]["session"]].append((min(ok["t"] for ok in oks), 0, oks[0]["seq"], name))
        for session, known in moments.items():
            highest = 0
            for _, sent, seq, name in sorted(known):
                if not sent:
                    highest = max(highest, seq)
                elif seq <= highest:
                    yield Broken("Ordered", session, f"{name} got seq {seq}, and {highest} had been answered before")

    def _existence(self) -> Iterator[Broken]:
        """What was deleted is gone, for everyone and from the answer on; what was not is there."""
        since: dict[str, int] = {}
        for tries in self._told.tries.values():
            for sent, answer in tries:
                session = sent["session"]
                if answer is not None and answer["op"] == "ok" and sent["method"] == "DeleteSession":
                    since[session] = min(since.get(session, answer["t"]), answer["t"])
                if answer is not None and answer.get("reason") == "NOT_FOUND" and session in self._heads:
                    yield Broken("Durable", session, f"{sent['request']} was answered NOT_FOUND, and it is there")
        for session in since.keys() & self._heads.keys():
            yield Broken("Durable", session, "it was deleted, and is there")
        for tries in self._told.tries.values():
            for sent, answer in tries:
                ok = answer is not None and answer["op"] == "ok" and sent["method"] != "DeleteSession"
                if ok and sent["t"] > since.get(sent["session"], sent["t"]):
                    yield Broken("Durable", sent["session"], f"{sent['request']} was answered OK after the deletion")

    def _reads(self, deleted: set[str]) -> Iterator[Broken]:
        """A read that is sent after an answer has what was answered, whichever replica it asks."""
        answered: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for tries in self._told.tries.values():
            for _, answer in tries:
                if answer is not None and answer["op"] == "ok" and answer["seq"]:
                    answered[answer["session"]].append((answer["t"], answer["seq"]))
        for session, reads in self._told.heads.items():
            known = sorted(answered[session])
            highest = index = 0
            for read in sorted(reads, key=lambda line: line["began"]):
                while index < len(known) and known[index][0] < read["began"]:
                    highest = max(highest, known[index][1])
                    index += 1
                if read["seq"] < highest:
                    yield Broken("Durable", session, f"a read gave head {read['seq']} after {highest} was answered")
                if session not in deleted and read["seq"] > self._heads.get(session, 0):
                    yield Broken("Durable", session, f"a read gave head {read['seq']}, which the log never reached")


def _answers(name: str, session: str, oks: list[Line]) -> Iterator[Broken]:
    for what in ("session", "seq", "event", "run"):
        if len(given := {ok[what] for ok in oks}) > 1:
            yield Broken("Idempotent", session, f"{name} was answered with several {what}: {sorted(map(str, given))}")


def markers_of(event: Event) -> Iterator[str]:
    """What names the request, or the runner's message, that the event is of."""
    match event.type:
        case "user.message":
            yield event.user_message.parts[0].text.split(" ", 1)[0]
        case "user.interrupt":
            yield event.user_interrupt.reason
        case "agent.message":
            yield event.agent_message.parts[0].text


def outcomes(told: Told) -> Counter[str]:
    """How requests ended, each over all of its tries."""
    counts: Counter[str] = Counter()
    for tries in told.tries.values():
        ops = {answer["op"] if answer else "unknown" for _, answer in tries}
        counts["ok" if "ok" in ops else "refused" if ops == {"refused"} else "unknown"] += 1
    return counts
