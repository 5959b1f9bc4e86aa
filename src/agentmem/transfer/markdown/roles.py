"""What the heading of a section says its content is: failed attempts, decisions, questions, lessons, what is next.

A heading counts as a whole, numbering, brackets and status markers aside; a word inside a longer heading does not.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from attrs import frozen

from .words import clean_heading, plain

__all__ = ["Heading", "Role", "read_heading"]

Role = Literal[
    "failed",
    "tried",
    "worked",
    "rejected",
    "deferred",
    "decision",
    "question",
    "lesson",
    "next",
    "outcome",
    "goal",
    "work",
]

_SCOPE: Final = r"(?:the |our |mvp |v\d+ |this |s\d+ |p\d+ )*"
_WHAT: Final = (
    r"(?:approach(?:es)?|attempts?|options?|alternatives?|ideas?|solutions?|fix(?:es)?|experiments?|hypothes[ei]s|paths?|things?|designs?"
    r"|proposals?|suggestions?|findings?)"
)
_PATTERNS: Final[tuple[tuple[Role, str], ...]] = (
    (
        "failed",
        rf"what (?:has )?failed|failed|failures|failed {_WHAT}|{_WHAT} (?:that|which) (?:failed|did(?:n't| not) work)"
        rf"|(?:what|things that) (?:did(?:n't| not)|does(?:n't| not)) work|(?:tried|attempted) (?:and|but) failed|dead[- ]ends?"
        rf"|unsuccessful {_WHAT}|why (?:the )?(?:earlier |previous )?fix(?:es)? failed|failed (?:so far|things)"
        r"|(?:已|尝试过[且但并]?|试过[且但]?|以往)?(?:已)?失败了?的?(?:方案|尝试|做法|思路|路线|实验|方法|修复)s?|失败的?记录|走不通的?(?:路|方案)?"
        r"|(?:无效|行不通|不可行|不工作)的?(?:方案|尝试|方法|做法)|(?:尝试|试)过(?:但|且)(?:失败|无效|不行)的?(?:方案|方法)?",
    ),
    (
        "tried",
        rf"(?:what (?:i|we)(?: have|'ve)? tried|what was tried|{_WHAT} tried|tried(?: so far)?|attempts?(?: log| so far| made)?"
        r"|experiments?(?: log)?|尝试|尝试记录|(?:尝试|试)过的?(?:方案|方法|做法)?|已尝试的?(?:方案|方法)?|实验记录)",
    ),
    ("worked", rf"what worked|{_WHAT} that worked|what works|成功的?(?:方案|尝试|做法)|有效的?(?:方案|做法|方法)"),
    (
        "rejected",
        rf"(?:explicitly )?out[- ]of[- ]scope(?: reminder| for {_SCOPE}.{{1,20}})?|not in {_SCOPE}scope|non[- ]?goals?(?:, .*)?"
        rf"|(?:explicit )?non[- ]?goals?|rejected(?: {_WHAT})?|{_WHAT} (?:considered (?:and|but) )?(?:rejected|not (?:chosen|taken|adopted))"
        rf"|considered (?:and|but) rejected|not (?:chosen|taken|adopted|doing|planned|to do)|things? not to do|won'?t (?:do|fix)"
        r"|will not do|(?:explicitly )?excluded|discarded(?: \w+)?|declined|exclusions|what (?:we|i) (?:are|am) not doing"
        r"|(?:明确|决定|我们)?不做的?(?:事|事项|部分|内容)?|(?:明确的?)?非目标|不采纳的?(?:方案|建议|意见)?|未采纳的?(?:方案|建议|意见)?"
        r"|(?:已|被)?(?:否决|拒绝|放弃|排除|淘汰)的?(?:方案|选项|想法|建议)?|不在(?:本次|本任务|当前)?\s*(?:mvp|s\d+|v\d+)?\s*(?:范围|scope)之?内?"
        r"|超出(?:本次)?范围|(?:本次)?范围外|范围之外|不考虑的?(?:方案|内容)?|不包[括含]",
    ),
    ("deferred", r"deferred|postponed|parked|not now|暂不(?:做|实现|处理|考虑|支持)|暂缓|推迟|延后|以后再做|后续再做"),
    (
        "decision",
        r"(?:key |main |major |design |technical |architecture |architectural |product |important |refined |final |other |some )*"
        r"decisions?(?: made| log| records?| taken| so far| notes?)?|adrs?(?:[- ]lite)?(?:[- ]?\d+)?|architecture decision records?"
        r"|(?:关键|重要|主要|设计|技术|架构|产品|历史|一些|已有|最终|核心|提取|的)*(?:决策|决定)(?:记录|说明|点|事项)?s?",
    ),
    (
        "question",
        r"(?:remaining |outstanding |other |still )?open (?:questions?|issues?|decisions?|points?)|questions?(?: for .{1,30})?|unresolved(?: \w+)?"
        r"|unknowns|to (?:be )?(?:confirm(?:ed)?|clarif(?:y|ied)|decide[d]?)|pending (?:questions?|decisions?)|needs? clarification|undecided"
        r"|待(?:确认|决策|决定|澄清|讨论|定|商榷|解答)(?:的?(?:问题|事项|点))?|开放(?:性)?问题|未决(?:的?问题|事项)?|疑问|疑点|遗留问题"
        r"|未解决的?问题|需要?确认的?(?:问题|事项)?|有待确认",
    ),
    (
        "lesson",
        r"(?:key |main )?lessons?(?: learn(?:ed|t))?|gotchas?|pitfalls?|(?:key )?learnings?|traps?|watch[- ]?outs?|what (?:i|we) learned"
        r"|notes to self|(?:重要|特别)?注意(?:事项|点)?|踩坑(?:记录|经验|总结|点)?|踩过的坑|避坑(?:指南)?|(?:可复用的?)?经验(?:教训|总结)?|教训"
        r"|心得|坑点?",
    ),
    (
        "next",
        r"next(?: steps?| up| actions?| session| task)?|what(?:'s| is) next|where (?:i|we) (?:stand|are|left off|stopped)|resume (?:here|from)"
        r"|current (?:state|status|position|focus)|where things stand|hand[- ]?off|hand[- ]?over|to (?:continue|resume)|pick up here"
        r"|下一步(?:计划|工作|行动)?|下一?个?\s*session.{0,8}|后续(?:步骤|计划|工作)|接下来|当前(?:状态|进展|进度|位置)|交接|续接点",
    ),
    (
        "outcome",
        r"outcome|results?|final (?:summary|result|outcome)|(?:completion|implementation) summary|what was done|what i did|what we did"
        r"|结果|最终结果|完成(?:总结|情况|内容)|总结|实施总结|已完成工作|成果",
    ),
    ("goal", r"goals?|objectives?|(?:the )?task|mission|目标|任务目标|总目标"),
    (
        "work",
        r"tasks?|to[- ]?dos?|todo list|task list|plan|steps?|work items?|check ?list|implementation(?: plan| steps| checklist)?|action items"
        r"|任务|任务列表|任务清单|待办(?:事项)?|待做|待发布|执行清单|步骤|实施步骤|执行步骤|实施计划|实现计划|计划|执行计划|清单",
    ),
)
_ROLES: Final = tuple((role, re.compile(rf"(?:{pattern})", re.IGNORECASE)) for role, pattern in _PATTERNS)
_SINGLE: Final = re.compile(
    r"^(?:(?:design |key |architecture )?decision|adr)\s*[-#]?\s*\d*\s*[:：—–-]\s*(?P<en>\S.*)$|^(?:decision|adr)[- ]?\d+\s+(?P<en2>\S.*)$"
    r"|^[\w]{0,4}(?:决策|决定)\s*\d*\s*[:：—–-]\s*(?P<zh>\S.*)$",
    re.IGNORECASE,
)
_OUTCOME: Final = re.compile(r"^(?:outcome|result|status|结果|状态)\s*[:：]\s*(\S.*)$", re.IGNORECASE)
_RESOLVED: Final = re.compile(
    r"\b(?:all )?(?:resolved|answered|closed|settled)\b|已(?:全部)?\s*(?:resolved|解决|确认|回答|定)", re.IGNORECASE
)
_PAREN: Final = re.compile(r"\s*[（(\[][^（()）\[\]]*[)）\]]\s*$")
_SEPARATOR: Final = re.compile(r"\s*(?:/|&|\+|,|，|、|\band\b|和|与)\s*")
_EDGE: Final = re.compile(r"^[^\w\s]+\s*|\s*[^\w\s)）\]】]+$")


@frozen
class Heading:
    """A heading, read.

    Args:
        role: What it says its content is, None where it says nothing.
        topic: What a heading of one record names: `Decision 1: order of commits` gives `order of commits`.
        resolved: Whether it says that its questions are answered.
        outcome: The value of `Outcome: …`.
    """

    role: Role | None
    topic: str = ""
    resolved: bool = False
    outcome: str = ""


def read_heading(text: str) -> Heading:
    """The role of a heading; numbering, emphasis, signs and brackets at the end do not matter."""
    line = clean_heading(text)
    outcome = _OUTCOME.match(line)
    if outcome:
        return Heading("outcome", outcome=outcome[1])
    single = _SINGLE.match(line)
    if single:
        return Heading("decision", topic=(single["en"] or single["en2"] or single["zh"]).strip())
    resolved = bool(_RESOLVED.search(line))
    whole = _candidates(line)
    for candidate in whole:
        role = _role_of(candidate)
        if role:
            return Heading(role, resolved=resolved)
    parts = [_role_of(part) for part in _SEPARATOR.split(whole[-1]) if part.strip()] if whole else []
    return Heading(parts[0] if parts and all(parts) else None, resolved=resolved)


def _role_of(text: str) -> Role | None:
    return next((role for role, pattern in _ROLES if pattern.fullmatch(text.strip())), None)


def _candidates(line: str) -> list[str]:
    """The whole heading, then without the brackets and signs at its ends."""
    bare = plain(line).replace("`", "").strip()
    found = [bare]
    for _ in range(3):
        shorter = _EDGE.sub("", _PAREN.sub("", found[-1])).strip()
        if not shorter or shorter == found[-1]:
            break
        found.append(shorter)
    return [candidate for candidate in found if candidate]
