"""What the analysis of text promises, by example, through a real full-text table."""

from __future__ import annotations

import sys
import threading
import unicodedata
from collections.abc import Iterator

import apsw
import pytest
import Stemmer

from agentmem import text
from agentmem.errors import InvalidInput, LimitExceeded
from agentmem.limits import BODY_BYTES, QUERY_CHARS


class Index:
    """A full-text table kept by a trigger that calls the analysis, as a store has it."""

    def __init__(self) -> None:
        self.db = apsw.Connection(":memory:")
        self.db.create_scalar_function("analyse", text.analyse, 1, deterministic=True, flags=apsw.SQLITE_INNOCUOUS)
        self.db.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT)")
        self.db.execute(f'CREATE VIRTUAL TABLE words USING fts5 (body, tokenize="{text.FTS_TOKENIZE}")')
        self.db.execute("CREATE VIRTUAL TABLE terms USING fts5vocab (words, 'row')")
        self.db.execute("INSERT INTO words (words, rank) VALUES ('secure-delete', 1)")
        self.db.execute(
            "CREATE TRIGGER added AFTER INSERT ON notes BEGIN"
            " INSERT INTO words (rowid, body) VALUES (new.id, analyse(new.body)); END"
        )
        self.db.execute("CREATE TRIGGER gone AFTER DELETE ON notes BEGIN DELETE FROM words WHERE rowid = old.id; END")

    def add(self, *bodies: str | None) -> None:
        self.db.executemany("INSERT INTO notes (body) VALUES (?)", [(body,) for body in bodies])

    def match(self, expression: str) -> list[int]:
        """Ids from 1 on, in the order of the rows added; the best match first."""
        return [row[0] for row in self.db.execute("SELECT rowid FROM words (?) ORDER BY rank, rowid", (expression,))]

    def all(self, wanted: str) -> list[int]:
        return self.match(text.query(wanted).all())

    def prefix(self, wanted: str) -> list[int]:
        return self.match(text.query(wanted).prefix())

    def any(self, wanted: str) -> list[int]:
        return self.match(text.query(wanted).any())


@pytest.fixture
def index() -> Iterator[Index]:
    made = Index()
    yield made
    made.db.close()


def tokens(body: str) -> list[str]:
    return text.analyse(body).split()


# Tokens


def test_word_is_followed_by_its_stem() -> None:
    """A word gives itself and, where it differs, its English stem; stop words give no stem."""
    assert tokens("The tests were running") == ["the", "tests", "test", "were", "running", "run"]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("/a/b.py:12", "/a/b.py:12 a b py 12"),
        ("snake_case_name", "snake_case_name snake case name"),
        ("kebab-case", "kebab-case kebab case"),
        ("camelCase", "camelcase camel case"),
        ("PascalCase", "pascalcase pascal case"),
        ("HTTPServer", "httpserver http server"),
        ("-rf", "-rf rf"),
        ("--force", "--force force forc"),
        ("C++", "c++"),
        ("C#", "c#"),
        (".NET", ".net net"),
        ("C/C++", "c/c++ c c++"),
        ("10.0.0.1", "10.0.0.1 10 0 0 1"),
        ("10.0.0.1:8443", "10.0.0.1:8443 10 0 0 1 8443"),
        ("CVE-2024-1234", "cve-2024-1234 cve 2024 1234"),
        ("v1.2.3", "v1.2.3 1 2 3"),
        ("user@host", "user@host user host"),
        ("*.corp.test", "*.corp.test corp test"),
        ("/users/{id}", "/users/{id} users id user"),
        ("#123", "#123 123"),
        ("$HOME", "$home home"),
        ("~/.ssh/id_rsa", "~/.ssh/id_rsa ssh id rsa"),
        ("0xDEADBEEF", "0xdeadbeef"),
        ("' OR 1=1", "or 1=1 1 1"),
        ("https://h.test/a?b=c.", "https://h.test/a?b=c https h test a b c"),
        ("C:\\Temp\\x.log", "c:\\temp\\x.log c temp x log"),
        ("__init__", "__init__ init"),
    ],
)
def test_compound_is_kept_whole_and_split(written: str, expected: str) -> None:
    """Identifiers, paths, flags, hosts, versions and addresses give the whole, then each part once, in order."""
    assert text.analyse(written) == expected


