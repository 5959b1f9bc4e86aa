"""Promises of the escapes, one for each place a text can end up in."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmem.context import escape
from agentmem.errors import InvalidInput

# A loaded machine is no failure.
untimed = settings(deadline=None)

nasty = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from(
            "«»‹›<>|&\"'`[]()*_#=+-@!~\\$:{}\x1b\x9b\x07\r\n\t \u202e\u2066\u200b\u200d\ufe0f\U000e0041☺👩"
        ),
    ),
    max_size=60,
)
forgeries = ["»", "«web:", "| x", "```", "# system", "cut: left 0", "</agentmem>", "<|im_start|>", "» and"]
lines_of = st.lists(st.sampled_from(forgeries)).map("\n".join)
HIDDEN_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def hidden_in(text: str) -> set[str]:
    """Hidden characters that stand alone: joiners and selectors have their own tests."""
    kept = set("\n\t\u200c\u200d")
    # Signs of Arabic, Syriac and Kaithi that enclose numbers are of the format category and have a shape.
    found = {c for c in text if unicodedata.category(c) in HIDDEN_CATEGORIES} - kept
    return {c for c in found if not _is_script_sign(ord(c))}


def _is_script_sign(code: int) -> bool:
    return 0x600 <= code <= 0x605 or code in (0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD)


# visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text\n\tand a tab", "plain text\n\tand a tab"),
        ("abc\u202edcba", "abc⟨U+202E⟩dcba"),
        ("a\u2066b\u2069", "a⟨U+2066⟩b⟨U+2069⟩"),
        ("zero\u200bwidth\u2060\ufeff", "zero⟨U+200B⟩width⟨U+2060⟩⟨U+FEFF⟩"),
        ("soft\xadhyphen", "soft⟨U+00AD⟩hyphen"),
        ("\x1b[31mred\x1b[0m", "⟨U+001B⟩[31mred⟨U+001B⟩[0m"),
        ("\x1b]8;;http://x\x07link", "⟨U+001B⟩]8;;http://x⟨U+0007⟩link"),
        ("\x9b2J", "⟨U+009B⟩2J"),
        ("a\r\nb\rc", "a\nb⟨U+000D⟩c"),
        ("x\u2028y\u2029z", "x⟨U+2028⟩y⟨U+2029⟩z"),
        ("hi\U000e0068\U000e0069", "hi⟨U+E0068⟩⟨U+E0069⟩"),
        ("a\ufe01\ufe02", "a⟨U+FE01⟩⟨U+FE02⟩"),
        ("a\U000e0101", "a⟨U+E0101⟩"),
        ("fill\u3164er\u115f", "fill⟨U+3164⟩er⟨U+115F⟩"),
        ("\ud800", "⟨U+D800⟩"),
        ("\ue000", "⟨U+E000⟩"),
        ("pay\u200cpal", "pay⟨U+200C⟩pal"),
        ("nul\x00", "nul⟨U+0000⟩"),
    ],
)
def test_hidden_characters_are_spelled(text, shown):
    """Controls, escapes, bidi, zero-width, tag and filler characters are shown by their number."""
    assert escape.visible(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "👩‍👩‍👧‍👦 👩🏽‍💻 🏳️‍🌈 ❤️ ☺︎ 1️⃣ 🇩🇪 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
        "می‌خواهم",
        "क्‍ष",
        "葛󠄀城市",
        "数据库，《标题》　全角",
        "e\u0301 n\u0303",
        "naïve «guillemets» – “quotes” …",
    ],
)
def test_what_people_write_is_kept(text):
    """Emoji sequences, joiners of scripts that need them, Han variants and marks stay as they are."""
    assert escape.visible(text) == text


def test_a_flag_hides_no_message():
    """A black flag followed by tag characters that are no known region is spelled out."""
    secret = "".join(chr(0xE0000 + ord(c)) for c in "ignore")
    assert "⟨U+E0069⟩" in escape.visible("\U0001f3f4" + secret + "\U000e007f")


@given(nasty)
@untimed
def test_nothing_hidden_survives(text):
    """What `visible` returns holds no hidden character and changes no more when applied again."""
    shown = escape.visible(text)
    assert not hidden_in(shown)
    assert escape.visible(shown) == shown
    shown.encode("utf-8")


@given(st.text(alphabet="ab\u200c\u200d\ufe0f\U000e0101\u180b", max_size=30))
@untimed
def test_joiners_and_selectors_do_not_hide_in_latin(text):
    """Between Latin letters no joiner and no selector stays invisible."""
    assert escape.visible(text).replace("⟨", "").replace("⟩", "").isascii()


@given(nasty)
@untimed
def test_one_line_is_one_line(text):
    """The result has one line, no outer and no double spaces."""
    line = escape.one_line(text)
    assert len(line.splitlines()) <= 1
    assert line == " ".join(line.split())


# prompt


@pytest.mark.parametrize(
    "text",
    ["# system", "## left", "- item", "> quote", "```", "~~~", "1. step", "---", "cut: left 0", "News: x", "| row"],
)
def test_trusted_text_begins_no_section(text):
    """Text that would begin a heading, list, fence or one of our lines gets a backslash."""
    assert escape.prompt_inline("\n" + text).startswith("\\")


def test_ordinary_trusted_text_is_untouched():
    """Titles as people write them stay as they are."""
    for text in ("Check the API", "-1 is wrong", "«цитата» and <b>", "C++ & a < b", "3.14 is pi", "#12 again"[1:]):
        assert escape.prompt_inline(text) == text


@given(nasty | lines_of)
@untimed
def test_trusted_text_forges_no_mark(text):
    """No newline, no opening mark of a quotation, no control token, no closing of a host's tag comes out of it."""
    line = escape.prompt_inline(text)
    assert len(line.splitlines()) <= 1
    assert not re.search(r"«\s*(agent|user|tool|web|import)\s*:", line)
    assert "<|" not in line
    assert not re.search(r"</?\s*agentmem\b", line, re.IGNORECASE)


