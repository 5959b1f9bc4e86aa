"""One escape for each place a text can end up in.

Text that was stored is later read next to instructions, in a terminal, a notebook, a spreadsheet. Each of these has its
own way of being fooled, so each has its own function here, and every renderer calls the one of its sink:

    prompt     `prompt_inline` and `prompt_block` for trusted text, `quoted` and `quoted_block` for untrusted text
    terminal   `terminal`
    notebook   `html`
    CSV        `csv_cell`
    Markdown   `markdown`

All of them begin with `visible`, which spells hidden characters as `⟨U+202E⟩`.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from agentmem.errors import InvalidInput, shown

__all__ = [
    "csv_cell",
    "display_width",
    "html",
    "markdown",
    "one_line",
    "pad",
    "prompt_block",
    "prompt_inline",
    "quoted",
    "quoted_block",
    "terminal",
    "visible",
]

# Controls (all but tab and newline), bidi marks and overrides, zero-width and filler characters, variation selectors,
# line separators, format controls of hieroglyphs, shorthand and music, tag characters, private use, noncharacters of
# the first plane, lone surrogates.
_HIDDEN: Final = (
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f"
    "\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ud800-\\uf8ff\\ufdd0-\\ufdef\\ufe00-\\ufe0f\\ufeff"
    "\\uffa0\\ufff0-\\ufffb\\ufffe\\uffff\\U00013430-\\U0001343f\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a"
    "\\U000e0000-\\U0010ffff"
)
_PICTURE: Final = (
    "\\xa9\\xae\\u203c\\u2049\\u2122\\u2139\\u2190-\\u21ff\\u2300-\\u23ff\\u24c2\\u25a0-\\u27bf\\u2900-\\u297f"
    "\\u2b00-\\u2bff\\u3030\\u303d\\u3297\\u3299\\U0001f000-\\U0001faff"
)
# Scripts in which a joiner or non-joiner changes the shape or the meaning of a word: Arabic, Syriac, Thaana, N'Ko,
# the Brahmic scripts of South and South-East Asia, Mongolian.
_JOINING: Final = (
    "\\u0620-\\u08ff\\u0900-\\u0dff\\u0f00-\\u109f\\u1700-\\u17b3\\u17b6-\\u180a\\u1810-\\u18af\\u1900-\\u1cff"
    "\\ua800-\\uabff"
)
_HAN: Final = "\\u3400-\\u4dbf\\u4e00-\\u9fff\\uf900-\\ufaff\\U00020000-\\U0003ffff"

_GB_FLAGS: Final = "|".join(
    "".join(chr(0xE0000 + ord(letter)) for letter in region) for region in ("gbeng", "gbsct", "gbwls")
)

# The first alternatives are hidden characters that belong where they stand: they match whole and stay.
_FIND_HIDDEN: Final = re.compile(
    f"(?P<keep>\\U0001f3f4(?:{_GB_FLAGS})\\U000e007f"
    f"|[{_PICTURE}]\\ufe0f?[\\U0001f3fb-\\U0001f3ff]?(?:\\u200d[{_PICTURE}]\\ufe0f?[\\U0001f3fb-\\U0001f3ff]?)+"
    f"|[{_PICTURE}][\\ufe0e\\ufe0f]|[0-9#*]\\ufe0f\\u20e3"
    f"|(?<=[{_JOINING}])[\\u200c\\u200d](?=[{_JOINING}])"
    f"|(?<=[{_HAN}])[\\U000e0100-\\U000e01ef]|(?<=[\\u1820-\\u18aa])[\\u180b-\\u180d])"
    f"|\\r\\n|[{_HIDDEN}]"
)


def visible(text: str) -> str:
    """Spell every hidden character as `⟨U+XXXX⟩`, so that what is read is all there is.

    Shown: control characters but tab and newline (thus every ANSI, OSC and CSI sequence), bidirectional marks and
    overrides, zero-width characters, fillers, soft hyphens, line separators, tag characters, variation selectors,
    private use, lone surrogates. CR LF becomes a newline.

    Kept, because they are how people write: the joiner within an emoji sequence, a presentation selector after a
    pictograph, the flags of England, Scotland and Wales, a single joiner or non-joiner between letters of Arabic,
    Indic and kindred scripts, one variation selector after a Han or Mongolian letter.
    """
    if text.isascii() and text.isprintable():
        return text
    return _FIND_HIDDEN.sub(_spell, text)


def _spell(match: re.Match[str]) -> str:
    found = match.group()
    if match.lastgroup == "keep":
        return found
    return "\n" if found == "\r\n" else f"⟨U+{ord(found):04X}⟩"


def one_line(text: str) -> str:
    """`text` on one line: every run of white space, newlines included, becomes one space; hidden characters show."""
    return visible(" ".join(text.split()))


# What opens one of our marks, a wrapping tag or a model's control token. Guillemets as such are left alone in trusted
# text: they are how French and Russian quote.
_FORGED_MARK: Final = re.compile(r"«(?=\s*(?:agent|user|tool|web|import)\s*:)")
_FORGED_TAG: Final = re.compile(r"<(?=\|)|<(?=/?\s*agentmem\b)", re.IGNORECASE)
_LINE_MARKER: Final = re.compile(r"#|>|\||`{3}|~{3}|[-*+]\s|[-*_=]{3}|\d{1,9}[.)]\s|(?:cut|news):", re.IGNORECASE)


def prompt_inline(text: str, *, inside: bool = False) -> str:
    """Trusted `text` as part of one line of an answer.

    It cannot begin a section, list, fence or `cut:` line of its own (a backslash comes before what would), cannot open
    a mark of quoted text, and cannot close a tag that a host wraps around the answer.

    Args:
        text: What to show.
        inside: Something of ours stands before it on the line, so that it can begin nothing and needs no backslash.
    """
    line = _FORGED_TAG.sub("‹", _FORGED_MARK.sub("‹", one_line(text)))
    return "\\" + line if not inside and _LINE_MARKER.match(line) else line


def prompt_block(text: str, ours: re.Pattern[str]) -> str:
    """Trusted `text` of many lines, each as `prompt_inline` shows it but with its white space: code stays code.

    Args:
        text: What to show.
        ours: Beginnings of lines of the answer that need a backslash too where the text has them.
    """
    return "\n".join(_line(line, ours) for line in visible(text).split("\n"))


def _line(text: str, ours: re.Pattern[str]) -> str:
    line = _FORGED_TAG.sub("‹", _FORGED_MARK.sub("‹", text))
    begun = line.lstrip()
    if not _LINE_MARKER.match(begun) and not ours.match(begun):
        return line
    return f"{line[: len(line) - len(begun)]}\\{begun}"


_ORIGIN: Final = re.compile(r"[a-z][a-z_]{0,31}", re.ASCII)
_IN_QUOTES: Final = str.maketrans({"«": "‹", "»": "›", "≪": "‹", "≫": "›", "⟪": "‹", "⟫": "›", "⟨": "(", "⟩": ")"})
_ANY_TAG: Final = re.compile(r"<(?=[/|!?A-Za-z])")


def quoted(text: str, origin: str) -> str:
    """Untrusted `text` as one marked span, `«web: …»`.

    Within it no guillemet is left, so nothing in it closes the span; tags and control tokens of models lose their
    bracket; newlines are spaces.

    Raises:
        InvalidInput: `origin` is not a lower-case word.
    """
    return f"«{_checked_origin(origin)}: {_contained(' '.join(text.split()))}»"


def quoted_block(text: str, origin: str) -> str:
    """Untrusted `text` of many lines as a marked block.

    The first line is `«web:`, each line of the text begins with `| `, the last line is `»`. Nothing in the text can
    close it, as with `quoted`, and no line of it begins like one of ours.

    Raises:
        InvalidInput: `origin` is not a lower-case word.
    """
    lines = _contained("\n".join(text.splitlines())).split("\n")
    return "\n".join([f"«{_checked_origin(origin)}:", *(f"| {line}".rstrip() for line in lines), "»"])


def _contained(text: str) -> str:
    """The inside of a quotation. Brackets are folded first: within quotes a `⟨U+…⟩` is never the text's own."""
    return visible(_ANY_TAG.sub("‹", text.translate(_IN_QUOTES)))


