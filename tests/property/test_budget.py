"""Promises of the fitting of answers into a budget, over arbitrary sections, lines, budgets and counters."""

from __future__ import annotations

import re

import pytest
from attrs import evolve
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agentmem import limits
from agentmem.context.budget import STUB_TOKENS, Fitted, Line, Section, fit
from agentmem.context.escape import quoted, quoted_block
from agentmem.context.tokens import count_tokens
from agentmem.errors import InvalidInput

# A loaded machine is no failure.
untimed = settings(deadline=None)

NAMES = ("where", "left", "attempts", "questions", "decisions", "results", "facts", "news")
GIANT = 256 * 1024
HOSTILE = {
    "latin": "lorem ipsum dolor ",
    "chinese": "数据库索引",
    "emoji": "👩‍👩‍👧‍👦🧪",
    "hex": "9f86d081884c7d659a2feaa0c55ad015",
    "spaces": "    ",
    "newlines": "\n",
    "marks": "e\u0301\u0302\u0303\u0304",
    "quotes": "«web: »«",
    "cuts": "\ncut: left 0 · ",
    "surrogate": "\ud800x",
    "punctuation": "}{)(*&^%$#@!",
}


def repeated(key: str, size: int) -> str:
    return (HOSTILE[key] * (size // len(HOSTILE[key]) + 1))[:size]


def sentence(words: int) -> str:
    return " ".join(["#12", *(["word", "test", "in"] * words)][: words + 1])


hostile = st.builds(repeated, st.sampled_from(sorted(HOSTILE)), st.sampled_from([1, 30, 150]))
plain = st.integers(1, 40).map(sentence)
texts = st.one_of(plain, plain, hostile, st.text(max_size=80))
lines = st.builds(
    Line,
    text=texts,
    short=st.none() | st.sampled_from(["#7 short", "#8 " + "longer form " * 12]),
    ref=st.sampled_from(["", "get(12)"]),
    limit=st.sampled_from([60, 60, 60, 20, 400]),
)


@st.composite
def sections(draw, *, most=8):
    made = []
    for name in NAMES[: draw(st.integers(0, most))]:
        content = draw(st.lists(lines, max_size=8))
        made.append(
            Section(
                name=name,
                title=draw(st.sampled_from(["", f"## {name}"])),
                share=draw(st.sampled_from([0.03, 0.1, 0.2, 0.5])),
                lines=content,
                total=draw(st.none() | st.just(len(content) + 4321)),
                more=draw(st.sampled_from(["", f"{name}(task=12)"])),
            )
        )
    return made


def grown(made: list[Section], times: int) -> list[Section]:
    """Sections with more and longer lines, made here so that a failing example stays readable."""
    return [
        evolve(
            section,
            lines=[evolve(line, text=line.text * (times if len(line.text) > 100 else 1)) for line in section.lines]
            * times,
            total=section.total and section.total * times,
        )
        for section in made
    ]


sizes = st.sampled_from([1, 1, 4, 20])
budgets = st.one_of(st.integers(limits.BUDGET_MIN, 900), st.sampled_from([2000, 8000, limits.BUDGET_MAX]))


def words(text: str) -> int:
    return len(text.split())


def stepped(text: str) -> int:
    return -(-len(text) // 7) * 5


def superadditive(text: str) -> int:
    return len(text) ** 2 // 900


def heavy_start(text: str) -> int:
    return 200 + len(text) // 4 if text else 0


def dear_newlines(text: str) -> int:
    return len(text) // 4 + 40 * text.count("\n")


counters = st.sampled_from([count_tokens, len, words, stepped, superadditive, heavy_start, dear_newlines])


def totals_are_exact(fitted: Fitted, head, made) -> None:
    expected = {"head": len(head)} | {section.name: section.count for section in made}
    assert {name: fitted.shown[name] + fitted.omitted[name] for name in expected} == expected
    assert set(fitted.shown) == set(fitted.omitted) == set(fitted.shortened) == set(expected)


@given(head=st.lists(lines, max_size=3), made=sections(), budget=budgets, counter=counters, times=sizes)
@untimed
def test_budget_holds(head, made, budget, counter, times):
    """The whole text costs at most the budget, by any counter, and shown and omitted make the total."""
    made = grown(made, times)
    fitted = fit(head, made, budget=budget, counter=counter, more="resume(budget=4000)")
    assert counter(fitted.text) == fitted.tokens <= budget
    totals_are_exact(fitted, head, made)


@given(head=st.lists(lines, max_size=3), made=sections(), budget=budgets, times=sizes)
@untimed
def test_nothing_is_lost_in_silence(head, made, budget, times):
    """A section that has lines is in the text, or in the line of cuts with the exact number, or both."""
    made = grown(made, times)
    fitted = fit(head, made, budget=budget, more="resume(budget=4000)")
    last = fitted.text.rsplit("\n", 1)[-1]
    for name, omitted in fitted.omitted.items():
        if omitted:
            assert re.search(rf"(?:^cut: | · ){name} {omitted}(?: \(| · |$)", last), (name, omitted, last)


@given(made=sections(), budget=budgets, times=sizes)
@untimed
def test_each_cut_names_a_call(made, budget, times):
    """Where the budget allows, each cut names the call of its section, otherwise one call serves all."""
    made = grown(made, times)
    fitted = fit([], made, budget=budget, more="resume(budget=4000)")
    last = fitted.text.rsplit("\n", 1)[-1]
    cut_sections = [section for section in made if fitted.omitted[section.name]]
    assume(cut_sections)
    assert "resume(budget=4000)" in last or all((section.more or "none") in last for section in cut_sections)


@given(drawn=st.lists(st.lists(st.tuples(texts, st.booleans()), max_size=30), max_size=8), budget=budgets)
@untimed
def test_order_is_kept(drawn, budget):
    """The lines shown are the first ones of their section, in their order, and the sections stand in theirs."""
    made = [
        Section(f"{part}", f"## {part}", 0.1, [marked(part, index, *line) for index, line in enumerate(content)])
        for part, content in enumerate(drawn)
    ]
    fitted = fit([], made, budget=budget)
    expected = [f"{{{section.name}.{index}}}" for section in made for index in range(fitted.shown[section.name])]
    assert re.findall(r"\{\d+\.\d+\}", fitted.text) == expected


def marked(part: int, index: int, text: str, has_short: bool) -> Line:
    mark = f"{{{part}.{index}}} "
    return Line(mark + text, short=mark + "short" if has_short else None, limit=60)


@given(
    head=st.lists(lines, max_size=2),
    made=sections(most=5),
    budget=st.integers(limits.BUDGET_MIN, 2500),
    more=st.integers(1, 300),
)
@untimed
def test_more_budget_never_shows_less(head, made, budget, more):
    """A larger budget shows no fewer lines of any section."""
    small = fit(head, made, budget=budget)
    large = fit(head, made, budget=budget + more)
    for name, shown in small.shown.items():
        assert large.shown[name] >= shown, name


@given(made=sections(), budget=budgets, times=sizes)
@untimed
def test_same_in_same_out(made, budget, times):
    """The fitting is a function of its arguments."""
    made = grown(made, times)
    assert fit([], made, budget=budget) == fit([], made, budget=budget)


@given(key=st.sampled_from(sorted(HOSTILE)), budget=st.sampled_from([300, 301, 800, 2000]))
@settings(untimed, max_examples=25)
def test_a_giant_first_line_hides_nothing(key, budget):
    """A first line of 256 KiB is shortened, and the lines after it are still shown."""
    giant = repeated(key, GIANT)
    made = [
        Section(
            "left", "## left", 0.5, [Line("#1 " + giant), Line("#2 second"), Line("#3 third")], more="left(task=1)"
        ),
        Section("facts", "## facts", 0.5, [Line("#4 " + giant), Line("#5 fifth")], more="find(kind='fact')"),
    ]
    fitted = fit([Line("#9 goal " + giant)], made, budget=budget)
    assert fitted.tokens <= budget
    assert fitted.shown["left"] >= 2
    assert "#2 second" in fitted.text
    assert "#5 fifth" in fitted.text


@pytest.mark.parametrize("key", sorted(HOSTILE))
def test_minimum_holds_when_every_line_is_giant(key):
    """At the minimum budget, with eight sections of giant lines only, every section is in the line of cuts or shown."""
    giant = repeated(key, GIANT)
    made = [Section(n, f"## {n}", 0.1, [Line(giant)] * 40, total=5000, more=f"{n}(task=12)") for n in NAMES]
    fitted = fit([Line(giant)], made, budget=limits.BUDGET_MIN, more="resume(task=12, budget=4000)")
    assert count_tokens(fitted.text) <= limits.BUDGET_MIN
    totals_are_exact(fitted, [1], made)
    assert all(f"{name} {fitted.omitted[name]}" in fitted.text for name in NAMES)


def test_no_section_starves():
    """A first section with far too many lines leaves every other its share."""
    made = [Section(n, f"## {n}", 0.125, [Line(f"#{i} {n} item number {i}") for i in range(300)]) for n in NAMES]
    fitted = fit([], made, budget=2000)
    assert min(fitted.shown.values(), default=0) == fitted.shown["head"] == 0
    assert all(fitted.shown[name] >= 5 for name in NAMES)


def test_what_a_section_leaves_goes_to_the_next():
    """An almost empty section lends its share to the one after it."""
    many = [Line(f"#{i} something that is left to do here") for i in range(300)]
    alone = fit([], [Section("a", "", 0.5, many), Section("b", "", 0.5, many)], budget=1000)
    lent = fit([], [Section("a", "", 0.5, many[:1]), Section("b", "", 0.5, many)], budget=1000)
    back = fit([], [Section("a", "", 0.5, many), Section("b", "", 0.5, many[:1])], budget=1000)
    assert lent.shown["b"] > alone.shown["b"] * 1.7
    assert back.shown["a"] > alone.shown["a"] * 1.7


def test_everything_is_shown_in_full_where_it_fits():
    """An answer that fits has no line of cuts, and long lines stand in full."""
    long = "#1 " + "a long checkpoint that says where the work stands. " * 8
    fitted = fit([Line("goal")], [Section("where", "## where", 0.2, [Line(long), Line("#2 b")])], budget=2000)
    assert fitted.text == f"goal\n## where\n{long}\n#2 b"
    assert not any(fitted.omitted.values())
    assert not any(fitted.shortened.values())


@given(text=st.text(alphabet="ab «»\n|:", min_size=200, max_size=2000), budget=st.integers(300, 500))
@untimed
def test_a_shortened_quotation_is_closed(text, budget):
    """Where a cut falls inside a marked quotation, the closing mark still follows."""
    made = [
        Section("news", "", 1, [Line("#1 " + quoted(text * 9, "web")), Line("#2 " + quoted_block(text * 9, "tool"))])
    ]
    fitted = fit([], made, budget=budget)
    assert fitted.shortened["news"] == 2
    assert fitted.text.count("«") == fitted.text.count("»") == 2


@pytest.mark.parametrize("budget", [limits.BUDGET_MIN - 1, limits.BUDGET_MAX + 1, 0, -5, 2000.0, True, None, "2000"])
def test_budget_out_of_range_is_refused(budget):
    """A budget that is no whole number in range is an error that names the range."""
    with pytest.raises(InvalidInput, match=r"300 to 1000000"):
        fit([], [], budget=budget)


def test_names_must_be_unique():
    """Two sections of one name are refused, since their counts could not be told apart."""
    with pytest.raises(InvalidInput):
        fit([], [Section("left", "", 1, []), Section("left", "", 1, [])])


def test_a_counter_that_nothing_satisfies_is_an_error():
    """By a counter for which even the line of cuts is too much no empty answer comes silently."""
    made = [Section("left", "", 1, [Line("#1 a"), Line("#2 b")])]
    with pytest.raises(InvalidInput, match="Nothing fits"):
        fit([], made, budget=300, counter=lambda text: 301 if text else 0)


def test_each_line_is_counted_few_times():
    """Three hundred lines cost a number of counts in proportion to what is shown, not to its square."""
    counted: list[int] = []

    def counter(text: str) -> int:
        counted.append(len(text))
        return count_tokens(text)

    many = [Line(f"#{i} something that is left to do here, with a reason of some length behind it") for i in range(300)]
    fitted = fit([], [Section("left", "## left", 1, many, more="left()")], budget=2000, counter=counter)
    assert fitted.shown["left"] > STUB_TOKENS
    assert sum(counted) < 8 * len("\n".join(line.text for line in many))
