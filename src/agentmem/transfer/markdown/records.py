"""Sections that hold records: failed attempts, what is not done, decisions, questions, lessons."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from attrs import evolve, frozen

from agentmem.transfer.markdown.blocks import Block, Item, Row, Section
from agentmem.transfer.markdown.labels import (
    ASKS_WHY,
    asks_nothing,
    is_answered,
    is_label_only,
    is_reason_label,
    outcome_of_word,
    read_labels,
    reason_in,
    says_all,
    split_inline,
    untold,
)
from agentmem.transfer.markdown.roles import Heading, Role, read_heading
from agentmem.transfer.markdown.status import Status, is_status_label, split_marker
from agentmem.transfer.markdown.tables import is_rejected, verdict_column
from agentmem.transfer.markdown.types import NoteKind
from agentmem.transfer.markdown.words import first_sentence, is_placeholder, label_of, lead, plain, split_reason

if TYPE_CHECKING:
    from .drafts import Draft
    from .outline import Outline, Place

__all__ = ["RecordMaker", "is_record_role", "is_undecided"]

_KINDS: Final[dict[Role, NoteKind]] = {
    "failed": "attempt",
    "tried": "attempt",
    "worked": "attempt",
    "rejected": "decision",
    "excluded": "decision",
    "deferred": "decision",
    "decision": "decision",
    "rule": "decision",
    "question": "question",
    "lesson": "lesson",
    "beware": "lesson",
}
_NOT_DONE: Final = ("rejected", "excluded", "deferred")
_MAY_BE_WORK: Final = ("decision", "rule", "lesson", "beware")
_NEGATED: Final = re.compile(
    r"^(?:no|not|do not|don't|never|none|nothing|without|avoid|skip|we (?:do not|don't|will not|won't))\b"
    r"|^[不无非勿未别没]|不[做动改加变再需]|^(?:禁止|避免)",
    re.IGNORECASE,
)
_BOLD_SENTENCE: Final = re.compile(r"^(?:\*\*|__)(.{8,}?[.。!！])(?:\*\*|__)\s*(?=\S)")
_REASON_INSIDE: Final = re.compile(r"(?<=[。.;；])\s*(?:理由|原因|reason|rationale|why)\s*[:：]\s*", re.IGNORECASE)
_NUMBERED: Final = re.compile(r"^\s*(\d{1,3})[.)]\s")
_NUMBERS: Final = re.compile(r"[#\d.\s]+")
_SHORT: Final = 60
_TITLE_CHARS: Final = 200


def is_record_role(role: Role | None) -> bool:
    """Whether the sections of a role hold records of their own."""
    return role in _KINDS


def is_undecided(role: Role | None, section: Section) -> bool:
    """Whether boxes make a section one of things to do, where its heading alone would make it one of records."""
    return role in _MAY_BE_WORK and section.boxes > 0


@frozen
class RecordMaker:
    """Makes the records of such sections, within the outline of a file."""

    outline: Outline
    place: Place

    def section(self, section: Section, heading: Heading, path: tuple[str, ...]) -> None:
        """The records of a section: one for each section, item or row in it, or the section as one."""
        role = heading.role
        if role is None:
            return
        if heading.topic or (role == "decision" and self._is_one(section)):
            self._single(section, heading, path)
            return
        for child in section.sections:
            child_heading = self.outline.heading(child)
            title = split_marker(child.title)[0]
            if not self.outline.worth(child):
                continue
            if is_record_role(child_heading.role) and child_heading.role != role:
                self.outline.section(child, path, self.place)
            else:
                self._single(child, evolve(heading, topic=child_heading.topic or title), (*path, title))
            self.outline.take(child.start, child.end)
        made = self._blocks(section.blocks, role, path, resolved=heading.resolved)
        rest = self.outline.text(section.body, section.end)
        if not rest or is_placeholder(rest):
            return
        if made or section.sections:
            draft = self.outline.note(
                "fact", section.title, path, self.place.text, line=section.start, place=self.place
            )
            draft.body = rest
        else:
            self._single(section, heading, path)

    def _is_one(self, section: Section) -> bool:
        """Whether a section of decisions is one decision told in prose, or with the labels of an ADR."""
        if section.sections:
            return False
        if read_labels(self.outline.lines[section.body : section.own_end]).decided:
            return True
        first = next((block for block in section.blocks if block.kind != "other"), None)
        return first is not None and first.kind == "paragraph" and not first.text.rstrip(" *").endswith((":", "："))

    def _single(self, section: Section, heading: Heading, path: tuple[str, ...]) -> None:
        """A whole section as one record."""
        role = heading.role
        if role is None:
            return
        outline = self.outline
        text = outline.lines[section.body : section.end]
        labels = read_labels(text)
        decided, why = labels.decided, labels.why
        prose = next(
            (block.text for block in section.blocks if block.kind == "paragraph" and not is_label_only(block.text)), ""
        )
        title = heading.topic
        if role == "decision" and outline.adr and not title:
            title = outline.adr
        elif role == "decision" and decided:
            title = f"{title}: {lead(decided)}" if title else lead(decided)
        elif not title:
            title = lead(prose) if prose else section.title
        if role == "decision" and ASKS_WHY.match(title) and prose:
            title, why = ASKS_WHY.sub("", title).rstrip("?？ "), why or plain(prose)
        marker = split_marker(section.title)[1]
        draft = self._note(role, title, path, section.start, marker, resolved=heading.resolved)
        if draft.kind == "attempt":
            draft.status = outcome_of_word(labels.outcome) or draft.status
        inner = evolve(self.place, text=draft.source)
        for child in section.sections:
            if is_record_role(outline.heading(child).role) and outline.worth(child):
                outline.section(child, path, inner)
        draft.body = outline.section_text(section)
        if not why and role in ("failed", "tried", *_NOT_DONE):
            why = self._why(section, prose)
        draft.why = "" if says_all(plain(why), title, "") else why
        _tell_once(draft)
        outline.take(section.body, section.end)

    def _why(self, section: Section, prose: str) -> str:
        """Why an attempt described in a section failed: its negative points, else its first sentence."""
        items = [item for inner in section.walk() for block in inner.blocks for item in block.items]
        marked = [(split_marker(item.text), item) for item in items]
        against = [title for (title, status), _ in marked if status and status.value == "failed"]
        if against:
            return "; ".join(plain(title) for title in against)
        plain_items = [item.text for (_, status), item in marked if status is None]
        return plain(prose) or "; ".join(plain(text) for text in plain_items[:5])

    def _blocks(self, blocks: tuple[Block, ...], role: Role, path: tuple[str, ...], *, resolved: bool) -> int:
        made = 0
        foreign = False
        for block in blocks:
            if block.kind in ("paragraph", "code", "other"):
                foreign = block.kind == "paragraph" and self._is_foreign_label(block.text, role)
            elif foreign:
                continue
            elif block.kind == "list":
                for item in block.items:
                    made += self._item(item, role, path, resolved=resolved)
            elif block.kind == "table":
                for row in block.rows:
                    made += self._row(block, row, role, path, resolved=resolved)
                if made:
                    self.outline.take(block.start, block.start + 2)
        return made

    def _is_foreign_label(self, text: str, role: Role) -> bool:
        """Whether a paragraph is a label of something else, "Updated files:" say: the list after it is no record."""
        line = text.strip()
        if not is_label_only(line) and not (line.endswith((":", "：")) and "**" in line and len(line) < 80):
            return False
        return read_heading(plain(line).rstrip(" :：")).role != role

    def _item(self, item: Item, role: Role, path: tuple[str, ...], *, resolved: bool) -> bool:
        """One item as one record; what is nested in it is its body."""
        bare, marker = split_marker(item.text)
        if is_placeholder(bare) or (role == "question" and asks_nothing(bare)):
            return False
        if role == "decision" and self._is_reason_of_last(item):
            return True
        if item.dropped and role in ("decision", *_NOT_DONE):
            role, bare = "rejected", item.bare
        if item.done is not None:
            marker = Status("done" if item.done else "open")
        title, why = self._title_and_why(bare, role)
        if title.endswith((":", "：")):
            below = next((inner.text for block in item.blocks for inner in block.items), "")
            title = f"{title} {first_sentence(below)}" if below else title
        draft = self._note(
            role,
            title,
            (*path, bare),
            item.start,
            marker,
            resolved=resolved or (role == "question" and is_answered(item)),
        )
        nested = "\n".join(self.outline.lines[item.start + 1 : item.end]) if item.blocks else ""
        whole = plain(item.text)
        parts = [item.text] if not says_all(whole, title, why) else []
        if role == "rule" and (number := _NUMBERED.match(self.outline.lines[item.start])):
            draft.title = f"Rule {number[1]}: {title}"  # others name it by its number
        draft.why = why or next(filter(None, (reason_in(inner.text) for inner in item.walk() if inner is not item)), "")
        draft.body = "\n".join([*parts, *([nested] if nested.strip() else [])])
        _tell_once(draft)
        self.outline.take(item.start, item.end)
        return True

    def _is_reason_of_last(self, item: Item) -> bool:
        """Whether an item gives the reason of the decision just before it, which it then becomes."""
        reason = reason_in(item.text)
        last = self.outline.drafts.notes[-1] if self.outline.drafts.notes else None
        if not reason or last is None or last.kind != "decision" or item.blocks:
            return False
        last.why = "\n".join(filter(None, (last.why, reason)))
        self.outline.take(item.start, item.end)
        return True

    def _title_and_why(self, text: str, role: Role) -> tuple[str, str]:
        line = plain(text)
        if role in ("failed", "tried", "worked", *_NOT_DONE):
            head, why = split_reason(text, arrows=role in ("failed", "tried", "worked"))
            title = plain(head)
            if role == "excluded" and len(line) <= _TITLE_CHARS:
                return line, ""  # read whole: what looks like a reason often says the rest of what is not ours
            return title if len(title) <= 2 * _TITLE_CHARS else lead(title), plain(why)
        bold = _BOLD_SENTENCE.match(text)
        if role == "decision" and bold:
            return plain(bold[1]), plain(text[bold.end() :])
        reason = _REASON_INSIDE.search(line) if role == "decision" else None
        if reason:
            return line[: reason.start()].strip(), line[reason.end() :].strip()
        return lead(line), ""

    def _row(self, block: Block, row: Row, role: Role, path: tuple[str, ...], *, resolved: bool) -> bool:
        """One row as one record: the first telling column is the title, the others are the body."""
        cells = [plain(cell) for cell in row.cells]
        named = [n for n, cell in enumerate(cells) if not is_placeholder(cell) and not _NUMBERS.fullmatch(cell)]
        if not named:
            return False
        pairs = list(zip(block.header, cells, strict=False))
        others = [pair for n, pair in enumerate(pairs) if n != named[0] and pair[1]]
        title = cells[named[0]]
        if role == "decision" and others and len(title) < _SHORT:
            title = f"{title}: {first_sentence(others[0][1])}"
        said = next((status for _, cell in others if (status := split_marker(cell)[1])), None)
        draft = self._note(role, title, (*path, cells[named[0]]), row.line, said, resolved=resolved)
        if draft.kind == "attempt":
            told = (outcome_of_word(cell) for header, cell in others if is_status_label(header))
            draft.status = next(filter(None, told), draft.status)
        reason = next((cell for header, cell in others if is_reason_label(header)), "")
        fallback = others[-1][1] if others and role in ("failed", "tried", *_NOT_DONE) else ""
        draft.why = reason or fallback
        draft.body = "\n".join(f"{header}: {cell}" if header else cell for header, cell in pairs if cell)
        _tell_once(draft)
        self.outline.take(row.line, row.line + 1)
        return True

    def verdicts(self, block: Block, path: tuple[str, ...]) -> None:
        """The rejected rows of a table of proposals with verdicts; the table itself stays in the text."""
        columns = verdict_column(block)
        if columns is None:
            return
        subject, verdict = columns
        for row in block.rows:
            if not is_rejected(row, verdict):
                continue
            title = plain(row.cells[subject])
            draft = self._note("rejected", title, (*path, title), row.line, None)
            draft.why = plain(split_reason(row.cells[verdict])[1])

    def struck(self, block: Block, path: tuple[str, ...]) -> None:
        """Boxes that are struck through with a reason: what they name is not done, and why."""
        for item in (inner for top in block.items for inner in top.walk()):
            if item.done is None or not item.dropped or not item.struck_why or item.blocks:
                continue
            draft = self._note("rejected", plain(item.bare), (*path, item.bare), item.start, None)
            draft.why = plain(item.struck_why)
            self.outline.take(item.start, item.end)

    def labelled(self, block: Block, after: tuple[Block, ...], path: tuple[str, ...]) -> None:
        """A paragraph that begins with a label such as **Out of scope** and speaks for what follows it."""
        first, _, more = block.text.partition("\n")
        label = label_of(first) or (
            (first.rstrip(" :："), "") if first.rstrip().endswith((":", "：")) and len(first) < 60 else None
        )
        if label is None:
            return
        heading = self.outline.read(label[0])
        role = heading.role
        if role is None or role in ("tried", "worked") or not is_record_role(role):
            return
        rest = " ".join(part for part in (label[1], more.strip()) if part)
        below = (*path, label[0])
        if rest and role in ("failed", *_NOT_DONE):
            for part in split_inline(rest):
                title, why = self._title_and_why(part, role)
                self._note(role, title, (*below, title), block.start, None).why = why
        elif rest and role == "decision":
            draft = self._note(role, lead(rest), below, block.start, None)
            draft.body = rest
        elif not rest and after and after[0].kind in ("list", "table"):
            made = self._blocks(after[:1], role, below, resolved=heading.resolved)
            if made:
                self.outline.take(block.start, block.end)
            return
        else:
            return
        self.outline.take(block.start, block.end)

    def _note(
        self, role: Role, title: str, path: tuple[str, ...], line: int, marker: Status | None, *, resolved: bool = False
    ) -> Draft:
        said = _said(role, marker, resolved=resolved)
        if role == "rejected" and not _NEGATED.match(title):
            title = f"Not doing: {title}"
        elif role == "excluded" and not _NEGATED.match(title):
            title = f"Out of scope: {title}"
        elif role == "deferred":
            title = f"Not now: {title}"
        draft = self.outline.note(_KINDS[role], title, path, self.place.work, line=line, place=self.place)
        draft.status = said
        if role in ("excluded", "rule") and (self.outline.governs or not self.place.in_task):
            draft.tags = (*draft.tags, "scope")
        return draft


def _tell_once(draft: Draft) -> None:
    """Leave out of the body of an attempt what its title, status and reason say."""
    if draft.kind == "attempt":
        draft.body = untold(draft.body, draft.title, draft.status, draft.why)


def _said(role: Role, marker: Status | None, *, resolved: bool) -> str:
    """The status of a record: of an attempt by its section, else by its marker; of a question by its answer."""
    value = marker.value if marker else None
    if role == "failed":
        return "failed"
    if role == "worked":
        return "worked"
    if role == "tried":
        return "worked" if value == "done" else "failed" if value in ("failed", "dropped") else "unclear"
    if role == "question":
        return "dropped" if value == "dropped" else "done" if resolved or value == "done" else "open"
    return "dropped" if role in _MAY_BE_WORK and value in ("dropped", "failed") else "active"
