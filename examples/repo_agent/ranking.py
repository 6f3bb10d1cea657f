"""Which places of a tree answer a question: pure functions over texts.

Two steps. `recall` looks through all files for the beginnings of words, cheaply, and keeps those that promise most.
`rank` takes their blocks apart into words and scores them by BM25, weighing what is named like the question higher.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from repo_agent.blocks import Block, blocks_of
from repo_agent.question import Intent, Question, Term
from repo_agent.reading import prose, samples
from repo_agent.words import stem, stems

MAX_CANDIDATES = 60

_K1 = 1.4
_B = 0.6
# What is written for people says more about what a place is for than the code that does it.
_PROSE_WEIGHT = 2.0
# What tests, generated code and samples in documents count for: they repeat the words of what they are about, up to
# whole questions.
SELDOM = 0.2
_SYMBOL_WEIGHT = 3.0
_FOLDER_WEIGHT = 0.8
_NAME_WEIGHT = 1.8
_ABOUT_WEIGHT = 0.6

_TESTS = re.compile(
    r"(^|/)(tests?|testing|spec|__tests__|testdata|fixtures?(_\w+)?|examples?)(/|$)|(^|/)test_|_test\.|\.(test|spec)\."
)
_DOCUMENT = re.compile(r"\.(md|rst|txt|adoc|markdown)$", re.IGNORECASE)
_GENERATED = re.compile(
    r"_pb2(_grpc)?\.pyi?$|\.pb\.go$|\.generated\.|(^|/)(gen|generated|vendor|third_party)/|CHANGELOG"
)
_GENERATED_MARK = re.compile(r"generated (by|code|from)|do not edit", re.IGNORECASE)
_WHERE = re.compile(r"\bwhere\b", re.IGNORECASE)
_DATA = re.compile(r"\.(json|ya?ml|csv|toml|ini|cfg|lock|xml|html?|css)$", re.IGNORECASE)
_ASSIGNED = re.compile(r"^\s*(?:const\s+|var\s+|let\s+|self\.)?([A-Za-z_]\w*)\s*(?::[^=\n]+)?\s*:?=\s*(?![=\s])")


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts of a tree that may answer a question.

    texts: by path, the most promising first. frequency: in how many files of the whole tree a term's word occurs, by
    stem. files: how many files there are in the tree.
    """

    texts: Mapping[str, str]
    frequency: Mapping[str, int]
    files: int

    def rarity(self, term: Term) -> float:
        """How much it says that a place has this term."""
        count = self.frequency.get(term.stem, 0)
        if count == 0 and not term.specific:
            # A plain word that the tree does not have is more often the asker's way to put it than the thing itself.
            return term.weight * min(1.0, self._rarity(max(1, self.files // 8)))
        return term.weight * max(0.05, self._rarity(count))

    def _rarity(self, count: int) -> float:
        return math.log(1 + (self.files - count + 0.5) / (count + 0.5))


@dataclass(frozen=True, slots=True)
class Hit:
    """A place that may answer.

    line: the one that says most. score: to compare hits of one question. coverage: the share, 0 to 1, of what the
    question asks for that is found here, rare words counting more.
    """

    block: Block
    line: int
    score: float
    coverage: float
    found: frozenset[str] = field(default_factory=frozenset)


def recall(question: Question, texts: Iterable[tuple[str, str]], stopped: Callable[[], bool] = lambda: False) -> Corpus:
    """The files that promise most, out of all. Stops early when `stopped` says so."""
    wanted = {term.stem: _counter(term.stem) for term in question.terms}
    frequency = dict.fromkeys(wanted, 0)
    counted: list[tuple[str, str, dict[str, float]]] = []
    files = 0
    for path, text in texts:
        if stopped():
            break
        files += 1
        low, low_path = text.lower(), path.lower()
        counts: dict[str, float] = {}
        for key, occurrences in wanted.items():
            count = occurrences(low) + 3 * (occurrences(low_path) > 0)
            if count:
                frequency[key] += 1
                counts[key] = 1 + math.log(count)
        if counts:
            counted.append((path, text, counts))
    corpus = Corpus({}, frequency, files)
    rarity = {term.stem: corpus.rarity(term) for term in question.terms}

    def promise(entry: tuple[str, str, dict[str, float]]) -> float:
        path, _, counts = entry
        return kind_factor(path, question) * sum(rarity[key] * min(count, 4.0) for key, count in counts.items())

    counted.sort(key=lambda entry: (-promise(entry), entry[0]))
    return Corpus({path: text for path, text, _ in counted[:MAX_CANDIDATES]}, frequency, files)


def rank(question: Question, corpus: Corpus, stopped: Callable[[], bool] = lambda: False) -> list[Hit]:
    """The blocks that have something of the question, best first."""
    terms = question.terms
    if not terms:
        return []
    measured: list[tuple[Block, list[str], list[float], dict[str, float], int]] = []
    in_file: dict[str, set[str]] = {}
    generated: dict[str, bool] = {}
    for path, text in corpus.texts.items():
        if stopped():
            break
        lines = text.split("\n")
        blocks = blocks_of(path, lines)
        weight_of = _line_weights(path, lines)
        on_path = _on_path(path)
        about = _about(blocks, lines)
        start = len(measured)
        for block in blocks:
            body = lines[block.first - 1 : block.last]
            of_lines = weight_of[block.first - 1 : block.last]
            weights, length = _weights(question, block, body, of_lines, on_path, about)
            if weights:
                measured.append((block, body, of_lines, weights, length))
        in_file[path] = {
            key for _, _, _, weights, _ in measured[start:] for key, count in weights.items() if count >= 1
        }
        generated[path] = is_generated(text)
    if not measured:
        return []
    mean = sum(length for *_, length in measured) / len(measured)
    rarity = {term.stem: corpus.rarity(term) for term in terms}
    everything = sum(rarity.values())
    hits: list[Hit] = []
    for block, body, of_lines, weights, length in measured:
        norm = _K1 * (1 - _B + _B * length / mean)
        score = sum(rarity[key] * count * (_K1 + 1) / (count + norm) for key, count in weights.items())
        coverage = sum(rarity[key] * min(1.0, count) for key, count in weights.items()) / everything
        line, bonus = _focus(question, block, body, of_lines, rarity)
        # A place in a file that has all of it is likelier than one in a file that shares a word.
        around = sum(rarity[key] for key in in_file[block.path]) / everything
        score = (score + bonus) * (0.35 + 0.65 * coverage) * (0.6 + 0.4 * around)
        score *= SELDOM if generated[block.path] else kind_factor(block.path, question)
        if not block.symbol and block.first == 1 and question.intent is not Intent.WHY:
            # What stands at the head of a file speaks of all of it, and of nothing in particular.
            score *= 0.5
        hits.append(Hit(block, line, score, coverage, frozenset(weights)))
    hits.sort(key=lambda hit: (-hit.score, hit.block.path, hit.block.first))
    return hits


def kind_factor(path: str, question: Question) -> float:
    """How much a file counts by what it is: code before documents before tests, unless they are asked for."""
    asked = {term.stem for term in question.terms}
    if _GENERATED.search(path):
        return SELDOM
    if _TESTS.search(path):
        return 1.0 if asked & {"test", "exampl"} else SELDOM
    if _DOCUMENT.search(path):
        # It tells what happens and why. Where something is and how much it is, the source itself says.
        in_source = question.intent is Intent.VALUE or _WHERE.search(question.text)
        return 1.0 if asked & {"doc", "document", "readm"} else 0.6 if in_source else 0.75
    return 0.7 if _DATA.search(path) else 0.8 if path.endswith(".proto") else 1.0


def is_test(path: str) -> bool:
    """Whether a file is a test, an example, or what one of them needs."""
    return _TESTS.search(path) is not None


def is_generated(text: str) -> bool:
    """Whether a file says at its head that a program wrote it."""
    return _GENERATED_MARK.search(text[:600]) is not None


def names_value(line: str) -> str | None:
    """The name that a line gives a value to, such as `LEASE_SECONDS` in `LEASE_SECONDS = 45.0`."""
    match = _ASSIGNED.match(line)
    return match[1] if match else None


def _counter(each: str) -> Callable[[str], int]:
    """Counts in a text of lower case how often a word begins like a stem."""
    # A stem ends where its forms begin to differ, but for `y`, which becomes `ies`.
    beginning = each[:-1] if each.endswith("y") and len(each) > 4 else each
    if len(beginning) > 4:
        return lambda text: text.count(beginning)
    # A short one is inside too many others: `port` in `import` and `support`.
    pattern = re.compile(rf"(?<![a-z]){re.escape(beginning)}")
    return lambda text: len(pattern.findall(text))


def _on_path(path: str) -> dict[str, float]:
    """What the words of a path count: those of the file's own name more."""
    folders, _, name = path.rpartition("/")
    return dict.fromkeys(stems(folders), _FOLDER_WEIGHT) | dict.fromkeys(stems(name), _NAME_WEIGHT)


def _about(blocks: Sequence[Block], lines: Sequence[str]) -> set[str]:
    """The words that the head of a file describes it with."""
    if not blocks or blocks[0].symbol:
        return set()
    head: set[str] = set()
    for line in lines[: min(blocks[0].last, 12)]:
        if re.match(r"\s*(import|from|use|package|#include|const|var|let)\b", line):
            break
        head.update(stems(line))
    return head


def _weights(
    question: Question,
    block: Block,
    body: Sequence[str],
    of_lines: Sequence[float],
    on_path: Mapping[str, float],
    about: set[str],
) -> tuple[dict[str, float], int]:
    """How often each term occurs in a block, what is named counting more, and the block's length in words."""
    counts: dict[str, float] = {}
    length = 0
    for line, weight in zip(body, of_lines, strict=True):
        found = stems(line) if len(line) <= 2_000 else ()
        length += len(found)
        for each in found:
            counts[each] = counts.get(each, 0.0) + weight
    in_symbol = stems(block.symbol)
    last = block.symbol.rpartition(".")[2]
    whole_last = {stem(last), *stems(last)}
    weights: dict[str, float] = {}
    for term in question.terms:
        weight = counts.get(term.stem, 0.0)
        weight += _SYMBOL_WEIGHT * (term.stem in whole_last) + _SYMBOL_WEIGHT / 2 * (term.stem in in_symbol)
        weight += on_path.get(term.stem, 0.0) + _ABOUT_WEIGHT * (term.stem in about)
        if weight:
            weights[term.stem] = weight
    return weights, max(length, 8)


def _line_weights(path: str, lines: Sequence[str]) -> list[float]:
    """What a word counts in each line: more in what is written for people, less in a sample."""
    weights = [_PROSE_WEIGHT if told else 1.0 for told in prose(lines)]
    if _DOCUMENT.search(path):
        weights = [SELDOM if sample else weight for sample, weight in zip(samples(lines), weights, strict=True)]
    return weights


def _focus(
    question: Question, block: Block, body: Sequence[str], of_lines: Sequence[float], rarity: Mapping[str, float]
) -> tuple[int, float]:
    """The line of a block that says most, and what it adds to the block's score."""
    best, best_score = 0, -1.0
    defined = stems(block.symbol)
    for index, line in enumerate(body):
        if not line.strip() or len(line) > 2_000:
            continue
        words = set(stems(line))
        score = sum(rarity[term.stem] for term in question.terms if term.stem in words)
        score *= _line_factor(question, line) * min(1.0, of_lines[index])
        if score > best_score:
            best, best_score = index, score
    if block.first <= block.at <= block.last and question.intent in {Intent.PLACE, Intent.WHY}:
        named = sum(rarity[term.stem] for term in question.terms if term.stem in defined)
        if named and named >= 0.5 * best_score:
            return block.at, max(best_score, 0.0) + named
    return block.first + best, max(best_score, 0.0)


def _line_factor(question: Question, line: str) -> float:
    stripped = line.strip()
    comment = stripped.startswith(("#", "//", "*", "--", '"""', "/*"))
    if question.intent is Intent.VALUE:
        if names_value(line) and re.search(r"\d|[\"']", line):
            return 1.6
        return 1.2 if re.search(r"\d", line) and not comment else 0.9
    if question.intent is Intent.WHY:
        return 1.4 if comment else 1.0
    return 0.9 if stripped.startswith(("import ", "from ", "use ", "#include")) else 1.0
