"""The pure parts of the example harness: words, questions, blocks, ranking, values."""

import itertools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from repo_agent.answer import plan, render
from repo_agent.blocks import MAX_BLOCK_LINES, blocks_of, definitions
from repo_agent.question import Intent, parse
from repo_agent.ranking import Corpus, Hit, is_test, kind_factor, rank, recall
from repo_agent.reading import defined_at, documented, excerpt, paragraph_at, prose, said_at, used_at, window
from repo_agent.tree import Tree
from repo_agent.values import values
from repo_agent.words import pieces, stem, stems


def searched(question: str, **files: str) -> tuple[Corpus, list[Hit]]:
    asked = parse(question)
    corpus = recall(asked, [(path.replace("__", "/").replace("_py", ".py"), text) for path, text in files.items()])
    return corpus, rank(asked, corpus)


def answered(question: str, **files: str) -> str:
    corpus, hits = searched(question, **files)
    return "".join(render(plan(parse(question), corpus, hits), corpus.texts))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("retryPolicy", ["retry", "policy"]),
        ("HTTPServer2.max_size", ["http", "server", "2", "max", "size"]),
        ("__init__", ["init"]),
        ("SHA256", ["sha", "256"]),
        ("", []),
    ],
)
def test_identifiers_are_split(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


@pytest.mark.parametrize(
    "words",
    [
        "retry retries retried retrying",
        "cache caches cached caching",
        "lease leases leased leasing",
        "stop stops stopped stopping",
        "query queries",
        "kill kills killed killing",
        "authorize authorized authorization",
    ],
)
def test_forms_of_a_word_have_one_stem(words: str) -> None:
    assert len({stem(word) for word in words.split()}) == 1


def test_other_words_keep_their_own() -> None:
    assert len({stem(word) for word in ("status", "state", "class", "bus", "process", "port", "import")}) == 7


@pytest.mark.parametrize(
    ("text", "intent", "words"),
    [
        ("Where is the retry policy?", Intent.PLACE, ["retry", "policy"]),
        ("How long does the lane linger?", Intent.VALUE, ["lane", "linger"]),
        ("What is the default port?", Intent.VALUE, ["default", "port"]),
        ("Who calls `Queue.reap`?", Intent.USES, ["Queue", "reap"]),
        ("Where is kill_leftovers used?", Intent.USES, ["kill", "leftovers"]),
        ("Why is it shielded?", Intent.WHY, ["shielded"]),
        ("What can you do?", Intent.OVERVIEW, []),
        ("", Intent.OVERVIEW, []),
    ],
)
def test_questions_are_taken_apart(text: str, intent: Intent, words: list[str]) -> None:
    question = parse(text)
    assert (question.intent, [term.word for term in question.terms]) == (intent, words)


def test_names_and_words_in_capitals_must_be_there() -> None:
    question = parse("Does the store publish `jobs.done` to Kafka or call next_run?")
    assert question.names == ("jobs.done", "next_run")
    assert {term.word for term in question.terms if term.specific} == {"jobs", "done", "Kafka", "next", "run"}
    assert not parse("Publishing happens where?").terms[0].specific


def test_a_question_that_points_takes_the_subject_of_the_one_before() -> None:
    question = parse("and who calls it?", ["Where is Queue.reap?"])
    assert question.names == ("Queue.reap",)
    assert "reap" in {term.word for term in question.terms}
    assert parse("Who calls fail_job of the queue here?", ["Where is Queue.reap?"]).names == ("fail_job",)


def test_a_question_of_any_length_and_content_is_parsed() -> None:
    assert len(parse("word " * 1_000_000 + "`" * 5000 + "\0").terms) <= 24
    assert parse("where is " + "a.b" * 2000).terms


PYTHON = '''"""Head."""

LIMIT = 3


class Queue:
    """Jobs."""

    # Puts back.
    @property
    def reap(self):
        return 1

    async def claim(self):
        return 2


def main():
    pass
'''


def test_blocks_cover_a_file_and_carry_qualified_names() -> None:
    lines = PYTHON.split("\n")
    blocks = blocks_of("a.py", lines)
    assert [(block.symbol, block.first, block.at) for block in blocks] == [
        ("", 1, 0),
        ("Queue", 6, 6),
        ("Queue.reap", 9, 11),
        ("Queue.claim", 14, 14),
        ("main", 18, 18),
    ]
    covered = {number for block in blocks for number in range(block.first, block.last + 1)}
    assert covered == set(range(1, len(lines) + 1))


def test_long_blocks_are_cut_with_an_overlap() -> None:
    lines = ["def long():"] + ["    work()"] * 200
    blocks = blocks_of("a.py", lines)
    assert all(block.symbol == "long" and block.last - block.first < MAX_BLOCK_LINES for block in blocks)
    assert all(second.first < first.last for first, second in itertools.pairwise(blocks))
    assert blocks[-1].last == 201


@pytest.mark.parametrize(
    ("path", "text", "names"),
    [
        ("a.go", "func (p *Pool) Run(ctx) {\nfunc New() *Pool {\ntype Pool struct {", ["Pool.Run", "New", "Pool"]),
        ("a.ts", "export class A {\n  async load() {\nexport const f = async () => {\nif (x) {", ["A", "load", "f"]),
        ("a.rs", "pub fn run() {\nimpl Pool {\npub(crate) struct Job;", ["run", "Pool", "Job"]),
        ("a.java", "public class A {\n  private static int size(int x) {\n  return f(x);", ["A", "size"]),
        ("a.proto", "message Job {\nservice Jobs {\n  rpc Claim(A) returns (B);", ["Job", "Jobs", "Claim"]),
        ("a.c", "static int job_run(struct job *j)\n{\nif (x) {", ["job_run"]),
        ("a.md", "# One\n```\n# not a heading\n```\n## Two", ["One", "Two"]),
        ("Makefile", "run: build\n\techo", ["run"]),
        ("a.json", '{"def": 1}', []),
    ],
)
def test_definitions_are_seen_in_many_languages(path: str, text: str, names: list[str]) -> None:
    assert [each.name for each in definitions(path, text.split("\n"))] == names


def test_rare_words_and_names_count_more() -> None:
    filler = {f"m{number}_py": "def job():\n    return job()\n" for number in range(20)}
    _, hits = searched("where does a job get reaped", **filler, queue_py="def reap():\n    return job\n")
    assert (hits[0].block.path, hits[0].block.symbol, hits[0].line) == ("queue.py", "reap", 1)
    assert hits[0].coverage > 0.9


def test_code_comes_before_tests_unless_tests_are_asked_for() -> None:
    files = {"src__retry_py": "def retry():\n    pass\n", "tests__test_retry_py": "def test_retry():\n    retry()\n"}
    assert searched("where is retry", **files)[1][0].block.path == "src/retry.py"
    assert searched("where is the test of retry", **files)[1][0].block.path == "tests/test_retry.py"
    assert is_test("a/tests/b.py")
    assert not is_test("a/latest.py")
    assert kind_factor("gen/x_pb2.py", parse("x")) < kind_factor("x.py", parse("x"))


def test_what_is_written_for_people_weighs_more_than_code() -> None:
    told = "def first():\n    # The retry of a commit.\n    return go()\n"
    done = "def second():\n    retry = commit\n    return go()\n"
    _, hits = searched("where is the retry of a commit", a_py=done, z_py=told)
    assert [hit.block.symbol for hit in hits[:2]] == ["first", "second"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('"""Head\nof it."""\nx = 1  # no\n# one\n// two\n-- three\ny -= 1\n#!/bin/sh', "11.111.."),
        ('SQL = """\nSELECT 1\n"""\ndef f():\n    """Doc."""\n    pass', "....1."),
    ],
)
def test_comments_and_docstrings_are_written_for_people(text: str, told: str) -> None:
    assert "".join(".1"[each] for each in prose(text.split("\n"))) == told