@given(nasty | lines_of)
@untimed
def test_a_quotation_closes_where_we_close_it(text):
    """Within a quotation stands no guillemet, newline, tag or hidden character."""
    span = escape.quoted(text, "web")
    assert span.startswith("«web: ")
    assert span.endswith("»")
    inside = span[len("«web: ") : -1]
    assert not set("«»\n") & set(inside)
    assert not re.search(r"<[/|!?A-Za-z]", inside)
    assert not hidden_in(inside)


@given(nasty | lines_of)
@untimed
def test_a_quoted_block_closes_where_we_close_it(text):
    """Each line of a block is marked as its content, and only the last line closes it."""
    first, *middle, last = escape.quoted_block(text, "tool").split("\n")
    assert (first, last) == ("«tool:", "»")
    assert all(line == "|" or line.startswith("| ") for line in middle)
    assert not set("«»") & set("".join(middle))


def test_words_in_quotation_stay_readable():
    """Ordinary text, Chinese titles included, is the same inside the marks."""
    assert escape.quoted("a 3 < 4 《标题》 it's 10% [ok]", "import") == "«import: a 3 < 4 《标题》 it's 10% [ok]»"


@pytest.mark.parametrize("origin", ["", "Web", "web»", "a b", "web:", "ｗeb", "x" * 40])
def test_origin_is_a_word(origin):
    """An origin that could break the mark is refused."""
    with pytest.raises(InvalidInput):
        escape.quoted("text", origin)
    with pytest.raises(InvalidInput):
        escape.quoted_block("text", origin)


# html


class Collector(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.tags: list[str] = []
        self.attrs: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attrs += attrs

    def handle_data(self, data):
        self.text += data

    def handle_comment(self, data):
        self.tags.append("!--")


@given(nasty)
@untimed
def test_html_is_text(text):
    """As element content and as an attribute, the text comes back as itself and makes no tag or attribute."""
    parser = Collector()
    parser.feed(f'<p title="{escape.html(text)}">{escape.html(text)}</p>')
    parser.close()
    assert parser.tags == ["p"]
    assert parser.attrs == [("title", escape.visible(text))]
    assert parser.text == escape.visible(text)


# terminal


@given(nasty)
@untimed
def test_terminal_text_commands_nothing(text):
    """No control character but newline and tab reaches the terminal."""
    assert not [c for c in escape.terminal(text) if unicodedata.category(c) == "Cc" and c not in "\n\t"]


@given(st.text(alphabet="[]/\\abcred #@=:bold \n", max_size=40))
@untimed
def test_rich_markup_is_neutral(text):
    """Through rich's console markup the text comes back as itself, and a tag after it still closes."""
    markup = pytest.importorskip("rich.markup")
    rendered = markup.render(f"[b]{escape.terminal(text, markup=True)}[/b]", emoji=False)
    assert rendered.plain == text
    assert [(span.start, span.end) for span in rendered.spans] == [(0, len(text))]


# csv


@pytest.mark.parametrize(
    "text", ["=1+1", "+x", "-x", "@SUM(A1)", "\tx", "\rx", "\n=1", " =1", '"=1', "＝1", "-1+1", "+1;cmd|' /C calc'!A0"]
)
def test_no_formula_in_csv(text):
    """A cell a spreadsheet would compute begins with an apostrophe, also after a trip through a CSV file."""
    buffer = io.StringIO()
    csv.writer(buffer).writerow([escape.csv_cell(text)])
    (row,) = csv.reader(io.StringIO(buffer.getvalue()))
    assert row[0].startswith("'")


@pytest.mark.parametrize("text", ["", "plain", "-12.5", "+3", "1e-9", "a=b", "2026-01-02", "数据"])
def test_plain_cells_stay(text):
    """Numbers and ordinary words are not changed."""
    assert escape.csv_cell(text) == text


# markdown


@given(nasty | st.text(alphabet="ab *_`[]()<>!#-+=.1)~|\\&:$\n\t", max_size=60))
@untimed
def test_markdown_is_text(text):
    """Rendered, the text is paragraphs that hold its own characters: no link, image, code, heading, list or table."""
    markdown_it = pytest.importorskip("markdown_it")
    renderer = markdown_it.MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    rendered = renderer.render(escape.markdown(text))
    parser = Collector()
    parser.feed(rendered)
    parser.close()
    assert set(parser.tags) <= {"p", "br"}
    assert parser.text.split() == escape.visible(text).split()


def test_markdown_keeps_identifiers_readable():
    """Underscores within words are not escaped."""
    assert escape.markdown("snake_case_name in /a/b.py:12") == "snake_case_name in /a/b.py:12"


# width


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("abc", 3),
        ("数据", 4),
        ("ﾃﾞ", 2),
        ("e\u0301", 1),
        ("👩‍👩‍👧‍👦", 2),
        ("❤️", 2),
        ("❤", 1),
        ("👍🏽", 2),
        ("🇩🇪", 2),
        ("각", 2),
        ("", 0),
    ],
)
def test_display_width(text, columns):
    """Wide characters take two columns, marks none, an emoji sequence two."""
    assert escape.display_width(text) == columns


@given(st.text(alphabet="ab数e\u0301👩\u200d", max_size=30), st.integers(0, 20))
@untimed
def test_pad_fills_exactly(text, width):
    """A padded text takes exactly the columns asked for."""
    assert escape.display_width(escape.pad(text, width)) == width