@pytest.mark.parametrize(
    "written", ["done.", "(done)", '"done",', "done!?", "done...", "**done**", "`done`;", "[done]:"]
)
def test_surrounding_punctuation_is_no_part_of_a_word(written: str) -> None:
    """Punctuation of sentences, quotes, brackets and emphasis around a word leave the word."""
    assert tokens(written) == tokens("done")


def test_mixed_case_noise_is_not_split() -> None:
    """Letters that merely alternate, as in base64, stay one token."""
    assert tokens("aB3dE9fGhJ") == ["ab3de9fghj"]


def test_contractions_lose_their_apostrophe() -> None:
    """A possessive is its owner and a contracted negation is one word, whichever apostrophe is written."""
    assert tokens("user's don't can’t") == ["user", "dont", "cant"]


def test_accents_case_and_width_are_folded() -> None:
    """Accents, case, width, ligatures and stroked letters make no difference; ё is е."""
    assert tokens("Café ЁЛКА ＡＢＣ ﬁle Straße Łódź") == tokens("cafe елка abc file strasse lodz")


def test_chinese_gives_bigrams_and_its_last_character() -> None:
    """A run without spaces gives overlapping bigrams, and an identifier touching it is a token of its own."""
    assert tokens("修复登录login_user函数") == [
        "修复",
        "复登",
        "登录",
        "录",
        "login_user",
        "login",
        "user",
        "函数",
        "数",
    ]


def test_other_scripts_keep_their_marks() -> None:
    """Vowel signs of the scripts of India stay in their word; points of Arabic go; Thai and Hangul become bigrams."""
    assert tokens("हिन्दी") == ["हिन्दी"]
    assert tokens("مَرْحَبًا") == tokens("مرحبا")
    assert "กา" in tokens("ประกาศ")
    assert tokens("안녕하세요")[0] == "안녕"


def test_pictures_are_tokens() -> None:
    """Emoji are found, with or without their variation selector."""
    assert tokens("done✅❤️") == ["done", "✅", "❤"]


@pytest.mark.parametrize("body", ["", " \n\t", "...", "\x00\x1f\x7f", "\ud800\udfff", "— … ‘’", "____", "\"'`"])
def test_text_without_words_gives_no_tokens(body: str) -> None:
    """Blank text, punctuation, control characters and lone surrogates give nothing."""
    assert text.analyse(body) == ""


def test_null_gives_no_tokens(index: Index) -> None:
    """A NULL column is indexed as nothing."""
    index.add(None)
    assert index.db.execute("SELECT body FROM words").fetchall() == [("",)]


@pytest.mark.parametrize(
    "unit", ["a", "a.", "-", "/{a", "1=", "é", "a'", "a://", "Abc", "修", "_", "\\", "a,b", "e\u0301"]
)
def test_longest_body_without_a_space_is_analysed(unit: str) -> None:
    """A body of the largest size that is one chunk gives tokens of bounded length."""
    body = unit * (BODY_BYTES // len(unit.encode()))
    assert max(map(len, tokens(body)), default=0) <= text.TOKEN_CHARS


def test_only_white_space_parts_tokens_in_the_table(index: Index) -> None:
    """The tokenizer of the table keeps every token of the analysis as it is."""
    body = "C++ /a/b.py:12 a=b;c|d 1=1 {x} <y> *.z ~/q 修复 café $HOME #1 https://h/?a=b&c=%20d [k] ^t! e@f (g) \\h"
    index.add(body)
    assert [row[0] for row in index.db.execute("SELECT term FROM terms")] == sorted(set(tokens(body)), key=str.encode)


def test_deleting_leaves_no_term(index: Index) -> None:
    """A delete takes out of the index what the insert put in."""
    index.add("The token hunter2password of the café 修复登录 leaks at /a/b.py:12")
    index.db.execute("DELETE FROM notes")
    assert index.db.execute("SELECT term FROM terms").fetchall() == []


def test_fingerprint_names_what_tokens_depend_on() -> None:
    """The fingerprint holds the versions of the Unicode tables and of the stemmer."""
    assert unicodedata.unidata_version in text.FINGERPRINT
    assert Stemmer.version() in text.FINGERPRINT


def test_forgetting_words_changes_no_answer() -> None:
    """The memo of words is only a memo."""
    before = text.analyse("Running tests of login_user")
    text.forget_words()
    assert text.analyse("Running tests of login_user") == before


def test_threads_get_the_same_tokens() -> None:
    """Analysis from several threads at once gives what one thread gets."""
    bodies = [f"running failures{n} of the migrations number {n} testing{n}" for n in range(500)]
    expected = [text.analyse(body) for body in bodies]
    text.forget_words()
    answers: list[list[str]] = [[] for _ in range(8)]
    barrier = threading.Barrier(8)

    def work(own: list[str]) -> None:
        barrier.wait()
        own.extend(text.analyse(body) for body in bodies)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(own,)) for own in answers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert all(own == expected for own in answers)


