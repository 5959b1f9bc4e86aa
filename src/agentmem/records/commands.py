"""Failed attempts that a command is about to repeat: by words alone, and rather none than a wrong one.

It is asked before every command that an agent runs, so a false alarm costs more than a miss. An attempt is named in two
cases only. Either it is written as a command, in its title or in a line of its body, and it is this one: what is run, its
operands and its options are the same, in whatever order the options stand. Or its title tells in words what the command
does: all that the command names stands in it, most of it stands in the command, and nothing that tells two tries apart
differs: hosts, addresses, ports, paths, numbers, versions, identifiers, options. 10.0.0.1 and 10.0.0.2 are two things.

What changes the circumstances makes another try: sudo, a variable that is set, an option that was not there, another
command that is run before. They are how a failure is mended, and a warning would hold back the cure. For the same reason
the words of `why` do not count: it tells what would have helped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from attrs import frozen

from agentmem import limits, text
from agentmem._unicode import listed, stem
from agentmem.errors import InvalidInput
from agentmem.records import rarity, subjects, validate
from agentmem.records.base import View
from agentmem.types import Earlier, Origin

__all__ = ["failed_like"]

_CANDIDATES: Final = 60
_COUNTED: Final = 6  # words of a command whose rarity is looked up
_FEW: Final = 100  # a word that stands in so few records is searched for, without looking for a rarer one
_COMMAND: Final = 2000  # characters of a command that are looked at
_TEXT: Final = 4000  # and of an attempt's body
_TITLE: Final = 0.5  # of the words of a title that tells in words so many are those of the command

_JOINED: Final = re.compile(r"\s*(?:&&|\|\||[;|\n])\s*")
_TOKEN: Final = re.compile(r"(?:\"[^\"]*\"|'[^']*'|[^\s\"'])+")
_REDIRECTED: Final = re.compile(r"(?:\d|&)?(?:>>?|<)(?:&\d|\s*[^\s&|;<>]+)|2>&1")
_SET: Final = re.compile(r"[A-Za-z_]\w*=")
_PYTHON: Final = re.compile(r"(python|pip)\d[\d.]*")
# What stands before a command without changing it, commands that change nothing for the next one, options likewise.
_BEFORE: Final = frozenset(("env", "time", "nohup", "exec", "command", "$", "%", ">"))
_IDLE: Final = frozenset(("cd", "pushd", "echo", "true", "set", "sleep", "date", "pwd", "clear", "ls"))
_HARMLESS: Final = frozenset(
    ("-q", "-y", "--quiet", "--verbose", "--yes", "--silent", "--no-color", "--color", "--batch")
)
_HARMLESS_TO: Final = frozenset(  # grep -v and nmap -sS are another thing
    f"{program} {option}"
    for program in ("curl", "pytest", "pip", "npm", "ssh")
    for option in ("-v", "-vv", "-s", "-sS")
) - {"pytest -s"}
# Options of one letter that only say what the word after them is: it must be known, they need not.
_CARRY: Final = frozenset(listed("-u -U -h -H -l -p -P -w -m -c -d -D -X -t"))
# Words that say nothing of what is tried.
_EMPTY: Final = frozenset(listed("https http www com org net io run try tri use test fail command"))
# Verbs of subcommands: a title with one that the command has not is about another. Where a command has no subcommand, it
# may read without saying so.
_VERBS: Final = frozenset(
    map(
        stem,
        listed(
            """start stop restart reload enable disable install uninstall remove delete create build push pull fetch merge
            rebase checkout commit clone reset revert stash apply plan destroy upgrade downgrade update migrate get describe
            list show import export deploy rollback login logout sync copy move rename mount umount lint format dump restore"""
        ),
    )
)
_READING: Final = frozenset(map(stem, listed("fetch get show list describe login")))
_CHINESE: Final = {
    one: stem(other)
    for pair in listed(
        """安装/install 卸载/uninstall 扫描/scan 启动/start 停止/stop 重启/restart 构建/build 编译/build 登录/login 下载/download
        上传/upload 删除/delete 移除/remove 更新/update 升级/upgrade 降级/downgrade 部署/deploy 克隆/clone 推送/push 拉取/pull
        合并/merge 连接/connect 导入/import 导出/export 迁移/migrate 回滚/rollback 创建/create 同步/sync 复制/copy 启用/enable
        禁用/disable 端口/port 测试/test 运行/run 执行/run"""
    )
    for one, other in [pair.split("/")]
}

_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://(?:[^\s/'\"<>`]*@)?([^\s/?#'\"<>`]*)([^\s'\"<>`]*)", re.IGNORECASE)
_ADDRESS: Final = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?(?:/\d{1,2})?(?![\w.]*\w)")
_HOST: Final = re.compile(
    r"(?<![\w.-])(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z][a-z0-9-]*[a-z0-9](?::\d{1,5})?(?![\w-])", re.IGNORECASE
)
_PATH: Final = re.compile(r"(?<![\w:/.])(?:~|\.{1,2})?/[\w.@%+~/{}-]+|(?<![\w/])[\w-]+(?:/[\w.-]+)+")
_NUMBER: Final = re.compile(r"(?<![\w.])v?\d+(?:\.\d+)*(?![\w.])")
_NAME: Final = re.compile(r"\b(?=\w*\d)(?=\w*[A-Za-z])[A-Za-z0-9_-]{2,}\b|\b[A-Za-z]+(?:_[A-Za-z0-9]+)+\b")
_SORTS: Final = (_ADDRESS, _PATH, _HOST, _NUMBER, _NAME)


def failed_like(view: View, command: str, limit: int) -> tuple[Earlier, ...]:
    """The failed attempts of the project that a command would repeat, the nearest first, then the newest.

    Args:
        view: Where to look.
        command: What is about to be run, as it stands.
        limit: At most so many.
    """
    asked = validate.text(command, "command", 64 * limits.BODY_BYTES)
    number = validate.whole(limit, "limit", 1, limits.PAGE)
    runs = _runs(asked[:_COMMAND])
    if len(asked) > _COMMAND:  # the last is cut
        runs = runs[:-1]
    if not runs or not (runs[0].operands or runs[0].options):  # a lone word is run again and again
        return ()
    found = []
    for row in _candidates(view, runs[0]):
        nearness = _nearness(runs, row[1], row[2] or "", row[5] or "")
        if nearness > 0:
            found.append(Earlier(row[0], row[1], "failed", row[3] or "", round(nearness, 3), ("words",), row[4]))
    found.sort(key=lambda one: (-one.nearness, -one.id))
    return tuple(found[:number])


@frozen
class _Run:
    """One of the commands that a line runs.

    Attributes:
        program: What is run, without its directory.
        operands: Its words as they stand, values of options among them.
        options: Options, variables that are set for it, sudo; without those that change nothing.
    """

    program: str
    operands: tuple[str, ...]
    options: frozenset[str]

    def same(self, other: _Run) -> bool:
        """Whether two are one. Where there are options, their values may stand in another order."""
        if (self.program, self.options) != (other.program, other.options):
            return False
        if self.options:
            return sorted(self.operands) == sorted(other.operands)
        return self.operands == other.operands


def _runs(line: str) -> list[_Run]:
    """What a line runs, one after the other, without what changes nothing for those after it."""
    bare = _REDIRECTED.sub(" ", line)
    return [run for part in _JOINED.split(bare) if (run := _run(part)) is not None]


def _run(part: str) -> _Run | None:
    tokens = [token.strip("'\"") for token in _TOKEN.findall(part)]
    options: set[str] = set()
    while tokens and (tokens[0].lower() in _BEFORE or tokens[0] == "sudo" or _SET.match(tokens[0])):
        if tokens[0].lower() not in _BEFORE:
            options.add(tokens[0])
        del tokens[0]
    if not tokens or tokens[0].startswith("#") or tokens[0] in _IDLE:
        return None
    tokens[0] = _PYTHON.sub(r"\1", tokens[0].rpartition("/")[2].lower())
    if len(tokens) > 2 and tokens[:2] == ["python", "-m"]:
        del tokens[:2]
    operands: list[str] = []
    for token in tokens[1:]:
        name, sign, value = token.partition("=")
        if not token.startswith("-") or len(token) == 1:
            operands.append(token)
        elif token not in _HARMLESS and f"{tokens[0]} {token}" not in _HARMLESS_TO:
            options.add(name)
            operands += [value] if sign else []
    return _Run(tokens[0], tuple(operands), frozenset(options))


def _candidates(view: View, run: _Run) -> list[tuple[int, str, str | None, str | None, Origin, str | None]]:
    """The latest failed attempts with the rarest word of a command: who repeats it has all of them."""
    try:
        units = text.query(" ".join([run.program, *run.operands])[: limits.QUERY_CHARS]).significant()
    except InvalidInput:
        return []
    # Long ones tell more, and one that is rare enough spares counting the others.
    tokens = [token for unit in units if (token := rarity.token(unit)) is not None and token not in _TRANSLATED]
    counted: dict[str, int] = {}
    for token in sorted(tokens, key=len, reverse=True)[:_COUNTED]:
        counted |= rarity.counts(view, [token])
        if not counted[token]:
            return []
        if counted[token] <= _FEW:
            break
    if not counted:
        return []
    rarest = min(counted, key=counted.__getitem__)
    wanted = [rarest] if counted[rarest] < rarity.COMMON else list(counted)
    sql = f"""
    SELECT note.id, note.title, substr(note.body, 1, {_TEXT}), note.why, note.origin, entity.key
    FROM search CROSS JOIN note ON note.id = search.rowid LEFT JOIN entity ON entity.id = note.entity
    WHERE search MATCH ? AND note.project = ? AND note.kind = 'attempt' AND note.status = 'failed' AND note.title IS NOT NULL
      {subjects.of_notes(view)}
    ORDER BY search.rowid DESC LIMIT {_CANDIDATES}
    """
    found: list[tuple[int, str, str | None, str | None, Origin, str | None]] = []
    found += view.rows(sql, (" AND ".join(f'"{token}"' for token in wanted), view.project))
    return found


# A title in Chinese has none of these words, and may tell the same.
_TRANSLATED: Final = frozenset(_CHINESE.values())


def _nearness(runs: Sequence[_Run], title: str, body: str, key: str) -> float:
    """1 where an attempt is written as this command, less where it is told in words, 0 where it is another try."""
    first = runs[0]
    for line in (title, *(line for line in body.split("\n") if first.program in line.lower())):
        theirs = _runs(line.strip().strip("`"))
        if theirs and len(theirs) <= len(runs) and all(map(_Run.same, theirs, runs)):
            return 1.0
        if line is title and theirs and theirs[0].program == first.program:
            return 0.0  # written as a command, and another one
    return _told(first, title, key)


def _told(run: _Run, title: str, key: str) -> float:
    """How much of a title is what a command does; 0 where either names anything that tells it from the other."""
    said = f"{title} {key}"
    translated = {word for one, word in _CHINESE.items() if one in title}
    theirs = _words(said) | translated
    mine = _words(" ".join(run.operands))
    program = text.stems(run.program)
    if not mine or not mine <= theirs or not theirs.issuperset(program) or not _known(run.options, theirs):
        return 0.0
    if _marks(" ".join(run.operands)) != _marks(_without(said, run.program)):
        return 0.0
    for one in _CHINESE:
        title = title.replace(one, " ")
    named = _words(title) | (translated - _EMPTY)
    ours = mine.union(program)
    other = (named & _VERBS) - ours
    if other and (run.operands[0].isalpha() or other - _READING):
        return 0.0
    covered = len(named & ours) / len(named) if named else 0.0
    return covered if covered >= _TITLE else 0.0


def _words(said: str) -> frozenset[str]:
    """The words of a text that say something, stemmed where they are English."""
    return frozenset(stem for stem in text.stems(said) if stem not in _EMPTY and (len(stem) > 1 or not stem.isascii()))


def _known(options: Iterable[str], words: frozenset[str]) -> bool:
    """Whether words tell of each option, or it only carries one of them."""
    return all(option in _CARRY or words.issuperset(text.stems(option.strip("-")) or ("",)) for option in options)


def _without(said: str, program: str) -> str:
    """A text without what is run: python3 and s3cmd are no identifiers of what it is run on."""
    return re.sub(rf"(?<![\w-]){re.escape(program)}(?![\w-])", " ", said, flags=re.IGNORECASE)


def _marks(said: str) -> list[frozenset[str]]:
    """What tells two tries apart, by sort: hosts and what follows them, addresses, paths, numbers, identifiers."""
    marks: list[set[str]] = [{f"{host.lower()}{rest.rstrip('/.,;:)')}" for host, rest in _URL.findall(said)}]
    rest = _URL.sub(" ", said)
    for sort in _SORTS:
        marks.append({found.rstrip("/.,;:").lower() for found in sort.findall(rest)} - {""})
        rest = sort.sub(" ", rest)
    return [frozenset(found) for found in marks]
