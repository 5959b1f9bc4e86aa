"""The documentation as data: its files, their headings, code blocks and links."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import Final

from attrs import frozen
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT: Final = Path(__file__).resolve().parents[2]
_TOP: Final = ("README.md", "README.zh.md", "CHANGELOG.md", "SECURITY.md")


@frozen
class Block:
    """A fenced block: the word after its fence, its text, the line it begins at, counted from 1."""

    language: str
    text: str
    line: int


@frozen
class Document:
    """One file of the documentation.

    Attributes:
        path: Relative to the root.
        blocks: Its fenced blocks, in order.
        headings: Level and text of each heading.
        links: Where its links and pictures lead, as written.
    """

    path: str
    blocks: tuple[Block, ...]
    headings: tuple[tuple[int, str], ...]
    links: tuple[str, ...]

    @property
    def anchors(self) -> frozenset[str]:
        """The fragments that lead to a heading, as code hosts make them."""
        found: dict[str, int] = {}
        anchors = set()
        for _, text in self.headings:
            slug = _slug(text)
            number = found.get(slug, 0)
            found[slug] = number + 1
            anchors.add(f"{slug}-{number}" if number else slug)
        return frozenset(anchors)


def documents() -> list[Document]:
    """Every document, the ones at the root first. The example folders are data."""
    paths = [*_TOP, *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
    return [read(path) for path in paths]


def read(path: str) -> Document:
    """One document, parsed."""
    tokens = MarkdownIt("commonmark").enable("table").parse((ROOT / path).read_text("utf-8"))
    blocks, headings, links = [], [], []
    for position, token in enumerate(tokens):
        if token.type == "fence":
            assert token.map is not None
            blocks.append(Block(token.info.split(" ")[0], token.content, token.map[0] + 2))
        elif token.type == "heading_open":
            headings.append((int(token.tag[1]), _text(tokens[position + 1])))
        elif token.type == "inline":
            links += [str(child.attrs.get("href") or child.attrs.get("src")) for child in token.children or ()
                      if child.type in ("link_open", "image")]  # fmt: skip
    return Document(path, tuple(blocks), tuple(headings), tuple(links))


def _text(token: Token) -> str:
    return "".join(child.content for child in token.children or () if child.type in ("text", "code_inline"))


def _slug(text: str) -> str:
    kept = (char for char in text.strip().lower() if char in "-_ " or unicodedata.category(char)[0] in "LNM")
    return "".join(kept).replace(" ", "-")


def shown_by(expected: str, output: str) -> bool:
    """Whether an output is the one that a document shows; `…` stands for anything, times for any time."""
    pieces = [re.escape(line.rstrip()) for line in expected.strip("\n").split("\n")]
    pattern = "\n".join(pieces).replace("…\n", "…").replace("\n…", "…").replace("…", "(?s:.*?)")
    lines = "\n".join(line.rstrip() for line in output.strip("\n").split("\n"))
    return re.fullmatch(pattern, lines) is not None