def _checked_origin(origin: str) -> str:
    if not _ORIGIN.fullmatch(origin):
        raise InvalidInput(f"{shown(origin)} is no origin", next="Use one of agent, user, tool, web, import")
    return str(origin)


_HTML: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;", "`": "&#96;"})


def html(text: str) -> str:
    """`text` for HTML, as element content or inside a quoted attribute: no tag, entity or attribute of its own."""
    return visible(text).translate(_HTML)


# A bracket with the backslashes before it, and whether rich would take it for the start of a tag.
_RICH_BRACKET: Final = re.compile(r"(\\*)\[(?P<tag>(?=[a-z#/@][^\[]*?\]))?")


def terminal(text: str, *, markup: bool = False) -> str:
    """`text` for a terminal: no escape sequence survives; newlines and tabs stay.

    Args:
        text: What to show.
        markup: True where the text goes through rich's console markup, which is then neutral too. Such a console must
            be told `emoji=False`: its `:name:` codes cannot be escaped. The result is meant to stand between tags, as
            in `[bold]…[/bold]`.
    """
    shown = visible(text)
    if not markup:
        return shown
    shown = _RICH_BRACKET.sub(_literal_bracket, shown)
    # The last backslashes may come to stand before a tag of the caller's.
    return shown + "\\" * (len(shown) - len(shown.rstrip("\\")))


def _literal_bracket(found: re.Match[str]) -> str:
    """Before a tag rich reads backslashes in pairs, an odd one making it literal; elsewhere it drops one before `[`."""
    before = found[1]
    return (before * 2 if found["tag"] is not None else before) + "\\["


_FORMULA: Final = re.compile(r"[\s'\"]*[=+\-@＝＋－＠]|[\t\r\n]")
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def csv_cell(text: str) -> str:
    """`text` as the content of one CSV cell that no spreadsheet takes for a formula.

    A cell that begins with `= + - @`, their full-width forms, a tab or a line break gets an apostrophe in front;
    plain numbers stay numbers. Quoting for the comma is left to the CSV writer.
    """
    if _NUMBER.fullmatch(text):
        return text
    return "'" + visible(text) if _FORMULA.match(text) else visible(text)


# Everywhere: what opens code, emphasis, links, HTML, entities, strikethrough, tables. An underscore inside a word opens
# nothing, and identifiers stay readable.
_MD_INLINE: Final = re.compile(r"[\\`*\[\]<>&|~$]|(?<![^\W_])_|_(?![^\W_])")
# At the start of a line: headings, lists, rules, setext underlines, front matter.
_MD_START: Final = re.compile(r"^(\d{1,9})([.)])|^[#+=:-]", re.MULTILINE)
_MD_INDENT: Final = re.compile(r"^[ \t]", re.MULTILINE)


