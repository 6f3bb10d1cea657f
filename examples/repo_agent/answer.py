"""From hits to an answer: what to read, and what to say, with every claim at its `file:line`.

Nothing is made up: an answer is what stands in the tree, and where nothing stands that would answer, it says so.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from repo_agent.blocks import blocks_of, definitions
from repo_agent.question import Intent, Question
from repo_agent.ranking import Corpus, Hit, is_test
from repo_agent.reading import (
    Place,
    constants_in,
    defined_at,
    documented,
    excerpt,
    paragraph_at,
    said_at,
    used_at,
    window,
)
from repo_agent.values import Value, values

# Below this share of what is asked for, a place is only the nearest there is.
_SURE = 0.45
# Below this one it is said to be uncertain.
_CERTAIN = 0.6
_VALUE_SURE = 0.55
_ALSO = 3
_IS_DOCUMENT = re.compile(r"\.(md|rst|txt|adoc)$")
_USES = 12


@dataclass(frozen=True, slots=True)
class Reading:
    """Lines to read and show. why: what the line in focus is, as the answer says it."""

    path: str
    first: int
    last: int
    focus: int
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to say. lead: the first sentence. readings: what is read and shown. also: other places, one line each."""

    lead: str
    readings: tuple[Reading, ...] = ()
    also: tuple[str, ...] = ()
    answered: bool = True


def plan(question: Question, corpus: Corpus, hits: Sequence[Hit]) -> Plan:
    """Decides what answers the question."""
    unknown = _unknown_names(question, corpus)
    missing = [term.word for term in question.terms if term.specific and not corpus.frequency.get(term.stem)]
    best = hits[0].coverage if hits else 0.0
    if unknown or (missing and best < 0.75) or best < _SURE:
        return _unanswered(question, corpus, hits, unknown or missing)
    if question.intent is Intent.USES:
        uses = _uses(question, corpus)
        if uses is not None:
            return uses
    if question.intent is Intent.VALUE:
        found = values(question, corpus, hits)
        if found and found[0].share >= _VALUE_SURE:
            return _value(question, corpus, hits, found)
    if question.names:
        named = _definition(question, corpus, hits)
        if named is not None:
            return named
    return _places(question, corpus, hits)


def render(made: Plan, texts: Mapping[str, str]) -> list[str]:
    """The answer in pieces, as it is streamed; joined they are the whole."""
    pieces = [made.lead + "\n"]
    for number, reading in enumerate(made.readings):
        lines = texts[reading.path].split("\n")
        # The lead has named the first place.
        head = f"\n{reading.path}:{reading.focus} {reading.why}".rstrip() if number else ""
        pieces.append(f"{head}\n```\n{excerpt(lines, reading.first, reading.last)}\n```\n")
    if made.also:
        pieces.append(("\nSee also:\n" if made.readings else "") + "".join(f"- {line}\n" for line in made.also))
    return pieces


def _places(question: Question, corpus: Corpus, hits: Sequence[Hit]) -> Plan:
    top = hits[0]
    readings = [_reading(corpus, top)]
    # A document or a comment that names the code it speaks of leads to that code.
    pointed = [_read_place(corpus, place) for place in _pointed_at(corpus, top)]
    readings += [each for each in pointed if each.path != top.block.path or not _overlap(each, readings[0])][:1]
    if len(hits) > 1 and hits[1].score >= 0.75 * top.score and not (is_test(hits[1].block.path) and len(readings) > 1):
        second = _reading(corpus, hits[1])
        if not any(_overlap(second, each) for each in readings):
            readings.append(second)
    said = readings[0].why
    unsure = "I am not sure; this comes closest: " if top.coverage < _CERTAIN else ""
    lead = f"{unsure}{top.block.path}:{readings[0].focus}" + (f" {said}" if said else "")
    return Plan(lead, tuple(readings), _also(corpus, hits, readings))


