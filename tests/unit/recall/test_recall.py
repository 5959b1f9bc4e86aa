"""`recall` keeps what others break: what looks alike is kept apart, filters search, long texts and word forms are found."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy import Toy, embedded, ids, vectors

from agentmem import Conflict, NewNote, Store
from agentmem.recall import chains

Opens = Callable[..., Store]

FILLER = "The quarterly report describes nothing of interest to anybody here. "


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Host 10.0.0.1 answers on port 443", "Host 10.0.0.2 answers on port 443"),
        ("a.example.com serves the old site", "b.example.com serves the old site"),
        ("Rate limiting is enabled on the API gateway", "Rate limiting is not enabled on the API gateway"),
        ("The connection limit is 10 for each tenant", "The connection limit is 20 for each tenant"),
        ("接口 /login 没有开启限流", "接口 /login 已经开启限流"),
    ],
)
def test_s1_things_that_differ_in_one_word_are_both_shown(english: Store, one: str, other: str) -> None:
    """Two facts that differ in an address, a host, a negation or a number are two hits, and neither names the other."""
    made = {english.notes.add("fact", title).id for title in (one, other)}
    found = english.recall(one)
    assert set(ids(found)) == made
    assert all(hit.repeats == () for hit in found)


def test_s1_entities_of_the_same_shape_are_all_shown(plain: Store) -> None:
    """Entities are never folded, whatever their attributes have in common."""
    plain.entities.put_many("host", keys=["a.example.com", "b.example.com"], attrs={"os": "linux", "role": "frontend"})
    assert len(plain.recall("linux frontend")) == 2


@pytest.mark.parametrize("embedder", [None, Toy()], ids=["words", "meaning"])
def test_s2_a_kind_is_searched_not_cut_out_of_what_was_found(opened: Opens, embedder: Any) -> None:
    """Where 200 facts match well and 3 lessons weakly, `kind="lesson"` finds all three."""
    store = opened(embedder=embedder)
    store.notes.add_many([NewNote("fact", f"Cache eviction policy of service {number}") for number in range(200)])
    titles = ("Eviction surprises everybody once", "Never tune eviction by hand", "Measure before eviction changes")
    lessons = {store.notes.add("lesson", title, body=FILLER * 5).id for title in titles}
    embedded(store)
    assert set(ids(store.recall("cache eviction policy", kind="lesson"))) == lessons


def test_s3_the_end_of_a_long_body_is_found_by_words(plain: Store) -> None:
    """A body of 60,000 characters is found by a word at its very end, and the snippet shows that place."""
    plain.notes.add("fact", "Another one", body=FILLER)
    note = plain.notes.add("fact", "Log of the night", body=FILLER * 900 + "The zeppelin landed.")
    found = plain.recall("zeppelin")
    assert ids(found) == [note.id]
    assert "zeppelin" in found.hits[0].snippet


def test_s3_the_end_of_a_long_body_is_found_by_meaning(meant: Store) -> None:
    """The same by meaning: every window of a text has its vector, and the snippet is of the nearest one."""
    meant.notes.add("fact", "Another one", body=FILLER)
    body = FILLER * 900 + "quick automobile, quick automobile, quick automobile, quick automobile " * 10
    note = meant.notes.add("fact", "Log of the night", body=body)
    embedded(meant)
    found = meant.recall("fast cars")
    assert ids(found) == [note.id]
    assert found.hits[0].why.words == 0
    assert "quick automobile" in found.hits[0].snippet
    assert len([record for record, _ in vectors(meant) if record == note.id]) > 50


def test_s3_the_end_of_a_long_body_is_found_by_the_model_in_the_package(english: Store) -> None:
    """So it is with the real model, which reads 256 tokens at once."""
    english.notes.add("fact", "Another one", body=FILLER)
    told = "Users cannot sign in because the password check rejects every account. "
    note = english.notes.add("fact", "Log of the night", body=FILLER * 60 + told * 6)
    embedded(english)
    found = english.recall("authentication failures")
    assert ids(found)[:1] == [note.id]
    assert "sign in" in found.hits[0].snippet


@pytest.mark.parametrize(
    ("title", "query"),
    [
        ("The café opens at nine", "cafe"), ("The cafe opens at nine", "café"), ("Ёлка стоит в холле", "елка"),
        ("Ёлка стоит в холле", "ёлка"), ("Актёры репетируют вечером", "актеры"), ("Naïve Bayes wins", "NAIVE"),
        ("Straße gesperrt", "strasse"), ("ＡＰＩ gateway", "api"),
    ],
)  # fmt: skip
def test_s4_accents_fold_alike_in_index_and_score(plain: Store, title: str, query: str) -> None:
    """A word is found with and without its accents, ё as е, and counts in full."""
    note = plain.notes.add("fact", title)
    found = plain.recall(query)
    assert ids(found) == [note.id]
    assert found.hits[0].why.words > 0.5


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("running", "run"), ("failures", "failure"), ("failed", "fails"), ("indexes", "index"), ("migrations", "migrate"),
        ("queries", "query"), ("run", "running"), ("index", "indexes"),
    ],
)  # fmt: skip
def test_s5_word_forms_are_found(plain: Store, written: str, asked: str) -> None:
    """An English word is found by its other forms."""
    note = plain.notes.add("fact", f"Something {written} here")
    assert ids(plain.recall(asked)) == [note.id]


@pytest.mark.parametrize(
    ("written", "asked"), [("interesting", "interest"), ("portable", "port"), ("classification", "class")]
)
def test_s5_the_form_itself_comes_before_a_word_that_only_begins_like_it(
    plain: Store, written: str, asked: str
) -> None:
    """A word that merely begins alike never stands above the word itself."""
    plain.notes.add("fact", f"The {written} thing")
    exact = plain.notes.add("fact", f"The {asked} thing")
    assert ids(plain.recall(asked))[0] == exact.id


@pytest.mark.parametrize(
    ("title", "query"),
    [
        ("昨天数据库连接失败了三次", "连接"), ("昨天数据库连接失败了三次", "数据库连接"), ("用Redis做缓存", "Redis"),
        ("用Redis做缓存", "缓存"), ("端口8443被占用", "8443"), ("Answer is 42", "42"), ("サーバーが停止した", "停止"),
        ("데이터베이스 연결 실패", "연결"), ("错误码E1234出现", "E1234"), ("昨天数据库连接失败了三次", "库"),
    ],
)  # fmt: skip
def test_s6_words_inside_a_run_and_digits_are_found(english: Store, title: str, query: str) -> None:
    """A word inside Chinese, Japanese or Korean, an identifier touching it, a single character, and digits alone."""
    english.notes.add("fact", "Nothing of that")
    note = english.notes.add("fact", title)
    assert ids(english.recall(query))[:1] == [note.id]


def test_s6_digits_alone_take_part_by_meaning(meant: Store) -> None:
    """A query of digits is embedded as every other."""
    meant.notes.add("fact", "Answer is 42")
    answer = meant.recall("42")
    assert (answer.meaning, answer.hits[0].why.meaning is not None) == ("used", True)


@pytest.mark.parametrize("others_first", [True, False])
def test_s7_rarity_is_counted_within_the_project(opened: Opens, others_first: bool) -> None:
    """What another project is full of does not make a word common here, nor rare what this one is full of."""
    here = opened(embedder=None)
    there = here.in_project("other")

    def fill_other() -> None:
        there.notes.add_many([NewNote("fact", f"Scanner finding number {n} about gateways") for n in range(700)])

    if others_first:
        fill_other()
    here.notes.add_many([NewNote("fact", f"Deployment of gateways in week {n}") for n in range(60)])
    here.notes.add_many([NewNote("fact", f"Something else in week {n}") for n in range(60)])
    one = here.notes.add("fact", "The scanner stopped")
    many = here.notes.add("fact", "The gateways stopped")
    if not others_first:
        fill_other()
    held = {hit.id: hit.why.words for hit in here.recall("scanner gateways", limit=100)}
    assert held[one.id] > 2 * held.get(many.id, 0.0)


def test_s7_what_is_common_elsewhere_makes_candidates_here(opened: Opens) -> None:
    """A word that thousands of records of another project hold finds the one record here, beside a rarer word too."""
    here = opened(embedder=None)
    here.in_project("other").notes.add_many([NewNote("fact", f"Gateway {n} of the unicorn") for n in range(1100)])
    one = here.notes.add("fact", "The gateway is slow")
    here.notes.add("fact", "The zebra is fast")
    assert one.id in ids(here.recall("gateway zebra"))
    assert ids(here.recall("gateway unicorn")) == [one.id]


def test_a_kind_that_holds_only_the_common_word_is_found(plain: Store) -> None:
    """Where the rare word of a query stands in other kinds alone, the common one finds the lesson."""
    plain.notes.add_many([NewNote("fact", f"Gateway {n} answers") for n in range(1100)])
    plain.notes.add("fact", "Zeppelin")
    lesson = plain.notes.add("lesson", "Restart the gateway twice")
    assert ids(plain.recall("zeppelin gateway", kind="lesson")) == [lesson.id]


def test_common_words_that_never_meet_are_found_apart(plain: Store) -> None:
    """Of two words that thousands of records hold, but none both, each finds its records."""
    plain.notes.add_many([NewNote("fact", f"{word} {n}") for word in ("gateway", "scanner") for n in range(1050)])
    assert len(plain.recall("gateway scanner")) == 8


def test_what_a_whole_project_is_about_is_found(plain: Store) -> None:
    """A word that stands in every record still finds them, when the other word of the query stands nowhere."""
    plain.notes.add_many([NewNote("fact", f"The login form, part {n}") for n in range(12)])
    assert len(plain.recall("login problems")) == 8


def test_s7_what_stands_only_in_entities_is_not_always_the_rarest(plain: Store) -> None:
    """Entities count too: a word that all hosts have weighs less than one that a single note has."""
    plain.entities.put_many("host", keys=[f"h{n}" for n in range(80)], attrs={"os": "linux"})
    plain.notes.add_many([NewNote("fact", f"Some remark {n}") for n in range(20)])
    note = plain.notes.add("fact", "Hardening guide")
    answer = plain.recall("linux hardening")
    assert ids(answer)[0] == note.id


def test_s8_a_whole_chain_points_to_its_end(plain: Store) -> None:
    """Of a, superseded by b, by c, by d, all but d name d and stand below it."""
    chain = [
        plain.notes.add("decision", f"Queue: use {name} for messages").id for name in ("kafka", "nats", "redis", "sqs")
    ]
    for older, newer in itertools.pairwise(chain):
        plain.links.add(newer, "supersedes", older)
    found = plain.recall("queue kafka messages")
    assert ids(found)[0] == chain[-1]
    assert {hit.id: hit.superseded_by for hit in found} == {**dict.fromkeys(chain[:3], chain[3]), chain[3]: None}


def test_s8_a_ring_cannot_be_made_and_would_halve_nobody(plain: Store) -> None:
    """A circle of `supersedes` is refused; in a damaged file it overrules none of its records, and the search ends."""
    ring = [plain.notes.add("decision", f"Queue choice {name}").id for name in ("kafka", "nats", "redis")]
    for older, newer in itertools.pairwise(ring):
        plain.links.add(newer, "supersedes", older)
    with pytest.raises(Conflict):
        plain.links.add(ring[0], "supersedes", ring[2])
    with plain.database.write() as connection:
        connection.execute(
            "INSERT INTO link (src, dst, kind, seq, origin) VALUES (?, ?, 'supersedes', 1, 'agent')", (ring[0], ring[2])
        )
    found = plain.recall("queue choice")
    assert len(found) == 3
    assert all(hit.superseded_by is None for hit in found)


def test_s9_no_vector_outlives_its_text(meant: Store) -> None:
    """After a change the old meaning finds nothing, without anything having been embedded again; so after a removal."""
    note = meant.notes.add("fact", "A kitten", body="feline feline")
    chores = meant.notes.add("step", "Chores")
    item = meant.checklists.add(chores, "automobile vehicle").ids[0]
    embedded(meant)
    assert ids(meant.recall("cats")) == [note.id]
    assert ids(meant.recall("cars")) == [item]
    meant.notes.update(note, title="Something else", body="")
    meant.checklists.remove(chores, 1)
    assert note.id not in {record for record, _ in vectors(meant)}
    assert item not in {record for record, _ in vectors(meant)}
    assert ids(meant.recall("cats")) == ids(meant.recall("cars")) == []


def test_s9_a_purged_text_leaves_no_vector(meant: Store) -> None:
    """`redact` and `forget` take the vectors of what they purge, in the file and in memory."""
    one = meant.notes.add("fact", "A kitten")
    two = meant.notes.add("fact", "A feline")
    embedded(meant)
    assert set(ids(meant.recall("cats"))) == {one.id, two.id}
    meant.notes.update(two, title="A spare part")
    meant.forget(one)
    meant.redact(two)
    assert meant.recall("cats").hits == ()
    embedded(meant)
    assert meant.recall("cats").hits == ()


def test_s9_what_changes_no_text_embeds_nothing(opened: Opens) -> None:
    """A confirmation, a tag, a status or a pin makes no vector anew."""
    toy = Toy()
    store = opened(embedder=toy)
    note = store.notes.add("fact", "A kitten", confidence=0.4)
    embedded(store)
    before, seen = vectors(store), len(toy.seen)
    store.confirm(note, confidence=0.9)
    store.notes.update(note, tags=["animal"], pin=True, status="dropped")
    embedded(store)
    assert vectors(store) == before
    assert len(toy.seen) == seen


def test_s10_a_missing_model_fails_once_and_words_go_on(opened: Opens, tmp_path: Path) -> None:
    """A folder without a model: every recall answers by words and says why, and it is looked for only once."""
    folder = tmp_path / "model"
    folder.mkdir()
    store = opened(embedder=folder)
    note = store.notes.add("fact", "The login form")
    first = store.recall("login")
    assert (first.meaning, ids(first)) == ("missing", [note.id])
    assert str(folder) in first.because
    assert "By words only" in first.text
    folder.rmdir()
    assert store.recall("login").because == first.because


def test_s11_many_recalls_at_once_share_the_file(meant: Store) -> None:
    """Recalls in several threads, with writes between, all answer."""
    from concurrent.futures import ThreadPoolExecutor

    made = meant.notes.add_many([NewNote("fact", f"kitten number {n}") for n in range(50)])

    def work(number: int) -> int:
        if number % 4 == 0:
            meant.notes.add("lesson", f"automobile {number}")
        return len(meant.recall("cats", kind="fact", limit=10))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(24))) == [10] * 24
    assert len(made.ids) == 50


def test_s12_checkpoints_items_checks_basis_why_and_attributes_are_found(plain: Store) -> None:
    """Everything that has text is searched, a boolean as the word it is."""
    goal = plain.notes.add("goal", "Work", basis="zulu-basis")
    host = plain.entities.put("host", "web", attrs={"patched": True, "zone": "zulu-zone"})
    plain.entities.mark("host", ["web"], {"tls": "fail"}, detail="zulu-detail")
    item = plain.checklists.add(goal, "zulu-item").ids[0]
    point = plain.checkpoint("zulu-checkpoint", task=goal)
    summary = plain.summarize(goal, work="zulu-work", result="zulu-result")
    tried = plain.attempts.open("Try", task=goal)
    plain.attempts.close(tried, "failed", why="zulu-why")
    for query, expected in {
        "zulu-basis": goal.id, "zulu-zone": host.id, "patched true": host.id, "tls fail": host.id, "zulu-detail": host.id,
        "zulu-item": item, "zulu-checkpoint": point.id, "zulu-work": summary.id, "zulu-result": summary.id,
        "zulu-why": tried.id,
    }.items():  # fmt: skip
        assert ids(plain.recall(query))[:1] == [expected], query


# From the complaints about others


def test_a_question_in_whole_sentences_is_answered(plain: Store) -> None:
    """Words are not all required: a natural question finds the note that holds some of them."""
    note = plain.notes.add("fact", "The deploy key is rotated every Monday")
    plain.notes.add("fact", "Lunch is at noon")
    assert ids(plain.recall("could you tell me on what day we usually rotate that deploy key, please?"))[:1] == [
        note.id
    ]


@pytest.mark.parametrize(
    "query", ["rm -rf", "C++", "my-service-name", "foo_bar.baz", "C#", ".env", "--force", "a/b/c.py:12"]
)
def test_punctuated_names_are_found_exactly(plain: Store, query: str) -> None:
    """Names with hyphens and signs give neither an error nor nothing."""
    note = plain.notes.add("fact", f"About {query} only")
    plain.notes.add("fact", "About C, rf, env, force and services")
    assert ids(plain.recall(query))[0] == note.id


@pytest.mark.parametrize("query", ["kitten", "特斯拉", "zx9"])
def test_what_only_words_find_is_not_lost_beside_meaning(meant: Store, query: str) -> None:
    """A hit by words alone stays, however many records are nearer by meaning."""
    note = meant.notes.add("fact", f"{FILLER} {query} {FILLER}"[:400], body=FILLER * 20)
    meant.notes.add_many([NewNote("fact", f"feline feline {n}") for n in range(200)])
    embedded(meant)
    assert note.id in ids(meant.recall(query, limit=20))


def test_near_literal_text_is_first(english: Store) -> None:
    """What the query says word for word stands above what is only about the same thing."""
    english.notes.add_many([NewNote("fact", f"Connection errors of the database in region {n}") for n in range(30)])
    note = english.notes.add("fact", "psycopg2.OperationalError: server closed the connection unexpectedly")
    embedded(english)
    assert ids(english.recall("server closed the connection unexpectedly"))[0] == note.id


def test_text_comes_back_as_it_was_written(plain: Store) -> None:
    """Nothing is rewritten, translated or normalised in titles and snippets."""
    title = "Ｎaïve  “Müller” says: 数据库 ≠ DB — TODO(x)"
    plain.notes.add("fact", title, body="Zażółć  gęślą\njaźń")
    hit = plain.recall("Müller").hits[0]
    assert hit.record.title == title
    assert hit.snippet == "Zażółć  gęślą\njaźń"


def test_nothing_recent_pads_an_empty_answer(plain: Store) -> None:
    """What is not relevant is not shown because it is recent, and the answer says that there is nothing."""
    plain.notes.add("fact", "The newest note of all")
    answer = plain.recall("volcano eruption")
    assert (answer.hits, answer.more) == ((), 0)
    assert answer.text.splitlines()[0] == "Nothing relevant"


def test_what_was_forgotten_is_not_found(meant: Store) -> None:
    """A purged note is found neither by its words nor by its meaning."""
    note = meant.notes.add("fact", "The kitten hunter2secret")
    embedded(meant)
    assert ids(meant.recall("hunter2secret")) == ids(meant.recall("feline")) == [note.id]
    meant.forget(note)
    assert meant.recall("hunter2secret").hits == meant.recall("feline").hits == ()


def test_the_successors_of_a_damaged_chain_are_found_in_bounded_steps(plain: Store) -> None:
    """A chain as long as a file may hold is followed to its end."""
    made = plain.notes.add_many([NewNote("fact", f"version {n}") for n in range(200)]).ids
    for older, newer in itertools.pairwise(made):
        plain.links.add(newer, "supersedes", older)
    with plain._binding.reading() as view:
        assert chains.successors(view, made[:3]) == dict.fromkeys(made[:3], made[-1])