def markdown(text: str) -> str:
    """`text` as literal text in Markdown: it renders as itself, whatever it holds, and a line stays a line.

    Bare addresses are not broken up; a renderer that makes links of them still may.
    """
    escaped = _MD_INLINE.sub(r"\\\g<0>", visible(text))
    escaped = _MD_START.sub(lambda start: f"{start[1]}\\{start[2]}" if start[1] else "\\" + start[0], escaped)
    # An indent of four makes a code block; written as an entity it is text.
    return _MD_INDENT.sub(lambda blank: f"&#{ord(blank[0])};", escaped)


_ZERO_WIDTH: Final = frozenset(("Mn", "Me", "Cf", "Cc"))


def display_width(text: str) -> int:
    """Columns that `text` takes in a terminal: wide East Asian characters and emoji two, marks none."""
    if text.isascii():
        return len(text)
    width, joined, last = 0, False, 0
    for character in text:
        if character == "\ufe0f" and last == 1:
            width, last = width + 1, 2
        elif (joined and _is_picture(character)) or _is_skin_tone(character, last) or "\u1160" <= character <= "\u11ff":
            pass
        elif character.isascii() or unicodedata.category(character) not in _ZERO_WIDTH:
            last = 2 if unicodedata.east_asian_width(character) in "WF" else 1
            width += last
        joined = character == "\u200d"
    return width


def _is_picture(character: str) -> bool:
    return "\u2190" <= character <= "\u2bff" or character >= "\U0001f000"


def _is_skin_tone(character: str, last: int) -> bool:
    return "\U0001f3fb" <= character <= "\U0001f3ff" and last == 2


def pad(text: str, width: int) -> str:
    """`text` in exactly `width` columns: spaces after it, or cut with `…` where it is too wide."""
    have = display_width(text)
    if have <= width:
        return text + " " * (width - have)
    if width <= 0:
        return ""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if display_width(text[:middle]) < width else (low, middle - 1)
    kept = text[:low].rstrip("\u200d") + "…"
    return kept + " " * (width - display_width(kept))