def _value(question: Question, corpus: Corpus, hits: Sequence[Hit], found: Sequence[Value]) -> Plan:
    place = found[0].place
    readings = [_read_place(corpus, place, around=3)]
    where_used = next(
        (hit for hit in hits[:4] if found[0].name in _text_of(corpus, hit) and not _near(hit, place)),
        None,
    )
    if where_used is not None:
        readings.append(_reading(corpus, where_used, focus_on=found[0].name))
    others = [f"{value.place}  {value.place.text}" for value in found[1:] if value.share >= 0.85 * found[0].share][
        :_ALSO
    ]
    return Plan(f"`{place.text}`, at {place}.", tuple(readings), tuple(others) or _also(corpus, hits, readings))


def _uses(question: Question, corpus: Corpus) -> Plan | None:
    for name in question.names or [term.word for term in sorted(question.terms, key=lambda t: -corpus.rarity(t))[:1]]:
        places = used_at(name, corpus.texts.items(), _USES)
        if places:
            more = " or more" if len(places) == _USES else ""
            defined = defined_at(name, corpus.texts)[:1]
            lead = f"`{name}` is used in {len(places)}{more} place(s), first at {places[0]}."
            also = [f"{place}  {place.text}" for place in places[1:]]
            also += [f"{place}  {place.text}  (its definition)" for place in defined]
            return Plan(lead, (_read_place(corpus, places[0], around=4),), tuple(also))
        defined = defined_at(name, corpus.texts)
        if defined:
            lead = f"Nothing in this tree uses `{name}`. It is defined at {defined[0]}."
            return Plan(lead, (_read_place(corpus, defined[0]),))
    return None


def _definition(question: Question, corpus: Corpus, hits: Sequence[Hit]) -> Plan | None:
    """What a question that names one thing is about, if that one thing is all it has."""
    if len(question.names) != 1 or len(question.terms) > len(set(re.findall(r"[A-Za-z]+", question.names[0]))) + 1:
        return None
    places = defined_at(question.names[0], corpus.texts)
    if not places:
        return None
    reading = _read_place(corpus, places[0])
    also = [f"{place}  {place.text}" for place in places[1 : 1 + _ALSO]] or list(_also(corpus, hits, [reading]))
    return Plan(f"`{question.names[0]}` is defined at {places[0]}. {reading.why}".strip(), (reading,), tuple(also))


def _unanswered(question: Question, corpus: Corpus, hits: Sequence[Hit], missing: Sequence[str]) -> Plan:
    said = "I found no answer to that in this tree."
    if missing:
        words = ", ".join(f"`{word}`" for word in dict.fromkeys(missing))
        said += f" Nothing in it is called {words}."
    elif not hits:
        said += f" None of its {corpus.files} files has the words of the question."
    near = [_line_of(corpus, hit) for hit in hits[:2] if hit.coverage >= 0.3]
    if near:
        said += " The nearest I have may be about something else:"
    return Plan(said, also=tuple(near), answered=False)


def _unknown_names(question: Question, corpus: Corpus) -> list[str]:
    """Names of the question that occur nowhere, and so cannot be asked about."""
    unknown: list[str] = []
    for name in question.names:
        last = re.split(r"[.:]+", name)[-1] if " " not in name else ""
        # What is not one identifier, such as a quoted sample of input, need not occur as it stands.
        if re.fullmatch(r"\w+", last) and not any(
            re.search(rf"(?<!\w){re.escape(last)}(?!\w)", text, re.IGNORECASE) for text in corpus.texts.values()
        ):
            unknown.append(name)
    return unknown


def _pointed_at(corpus: Corpus, hit: Hit) -> list[Place]:
    lines = corpus.texts[hit.block.path].split("\n")
    around = "\n".join(lines[max(hit.block.first, hit.line - 1) - 1 : hit.line + 2])
    if hit.block.symbol and not _IS_DOCUMENT.search(hit.block.path):
        return []
    names = re.findall(r"`([A-Za-z_][\w.]*)`", around)
    return [place for name in dict.fromkeys(names) for place in defined_at(name, corpus.texts)[:1]]