def test_a_definition_comes_before_what_mentions_it() -> None:
    mentions = "def other():\n    # As the retry policy says: retry, policy.\n    retry(policy)\n"
    _, hits = searched("where is the retry policy", a_py=mentions, z_py="class RetryPolicy:\n    times = 3\n")
    assert hits[0].block.symbol == "RetryPolicy"


def test_a_sample_in_a_document_that_asks_the_same_does_not_answer() -> None:
    source = "def other():\n    pass\n\n\ndef drive():\n    # Retries as the policy of the store says.\n    pass\n"
    document = '# Use\n\n```console\n$ chat "Where is the retry policy?"\n```\n\n~~~\nretry policy\n~~~\n'
    _, hits = searched("where is the retry policy", **{"guide.md": document, "z.py": source})
    assert hits[0].block.symbol == "drive"
    told = "# Use\n\nThe retry policy waits twice as long each time.\n"
    _, hits = searched("where is the retry policy", **{"guide.md": told, "a.md": document})
    assert hits[0].block.path == "guide.md"


def test_who_asks_where_is_shown_source_before_documents() -> None:
    where, what = parse("where does a retry wait"), parse("what does a retry wait for")
    assert kind_factor("README.md", where) < kind_factor("README.md", what) < kind_factor("a.py", where)
    assert kind_factor("README.md", parse("where is the documentation of retry")) == 1.0


def test_no_word_stands_for_another() -> None:
    assert searched("where is the backoff", a_py="def retry():\n    pass\n")[1] == []


def test_what_a_program_wrote_comes_last() -> None:
    body = "class RetryPolicy:\n    retry = 1\n"
    _, hits = searched("where is the retry policy", a_py="# Code generated by x. DO NOT EDIT.\n" + body, z_py=body)
    assert hits[0].block.path == "z.py"