# Queries


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("it was running", "run"),
        ("go for a run", "running"),
        ("failures of queries", "failure query"),
        ("the migration", "migrate"),
        ("indexes", "index"),
        ("un café noir", "cafe"),
        ("the cafe", "café"),
        ("запись ещё", "еще"),
        ("call loginUser now", "login_user"),
        ("call login_user now", "loginUser"),
        ("see https://api.example.com/v1/x?q=1", "example.com"),
        ("open src/app/login.py:12 now", "login.py"),
        ("listens on 10.0.0.1:8443", "10.0.0.1"),
        ("listens on 10.0.0.1:8443", "8443"),
        ("upgrade to v1.2.3-rc1", "1.2.3"),
        ("then rm -rf /tmp/x", "rm -rf"),
        ("written in C/C++", "C++"),
        ("GET /users/{id}/posts", "GET /users/{id}"),
        ("payload ' OR 1=1 -- works", "' OR 1=1"),
        ("修复login_user函数", "login_user"),
        ("修复login_user函数", "修复"),
        ("数据库连接池耗尽", "连接"),
        ("数据库连接池耗尽", "连接池"),
        ("数据库连接池耗尽", "库"),
        ("数据库连接池耗尽", "尽"),
        ("登录接口返回了403", "登录接口为什么返回403？"),
        ("the login form fails with a 403", "why does the login form fail?"),
        ("東京タワー", "タワ"),
        ("ＣＶＥ‑2024‑1234", "CVE-2024-1234"),
        ("shipped ✅", "✅"),
        ("key=value;other", "value"),
        ("the user's token", "user token"),
    ],
)
def test_query_finds_text(index: Index, body: str, wanted: str) -> None:
    """Other forms, parts, spellings and questions find the text in the strict step."""
    index.add("something else entirely", body)
    assert index.all(wanted) == [2]


ALIKE = [("host 10.0.0.12", "10.0.0.1"), ("10.0.0.2", "10.0.0.1"), ("a C program", "C++"), ("C# code", "C")]
ALIKE += [("rf signal", "-rf"), ("portable", "port"), ("修理工作", "修复")]


@pytest.mark.parametrize(("body", "wanted"), ALIKE)
def test_query_does_not_find_what_only_looks_alike(index: Index, body: str, wanted: str) -> None:
    """Another address, language, flag or word does not match in the strict step."""
    index.add(body)
    assert index.all(wanted) == []


def test_exact_form_ranks_above_other_forms(index: Index) -> None:
    """Of texts with forms of one word, the one with the very form comes first."""
    index.add("it failed early on", "it fails early on", "it failing early on", "unrelated words stand here")
    assert index.all("failing")[0] == 3


def test_prefixes_find_beginnings_and_other_endings(index: Index) -> None:
    """The step of prefixes finds words begun, and other endings where there is no stemmer for the script."""
    index.add("authentication", "миграции", "fetch_user_profile", "10.0.0.1")
    assert index.prefix("authent") == [1]
    assert index.prefix("миграция") == [2]
    assert index.prefix("fetch_us") == [3]
    assert index.prefix("10.0.0") == [4]


def test_any_finds_texts_with_one_of_the_words(index: Index) -> None:
    """The step of any finds a text that shares one word, or a part of an identifier, and the fullest comes first."""
    index.add("the login is broken", "login form of the app", "unrelated", "user profile")
    assert index.any("why is the login form green?") == [2, 1]
    assert index.any("fetch_user_profile") == [4]


def test_stop_words_are_left_out_beside_other_words_only(index: Index) -> None:
    """Stop words do not decide while other words are there, and are found where nothing else is asked for."""
    index.add("the login", "what is it", "怎么办")
    assert index.all("the is login of it") == [1]
    assert index.any("what about the login") == [1]
    assert index.all("what is it") == [2]
    assert index.all("怎么") == [3]