def _reading(corpus: Corpus, hit: Hit, focus_on: str = "") -> Reading:
    lines = corpus.texts[hit.block.path].split("\n")
    focus = hit.line
    if focus_on:
        inside = range(hit.block.first, hit.block.last + 1)
        focus = next((number for number in inside if focus_on in lines[number - 1]), focus)
    first, last = window(hit.block.first, hit.block.last, focus)
    symbol = hit.block.symbol
    document = _IS_DOCUMENT.search(hit.block.path)
    if document or (not symbol and hit.block.first == 1):
        about = paragraph_at(lines, focus).replace('"""', "").strip()
    else:
        about = documented(lines, hit.block.at) if symbol else lines[focus - 1].strip()
    if focus != hit.block.at and not document:
        # The comment that was found says it better than the sentence about the whole.
        about = said_at(lines, focus) or about
    why = f"in “{symbol}”: {about}" if document and symbol else f"`{symbol}`: {about}" if symbol else about
    return Reading(hit.block.path, first, _trimmed(lines, first, last), focus, why.rstrip(": "))


def _read_place(corpus: Corpus, place: Place, around: int = 0) -> Reading:
    lines = corpus.texts[place.path].split("\n")
    if around:
        first, last = max(1, place.line - around), min(len(lines), place.line + around)
        return Reading(place.path, first, _trimmed(lines, first, last), place.line, "")
    following = [each.line for each in definitions(place.path, lines) if each.line > place.line]
    first, last = window(place.line, (following[0] - 1 if following else len(lines)), place.line)
    symbol = next((each.symbol for each in blocks_of(place.path, lines) if each.at == place.line), "")
    why = f"`{symbol}`: {documented(lines, place.line)}" if symbol else documented(lines, place.line)
    return Reading(place.path, first, _trimmed(lines, first, last), place.line, why.rstrip(": "))


def _also(corpus: Corpus, hits: Sequence[Hit], readings: Sequence[Reading]) -> tuple[str, ...]:
    kept: list[str] = []
    for hit in hits[1:8]:
        seen = any(each.path == hit.block.path and each.first <= hit.line <= each.last for each in readings)
        if not seen and hit.score >= 0.35 * hits[0].score and hit.coverage >= _SURE - 0.1:
            kept.append(_line_of(corpus, hit))
    for reading in readings:
        for name in constants_in(corpus.texts[reading.path].split("\n")[reading.focus - 1]):
            kept += [
                f"{place}  {place.text}"
                for place in defined_at(name, corpus.texts)[:1]
                if not any(each.path == place.path and each.first <= place.line <= each.last for each in readings)
            ]
    return tuple(dict.fromkeys(kept))[:_ALSO]


def _line_of(corpus: Corpus, hit: Hit) -> str:
    text = corpus.texts[hit.block.path].split("\n")[hit.line - 1].strip()
    shown = text if len(text) <= 120 else text[:119] + "…"
    return f"{hit.block.path}:{hit.line}  {shown}" + (f"  (in `{hit.block.symbol}`)" if hit.block.symbol else "")


def _text_of(corpus: Corpus, hit: Hit) -> str:
    return "\n".join(corpus.texts[hit.block.path].split("\n")[hit.block.first - 1 : hit.block.last])


def _near(hit: Hit, place: Place) -> bool:
    return hit.block.path == place.path and hit.block.first - 4 <= place.line <= hit.block.last + 4


def _overlap(one: Reading, other: Reading) -> bool:
    return one.path == other.path and one.first <= other.last and other.first <= one.last


def _trimmed(lines: Sequence[str], first: int, last: int) -> int:
    while last > first and not lines[last - 1].strip():
        last -= 1
    return last