def test_short_words_are_not_found_inside_others() -> None:
    corpus, _ = searched("which port", a_py="import support\n", b_py="PORT = 1\n")
    assert corpus.frequency["port"] == 1


def test_ranking_stops_when_told() -> None:
    question = parse("where is retry")
    texts = [(f"a{number}.py", "def retry(): ...") for number in range(9)]
    seen: list[bool] = []

    def stopped() -> bool:
        seen.append(True)
        return len(seen) > 3

    assert recall(question, texts, stopped).files == 3
    assert rank(question, recall(question, texts), lambda: True) == []
    assert rank(parse(""), Corpus({}, {}, 0)) == []


def test_a_value_is_found_by_name_unit_and_use() -> None:
    text = (
        "LEASE_COUNT = 9\nLEASE_SECONDS = 45\nLEASE_NAME = 'x'\ndef hold_lease():\n    return now() + LEASE_SECONDS\n"
    )
    question = parse("How long is a lease held?")
    corpus, hits = searched(question.text, queue_py=text)
    assert [value.name for value in values(question, corpus, hits)][:2] == ["LEASE_SECONDS", "LEASE_COUNT"]
    assert answered(question.text, queue_py=text).startswith("`LEASE_SECONDS = 45`, at queue.py:2.")


def test_local_variables_are_no_values() -> None:
    text = "def f():\n    lease = 3\n\nclass C:\n    lease: int = 4\n"
    question = parse("How long is the lease?")
    corpus, hits = searched(question.text, a_py=text)
    assert [str(value.place) for value in values(question, corpus, hits)] == ["a.py:5"]


def test_unknown_names_are_not_guessed_at() -> None:
    text = answered("Where is PermissionChecker defined?", a_py="class PermissionTable:\n    checker = 1\n")
    assert text.startswith("I found no answer to that in this tree. Nothing in it is called `PermissionChecker`.")
    assert "a.py:1" in text


def test_no_hit_at_all_is_said() -> None:
    assert "None of its 1 files" in answered("how do whales migrate south", a_py="x = 1\n")


def test_uses_leave_out_the_definition_and_comments() -> None:
    texts = {"a.py": "def reap():\n    pass\n# reap\nx = reap()\n", "b.py": "from a import reap\nreaper = 1\n"}
    assert [str(place) for place in used_at("Queue.reap", texts.items())] == ["a.py:4", "b.py:1"]
    assert used_at("reap", texts.items(), limit=1)[0].line == 4
    assert [str(place) for place in defined_at("reap", texts)] == ["a.py:1"]
    assert [str(place) for place in defined_at("x", texts)] == ["a.py:4"]


def test_a_name_nobody_uses_is_said_to_be_unused() -> None:
    assert answered("Who calls `lonely`?", a_py="def lonely():\n    pass\n").startswith(
        "Nothing in this tree uses `lonely`. It is defined at a.py:1."
    )


def test_excerpts_have_numbers_and_bounds() -> None:
    assert excerpt(["a", "", "x" * 500], 9, 9) == ""
    shown = excerpt(["a"] * 8 + ["b", "x" * 500], 9, 10)
    assert shown.startswith(" 9 | b\n10 | xxx")
    assert shown.endswith("…")
    assert window(1, 5, 3) == (1, 5)
    assert window(1, 100, 2) == (1, 14)
    first, last = window(1, 100, 50)
    assert first <= 50 <= last


def test_documentation_is_found_where_it_stands() -> None:
    assert documented(["def f():", '    """Does it. More."""'], 1) == "Does it."
    assert documented(["// Run works until done.", "// Then ends.", "func Run() {"], 3) == "Run works until done."
    assert documented(["x = 1", "def f():", "    return 1"], 2) == ""
    assert said_at(["x = 1", "# One half", "# and the other.", "y"], 3) == "One half and the other."
    assert said_at(["x = 1"], 1) == ""
    assert paragraph_at(["a", "", "one", "two", "", "b"], 3) == "one two"
    assert paragraph_at(["- one", "- two"], 2) == "- two"


def test_a_tree_reads_nothing_outside_of_it(tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_text("x")
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / "a" / "b.py").write_text("y")
    (root / "out").symlink_to(tmp_path)
    tree = Tree(root)
    assert tree.read("a/b.py") == "y"
    for path in ("../secret.py", "out/secret.py", "a/../../secret.py", str(tmp_path / "secret.py"), "a", "", "no.py"):
        assert tree.read(path) is None
    with pytest.raises(NotADirectoryError):
        Tree(root / "a" / "b.py")


def test_stems_of_any_text() -> None:
    assert stems("") == ()
    assert stems("é你\0\ud83d") == ()