HOSTILE = ['a" OR b', "body:alpha", "{body rowid}:alpha", "-body:alpha", "^alpha", "alpha*", "NEAR(alpha beta, 2)"]
HOSTILE += [
    "alpha + beta",
    "alpha AND (beta",
    "NOT alpha",
    "alpha' --",
    "((((alpha",
    "alpha\x00beta",
    "words MATCH 'a'",
]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_full_text_syntax_is_plain_text(index: Index, hostile: str) -> None:
    """No query is FTS5 syntax: it never errs, filters no column, negates nothing."""
    index.add(hostile)
    parsed = text.query(hostile)
    assert index.match(parsed.all()) == [1]
    assert index.match(parsed.prefix()) == [1]
    assert index.match(parsed.any()) == [1]


def test_column_filter_is_two_words(index: Index) -> None:
    """A word with the name of a column before it does not filter by that column."""
    index.add("alpha")
    assert index.all("body:alpha") == []


@pytest.mark.parametrize("blank", ["", "  \n", "?!", "\"\" ''", "…—", "\x00", "____", "(*)"])
def test_query_of_nothing_is_refused(blank: str) -> None:
    """A query without anything searchable is an error, not everything and not nothing."""
    with pytest.raises(InvalidInput, match="nothing to search"):
        text.query(blank)


