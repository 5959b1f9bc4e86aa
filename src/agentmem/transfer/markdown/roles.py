"""What the heading of a section says its content is: failed attempts, decisions, questions, lessons, what is next.

A heading counts as a whole, numbering, brackets and status markers aside; a word inside a longer heading does not.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal

from attrs import frozen

from agentmem.engine.database import Database
from agentmem.records.cleaning import dropped_by
from agentmem.transfer.markdown.words import clean_heading, plain

__all__ = ["Heading", "Role", "is_excluded", "read_heading"]

Role = Literal[
    "failed",
    "tried",
    "worked",
    "rejected",
    "excluded",
    "deferred",
    "decision",
    "rule",
    "question",
    "lesson",
    "beware",
    "standing",
    "next",
    "outcome",
    "goal",
    "work",
]

_WHICH: Final = (
    r"(?:key|main|major|design|technical|architecture|architectural|product|important|refined|final|other|some)"
)
_SCOPE: Final = r"(?:the |our |mvp |v\d+ |this |s\d+ |p\d+ )*"
_WHAT: Final = (
    r"(?:approach(?:es)?|attempts?|options?|alternatives?|ideas?|solutions?|fix(?:es)?|experiments?|hypothes[ei]s|paths?|things?|designs?"
    r"|proposals?|suggestions?|findings?)"
)
_PATTERNS: Final[tuple[tuple[Role, tuple[str, ...]], ...]] = (
    (
        "excluded",
        (
            rf"(?:explicitly )?out[- ]of[- ]scope(?: reminder| for {_SCOPE}.{{1,20}})?",
            rf"not in {_SCOPE}scope",
            r"scope exclusions?",
            r"not ours(?: to .{1,20})?",
            r"(?:do not|don'?t|never) touch",
            r"hands[- ]off",
            r"off[- ]limits",
            r"不在(?:本次|本任务|当前|测试|授权)?\s*(?:mvp|s\d+|v\d+)?\s*(?:范围|scope)之?内?(?:的.{1,6})?",
            r"超出(?:本次|测试|授权)?范围(?:的.{1,6})?",
            r"(?:本次|测试|授权)?范围之?外(?:的.{1,6})?",
            r"(?:请|切)?勿(?:动|碰|触碰)",
            r"(?:别|不要|不许|不能|不可|禁止)(?:去)?(?:动|碰|触碰)的?(?:东西|部分|系统)?",
        ),
    ),
    (
        "rule",
        (
            r"(?:the |our |ground |house |scope |test(?:ing)? )*rules(?: of (?:the )?(?:engagement|road|game))?",
            r"boundar(?:y|ies)",
            r"(?:基本|测试|交战|行为|工作|参与|授权)?规则",
            r"(?:测试|授权|工作)?边界",
            r"红线",
        ),
    ),
    (
        "failed",
        (
            r"what (?:has )?failed",
            r"failed",
            r"failures",
            rf"failed {_WHAT}",
            rf"{_WHAT} (?:that|which) (?:failed|did(?:n't| not) work)",
            r"(?:what|things that) (?:did(?:n't| not)|does(?:n't| not)) work",
            r"(?:tried|attempted) (?:and|but) failed",
            r"dead[- ]ends?",
            rf"unsuccessful {_WHAT}",
            r"why (?:the )?(?:earlier |previous )?fix(?:es)? failed",
            r"failed (?:so far|things)",
            r"(?:已|尝试过[且但并]?|试过[且但]?|以往)?(?:已)?失败了?的?(?:方案|尝试|做法|思路|路线|实验|方法|修复)s?",
            r"失败的?记录",
            r"走不通的?(?:路|方案)?",
            r"(?:无效|行不通|不可行|不工作)的?(?:方案|尝试|方法|做法)",
            r"(?:尝试|试)过(?:但|且)(?:失败|无效|不行)的?(?:方案|方法)?",
        ),
    ),
    (
        "tried",
        (
            r"what (?:i|we)(?: have|'ve)? tried",
            r"what was tried",
            rf"{_WHAT} tried",
            r"tried(?: so far)?",
            r"attempts?(?: log| so far| made)?",
            r"experiments?(?: log)?",
            r"尝试",
            r"尝试记录",
            r"(?:尝试|试)过的?(?:方案|方法|做法)?",
            r"已尝试的?(?:方案|方法)?",
            r"实验记录",
        ),
    ),
    (
        "worked",
        (
            r"what worked",
            rf"{_WHAT} that worked",
            r"what works",
            r"成功的?(?:方案|尝试|做法)",
            r"有效的?(?:方案|做法|方法)",
        ),
    ),
    (
        "rejected",
        (
            r"non[- ]?goals?(?:, .*)?",
            r"(?:explicit )?non[- ]?goals?",
            rf"rejected(?: {_WHAT})?",
            rf"{_WHAT} (?:considered (?:and|but) )?(?:rejected|not (?:chosen|taken|adopted))",
            r"considered (?:and|but) rejected",
            r"not (?:chosen|taken|adopted|doing|planned|to do)",
            r"things? not to do",
            r"won'?t (?:do|fix)",
            r"will not do",
            r"(?:explicitly )?excluded",
            r"discarded(?: \w+)?",
            r"declined",
            r"exclusions",
            r"what (?:we|i) (?:are|am) not doing",
            r"not (?:in|part of|for) this (?:task|release|version|project)",
            r"not planned(?:, and why)?",
            r"not (?:done|doing), and why",
            r"(?:明确|决定|我们)?不做的?(?:事|事项|部分|内容)?",
            r"(?:明确的?)?非目标",
            r"不采纳的?(?:方案|建议|意见)?",
            r"未采纳的?(?:方案|建议|意见)?",
            r"(?:已|被)?(?:否决|拒绝|放弃|排除|淘汰)的?(?:方案|选项|想法|建议)?",
            r"不考虑的?(?:方案|内容)?",
            r"不包[括含]",
        ),
    ),
    (
        "deferred",
        (
            r"deferred",
            r"postponed",
            r"parked",
            r"not now",
            r"暂不(?:做|实现|处理|考虑|支持)",
            r"暂缓",
            r"推迟",
            r"延后",
            r"以后再做",
            r"后续再做",
        ),
    ),
    (
        "decision",
        (
            rf"(?:{_WHICH} )*decisions?(?: made| log| records?| taken| so far| notes?)?",
            r"adrs?(?:[- ]lite)?(?:[- ]?\d+)?",
            r"architecture decision records?",
            r"(?:关键|重要|主要|设计|技术|架构|产品|历史|一些|已有|最终|核心|提取|的)*(?:决策|决定)(?:记录|说明|点|事项)?s?",
        ),
    ),
    (
        "question",
        (
            r"(?:remaining |outstanding |other |still )?open (?:questions?|issues?|decisions?|points?)",
            r"questions?(?: for .{1,30})?",
            r"unresolved(?: \w+)?",
            r"unknowns",
            r"(?:could )?not (?:be )?(?:confirmed|verified)",
            r"unconfirmed",
            r"unverified",
            r"to (?:be )?(?:confirm(?:ed)?|clarif(?:y|ied)|decide[d]?)",
            r"pending (?:questions?|decisions?)",
            r"needs? clarification",
            r"undecided",
            r"待(?:确认|决策|决定|澄清|讨论|定|商榷|解答)(?:的?(?:问题|事项|点))?",
            r"开放(?:性)?问题",
            r"未决(?:的?问题|事项)?",
            r"疑问",
            r"疑点",
            r"遗留问题",
            r"未能确认",
            r"无法确认",
            r"未解决的?问题",
            r"需要?确认的?(?:问题|事项)?",
            r"有待确认",
        ),
    ),
    (
        "lesson",
        (
            r"(?:key |main )?lessons?(?: learn(?:ed|t))?",
            r"gotchas?",
            r"pitfalls?",
            r"(?:key )?learnings?",
            r"traps?",
            r"what (?:i|we) learned",
            r"notes to self",
            r"踩坑(?:记录|经验|总结|点)?",
            r"踩过的坑",
            r"避坑(?:指南)?",
            r"(?:可复用的?)?经验(?:教训|总结)?",
            r"教训",
            r"心得",
            r"坑点?",
        ),
    ),
    (
        "beware",
        (
            r"beware",
            r"watch[- ]?outs?(?: for)?",
            r"(?:be )?careful",
            r"cautions?",
            r"(?:重要|特别)?注意(?:事项|点)?",
            r"(?:千万)?(?:小心|当心)",
        ),
    ),
    (
        "standing",
        (
            r"where (?:i|we) (?:stand|are|left off|stopped)",
            r"current (?:state|status|position|focus)",
            r"where things stand",
            r"(?:当前|目前)的?(?:状态|进展|进度|位置)",
        ),
    ),
    (
        "next",
        (
            r"next(?: steps?| up| actions?| session| task)?",
            r"what(?:'s| is) next",
            r"resume (?:here|from)",
            r"hand[- ]?off",
            r"hand[- ]?over",
            r"to (?:continue|resume)",
            r"pick up here",
            r"下一步(?:计划|工作|行动)?",
            r"下一?个?\s*session.{0,8}",
            r"后续(?:步骤|计划|工作)",
            r"接下来",
            r"交接",
            r"续接点",
        ),
    ),
    (
        "outcome",
        (
            r"outcome",
            r"results?",
            r"final (?:summary|result|outcome)",
            r"(?:completion|implementation) summary",
            r"what was done",
            r"what i did",
            r"what we did",
            r"结果",
            r"最终结果",
            r"完成(?:总结|情况|内容)",
            r"总结",
            r"实施总结",
            r"已完成工作",
            r"成果",
        ),
    ),
    (
        "goal",
        (
            r"goals?",
            r"objectives?",
            r"(?:the )?task",
            r"mission",
            r"目标",
            r"任务目标",
            r"总目标",
        ),
    ),
    (
        "work",
        (
            r"tasks?",
            r"to[- ]?dos?",
            r"todo list",
            r"task list",
            r"plan",
            r"steps?",
            r"work items?",
            r"check ?list",
            r"implementation(?: plan| steps| checklist)?",
            r"action items",
            r"任务",
            r"任务列表",
            r"任务清单",
            r"待办(?:事项)?",
            r"待做",
            r"待发布",
            r"执行清单",
            r"步骤",
            r"实施步骤",
            r"执行步骤",
            r"实施计划",
            r"实现计划",
            r"计划",
            r"执行计划",
            r"清单",
        ),
    ),
)
_ROLES: Final = tuple((role, re.compile("|".join(alternatives), re.IGNORECASE)) for role, alternatives in _PATTERNS)
_SINGLE: Final = re.compile(
    r"^(?:(?:design |key |architecture )?decision|adr)\s*[-#]?\s*\d*\s*[:：—–-]\s*(?P<en>\S.*)$"
    r"|^(?:decision|adr)[- ]?\d+\s+(?P<en2>\S.*)$"
    r"|^[\w]{0,4}(?:决策|决定)\s*\d*\s*[:：—–-]\s*(?P<zh>\S.*)$",
    re.IGNORECASE,
)
_OUTCOME: Final = re.compile(r"^(?:outcome|result|status|结果|状态)\s*[:：]\s*(\S.*)$", re.IGNORECASE)
_EXCLUDED: Final = re.compile(
    r"\bout[- ]of[- ]scope\b|\bnot (?:in scope|ours)\b|\boff[- ]limits\b|\bhands[- ]off\b|\b(?:do not|don'?t|never) touch\b"
    r"|\b(?:excluded|exclusions)\b|不在.{0,8}范围|超出.{0,6}范围|范围之?外"
    r"|勿(?:动|碰|触碰)|(?:别|不要|不许|不能|不可|禁止)去?(?:动|碰|触碰)",
    re.IGNORECASE,
)
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


@lru_cache(maxsize=4096)
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


def is_excluded(text: str) -> bool:
    """Whether a heading, a label or a cell says anywhere in it that things are out of scope, or not to be touched."""
    return bool(_EXCLUDED.search(plain(text)))


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


@dropped_by
def _forget_headings(database: Database) -> None:
    """Empties the memos of lines, whatever file they were imported into."""
    read_heading.cache_clear()
    plain.cache_clear()
