"""What the analysis of text promises of every text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from unicodedata import category

import apsw
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agentmem import text
from agentmem.errors import InvalidInput

ANY_TEXT = st.text(st.characters(), max_size=200)  # Lone surrogates and control characters among them.
PIECES = st.sampled_from(
    re.findall(
        r"\S+",
        """
    The running tests of café ещё Straße 修复 登录接口 函数 東京タワー 안녕하세요 สวัสดี हिन्दी مرحبا ✅ 👍🏽 İstanbul ǅ ŉ
    login_user loginUser HTTPServer XMLHttpRequest2 kebab-case /a/b.py:12 ./x ../y ~/.ssh/id_rsa rm -rf --force --k=v
    C++ C# .NET C/C++ 10.0.0.1 10.0.0.1:8443 [::1]:80 fe80::1%eth0 CVE-2024-1234 v1.2.3-rc1 app-v1.2.3 user@host.test
    *.corp.test /users/{id} /{t}/x /u/<int:id> #123 $HOME ${HOME} 0xdeadbeef ' OR 1=1 don't user’s O'Brien d['k'] f(x)
    https://h.test/a?b=c&d=%20#e a,b;c|d x=y != -> >= ... … — “q” \\\\srv\\share C:\\Temp
    _ __init__ _it_ ** `code` 50% a\u0301
    AND OR NOT NEAR ( ) " ' * ^ + : - { }
    """,
    )
)
MIXED_TEXT = st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=12).flatmap(
    lambda pieces: st.sampled_from(["", " ", "\n"]).map(lambda gap: gap.join(pieces))
)
TEXTS = st.one_of(ANY_TEXT, MIXED_TEXT)
NOT_IN_TOKENS = re.compile("[\\s\"'`\x00-\x1f\x7f]")


class Table:
    """One row of a full-text table, replaced for each example."""

    def __init__(self) -> None:
        self.db = apsw.Connection(":memory:")
        self.db.execute(f'CREATE VIRTUAL TABLE words USING fts5 (body, tokenize="{text.FTS_TOKENIZE}")')
        self.db.execute("CREATE VIRTUAL TABLE terms USING fts5vocab (words, 'instance')")

    def holds(self, body: str) -> None:
        self.db.execute("DELETE FROM words")
        self.db.execute("INSERT INTO words (rowid, body) VALUES (1, ?)", (text.analyse(body),))

    def finds(self, expression: str) -> bool:
        return self.db.execute("SELECT rowid FROM words (?)", (expression,)).fetchall() == [(1,)]


@pytest.fixture(scope="module")
def table() -> Iterator[Table]:
    made = Table()
    yield made
    made.db.close()


def searchable(wanted: str) -> text.Query | None:
    try:
        return text.query(wanted)
    except InvalidInput:
        return None


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_tokens_are_clean_and_bounded(body: str) -> None:
    """No token holds white space, a quote, a control character or half a surrogate pair, and none is overlong."""
    analysed = text.analyse(body)
    analysed.encode()
    for token in analysed.split(" ") if analysed else ():
        assert token
        assert not NOT_IN_TOKENS.search(token)
        assert not any(category(char) in ("Cc", "Zs", "Zl", "Zp") for char in token)
        assert len(token) <= text.TOKEN_CHARS


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_the_table_keeps_the_tokens(table: Table, body: str) -> None:
    """The tokenizer of the table gives the very tokens of the analysis, in order."""
    table.holds(body)
    kept = [row[0] for row in table.db.execute("SELECT term FROM terms ORDER BY offset")]
    assert kept == text.analyse(body).split()


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_every_chunk_finds_its_text(table: Table, body: str) -> None:
    """Whatever stands between white space in a text finds that text, in each of the three steps."""
    table.holds(body)
    for chunk in body.split():
        parsed = searchable(chunk)
        assert (parsed is None) == (text.analyse(chunk) == "")
        if parsed is not None:
            assert table.finds(parsed.all())
            assert table.finds(parsed.prefix())
            assert table.finds(parsed.any())


@settings(max_examples=150, deadline=None)
@given(MIXED_TEXT)
def test_a_text_finds_itself(table: Table, body: str) -> None:
    """A whole text as a query finds that text."""
    parsed = searchable(body)
    assume(parsed is not None)
    assert parsed is not None
    table.holds(body)
    assert table.finds(parsed.all())


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_every_token_finds_its_text(table: Table, body: str) -> None:
    """Each token of the index, typed as a query, finds the text it came from."""
    table.holds(body)
    for token in text.analyse(body).split():
        parsed = searchable(token)
        assert parsed is not None
        assert table.finds(parsed.all())


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from("登录接口返回修复的了什么吗"), min_size=1, max_size=20), st.data())
def test_every_piece_of_a_run_finds_it(table: Table, run: str, data: st.DataObject) -> None:
    """In a script without spaces each piece of a run, of one character or more, finds it."""
    table.holds(run)
    start = data.draw(st.integers(0, len(run) - 1))
    end = data.draw(st.integers(start + 1, len(run)))
    assert table.finds(text.query(run[start:end]).all())


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.from_regex(r"[a-z]{3,8}", fullmatch=True), min_size=2, max_size=5), st.sampled_from("._-/:@"), st.data()
)
def test_every_section_of_an_identifier_finds_it(
    table: Table, parts: list[str], connector: str, data: st.DataObject
) -> None:
    """Neighbouring parts of an identifier, joined as they are or written in camel case, find it."""
    table.holds(connector.join(parts))
    start = data.draw(st.integers(0, len(parts) - 1))
    section = parts[start : data.draw(st.integers(start + 1, len(parts)))]
    assert table.finds(text.query(connector.join(section)).all())
    assert table.finds(text.query(section[0] + "".join(map(str.title, section[1:]))).all())


@settings(max_examples=150, deadline=None)
@given(TEXTS, TEXTS)
def test_a_chunk_is_analysed_by_itself(one: str, other: str) -> None:
    """What stands beside a chunk does not change its tokens, nor does what was analysed before."""
    apart = " ".join(filter(None, (text.analyse(one), text.analyse(other))))
    text.forget_words()
    assert text.analyse(f"{one} {other}") == apart


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_case_and_form_make_no_difference_to_words(body: str) -> None:
    """Analysing tokens gives tokens of the same grammar: nothing an analysis gives is left out by the next."""
    once = text.analyse(body).split()
    assert {token for token in once if len(token) < text.TOKEN_CHARS} <= set(text.analyse(" ".join(once)).split())


@settings(max_examples=150, deadline=None)
@given(TEXTS, TEXTS)
def test_no_query_is_syntax(table: Table, body: str, wanted: str) -> None:
    """Every query that is accepted runs in all steps, and each step finds no less than the one before."""
    parsed = searchable(wanted)
    assume(parsed is not None)
    assert parsed is not None
    table.holds(body)
    found = [table.finds(step) for step in (parsed.all(), parsed.prefix(), parsed.any())]
    assert not found[0] or all(found)


@settings(max_examples=150, deadline=None)
@given(TEXTS, TEXTS, st.integers(3, 80))
def test_snippet_is_a_bounded_piece_of_the_text(body: str, wanted: str, chars: int) -> None:
    """A snippet is within its bound, and without its ellipses stands in the text."""
    parsed = searchable(wanted)
    assume(parsed is not None)
    assert parsed is not None
    shown = text.snippet(body, parsed, chars=chars)
    assert len(shown) <= chars
    whole = body.strip()
    if len(whole) <= chars:
        assert shown == whole
    else:
        assert any(
            shown.startswith(before) and shown.endswith(after) and shown[len(before) : len(shown) - len(after)] in whole
            for before in ("", "…")
            for after in ("", "…")
        )


@settings(max_examples=150, deadline=None)
@given(TEXTS, TEXTS)
def test_likeness_is_symmetric_and_bounded(a: str, b: str) -> None:
    """Likeness lies between 0 and 1, is the same both ways, and is 1 of a text with words to itself."""
    assert 0.0 <= text.likeness(a, b) <= 1.0
    assert text.likeness(a, b) == text.likeness(b, a)
    assert text.likeness(a, a) == (1.0 if text.analyse(a) else 0.0)


@settings(max_examples=150, deadline=None)
@given(TEXTS, TEXTS)
def test_distinguishing_is_symmetric(a: str, b: str) -> None:
    """What tells two texts apart does so both ways, and nothing tells a text from itself."""
    assert text.distinguished(a, b) == text.distinguished(b, a)
    assert not text.distinguished(a, a)


@settings(max_examples=150, deadline=None)
@given(MIXED_TEXT, st.integers(0, 10**6), st.integers(0, 10**6))
def test_another_number_distinguishes(body: str, one: int, other: int) -> None:
    """The same text about two numbers is about two things."""
    assume(one != other)
    assert text.distinguished(f"{body} {one}", f"{body} {other}")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta", "10.0.0.1"]), min_size=50, max_size=200))
def test_snippet_shows_something_that_was_found(names: list[str]) -> None:
    """Where a query matches, the snippet holds a match, and cuts no word."""
    body = " ".join(names)
    assume("beta" in names)
    shown = text.snippet(body, text.query("beta"), chars=60)
    assert "beta" in shown
    assert set(shown.strip("…").split()) <= set(names)