def test_query_length_is_bounded() -> None:
    """A query of the allowed length is parsed; one character more is refused."""
    assert text.query("a " * (QUERY_CHARS // 2)).units
    with pytest.raises(LimitExceeded):
        text.query("a" * (QUERY_CHARS + 1))


def test_longest_queries_run(index: Index) -> None:
    """A query with as many terms as fit runs in all three steps."""
    wanted = " ".join(f"w{n}-x" for n in range(280))
    index.add(wanted)
    assert index.all(wanted) == index.prefix(wanted) == index.any(wanted) == [1]


def test_units_are_distinct_and_in_order() -> None:
    """A query names each thing once, in the order of the text, and knows its stop words."""
    units = text.query("The login, the LOGIN of 10.0.0.1").units
    assert [unit.text for unit in units] == ["the", "login", "of", "10.0.0.1"]
    assert [unit.stop for unit in units] == [True, False, True, False]


# Snippets


def test_snippet_of_a_short_text_is_the_text() -> None:
    """A text that fits comes back whole, without the white space around it."""
    assert text.snippet("  short text\n", text.query("text")) == "short text"


def test_snippet_shows_the_densest_place() -> None:
    """The piece shown is the one where most of the query stands, cut between words."""
    body = (
        "The login page. " + "Filler words stand here. " * 40 + "Then login gave a 403 failure. " + "More of it. " * 40
    )
    shown = text.snippet(body, text.query("login failures 403"), chars=100)
    assert "login gave a 403 failure" in shown
    assert shown.startswith("…")
    assert shown.endswith("…")
    assert set(shown.strip("…").split()) <= set(body.split())


def test_snippet_of_chinese_is_cut_between_characters() -> None:
    """In a text without spaces the match is found inside the run."""
    body = "前面有很多文字。" * 60 + "登录接口返回403。" + "后面有很多文字。" * 60
    shown = text.snippet(body, text.query("登录接口"), chars=40)
    assert "登录接口返回403" in shown
    assert len(shown) <= 40


def test_snippet_without_a_match_is_the_beginning() -> None:
    """Where nothing matches, the text is shown from its beginning."""
    assert text.snippet("alpha beta " * 50, text.query("gamma")).startswith("alpha beta")


def test_snippet_shows_words_found_by_prefix_and_accent() -> None:
    """What another ending, a prefix or an accent found is shown as it is written."""
    body = "x " * 300 + "La Café Authentication " + "y " * 300
    assert "Café Authentication" in text.snippet(body, text.query("cafe authent"), chars=60)


def test_snippet_keeps_marks_with_their_letter() -> None:
    """A cut does not part a combining mark from its letter."""
    shown = text.snippet("क" + "कि" * 200, text.query("zzz"), chars=21)
    assert shown.endswith("कि…")


# Likeness


def test_words_and_stems_leave_stop_words_out() -> None:
    """Significant words come once each, in order, identifiers by their parts and addresses whole."""
    assert text.words("The login of the loginUser at 10.0.0.1, login") == ("login", "user", "10.0.0.1")
    assert text.stems("running the failures, ran; runs") == ("run", "failur", "ran")


@pytest.mark.parametrize(
    ("a", "b", "low", "high"),
    [
        ("Fix the login bug", "Fixing login bugs", 1.0, 1.0),
        ("修复登录接口", "修复登录接口", 1.0, 1.0),
        ("修复登录接口问题", "修复登录接口", 0.7, 0.95),
        ("SQL injection in the login form", "SQL injection in login", 0.8, 0.95),
        ("Check TLS", "Write the report", 0.0, 0.0),
        ("", "", 0.0, 0.0),
        ("what is it", "what is it", 1.0, 1.0),
    ],
)
def test_likeness(a: str, b: str, low: float, high: float) -> None:
    """Likeness grows with the share of significant words in common, whatever their form."""
    assert low <= text.likeness(a, b) <= high


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("host 10.0.0.1 is up", "host 10.0.0.2 is up"),
        ("open ports of a.example.com", "open ports of b.example.com"),
        ("login is enabled", "login is not enabled"),
        ("login is enabled", "login is disabled"),
        ("login doesn't work", "login work"),
        ("limit is 10", "limit is 20"),
        ("limit is 5%", "limit is 5"),
        ("wait 10 ms", "wait 10 s"),
        ("wait two days", "wait 3 days"),
        ("move 10.0.0.1 to 10.0.0.2", "move 10.0.0.2 to 10.0.0.1"),
        ("port 443", "port 8443"),
        ("upgrade to v1.2.3", "upgrade to v1.2.4"),
        ("on 2024-01-15", "on 2024-01-16"),
        ("on Monday", "on Tuesday"),
        ("test login_user", "test login_admin"),
        ("test loginUser", "test loginAdmin"),
        ("run with --force", "run with --dry-run"),
        ("read /etc/passwd", "read /etc/shadow"),
        ("GET /users", "POST /users"),
        ("mail bob@x.test", "mail eve@x.test"),
        ("size > 5", "size < 5"),
        ("node b", "node c"),
        ("接口可用", "接口不可用"),
        ("接口未启用", "接口启用"),
        ("测试成功", "测试失败"),
        ("第三章", "第四章"),
        ("✅ deploy", "❌ deploy"),
        ("CVE-2024-1234", "CVE-2024-1235"),
        ("safe input", "unsafe input"),
        ("read /etc/Passwd", "read /etc/passwd"),
        ("run with -v", "run with -V"),
        ("holds 40 GB", "holds 40 Gb"),
        ("10² cells", "102 cells"),
        ("step ①", "step ②"),
        ("the relay is down?", "the relay is down."),
        ("move a -> b", "move a <- b"),
        ("a && b holds", "a || b holds"),
        ("only admins see it", "admins see it"),
        ("retry unless full", "retry if full"),
        ("a few nodes fail", "nodes fail"),
        ("clients must renew", "clients may renew"),
        ("the primary is down", "the primary was down"),
        ("改用POST方法", "改用PATCH方法"),
        ("服务挂了吗", "服务挂了"),
        ("上一个版本", "下一个版本"),
        ("每个客户端", "某个客户端"),
        ("必须续期", "可以续期"),
    ],
)
def test_what_differs_distinguishes(a: str, b: str) -> None:
    """Numbers, addresses, versions, dates, paths, flags, identifiers, signs, negations and opposites tell two apart."""
    assert text.distinguished(a, b)
    assert text.distinguished(b, a)


SAME = [("Fix the login bug", "fix login bugs"), ("SQL injection in login", "sql injection in the login")]
SAME += [("port 443 on 10.0.0.1", "10.0.0.1: port 443"), ("server-side check", "server side check")]
SAME += [("JavaScript client", "javascript client"), ("v1.2.3 is out", "1.2.3 is out"), ("issue #12", "issue 12")]
SAME += [("two hosts", "2 hosts"), ("it never works", "it does not work"), ("wait 10 ms", "wait 10ms")]
SAME += [
    ("we can't reach it", "we cannot reach it"),
    ("it won't start", "it will not start"),
    ("it wasn't up", "it was not up"),
]
SAME += [("非常重要的接口", "重要的接口")]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_other_wording_does_not_distinguish(a: str, b: str) -> None:
    """The same thing in other words, order or notation is not told apart."""
    assert not text.distinguished(a, b)
