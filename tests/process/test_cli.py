"""The command line as a process: exit codes, pipes, terminals, encodings."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentmem.adapters.cli.exits import Exit
from agentmem.context.escape import display_width

ROOT = Path(__file__).parents[2]
KEY = f"hex:{bytes(range(32)).hex()}"
POSIX = pytest.mark.skipif(os.name != "posix", reason="pipes and terminals of POSIX")


class Process:
    """The command line over one store, each call a process."""

    def __init__(self, directory: Path) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "VIRTUAL_ENV") if name in os.environ}
        self.environment = {
            **kept,
            "PYTHONPATH": str(ROOT / "src"),
            "HOME": str(directory),
            "AGENTMEM_DB": str(directory / "work.db"),
            "AGENTMEM_KEY": KEY,
            "AGENTMEM_PROJECT": "acme",
            "PYTHONUTF8": "1",
        }

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "agentmem", *arguments]

    def run(self, *arguments: str, code: int = 0, stdin: str = "", **environment: str) -> tuple[str, str]:
        ran = subprocess.run(
            self.command(*arguments), input=stdin.encode(), capture_output=True, timeout=60, check=False,
            env={**self.environment, **environment},
        )  # fmt: skip
        assert ran.returncode == code, ran.stderr.decode()
        return ran.stdout.decode(errors="replace"), ran.stderr.decode(errors="replace")

    def shell(self, script: str) -> tuple[int, str, str]:
        """Run a script of bash in which `agentmem` is this one."""
        quoted = f'agentmem() {{ "{sys.executable}" -m agentmem "$@"; }}; {script}'
        ran = subprocess.run(
            ["bash", "-c", quoted], capture_output=True, timeout=60, check=False, env=self.environment
        )  # fmt: skip
        return ran.returncode, ran.stdout.decode(), ran.stderr.decode()


@pytest.fixture
def cli(tmp_path: Path) -> Process:
    made = Process(tmp_path)
    made.run("add", "goal", "检查 example.com 的登录页", "Check the API", "Déjà vu")
    return made


def in_terminal(cli: Process, arguments: Sequence[str], *, columns: int = 80, typed: str = "", **more: str) -> str:
    """What a command writes to a terminal that is its three streams; `typed` answers each passphrase prompt."""
    import fcntl
    import pty
    import struct
    import termios

    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {**cli.environment, "TERM": "xterm-256color", **more}
    process = subprocess.Popen(
        cli.command(*arguments),
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environment,
        start_new_session=True,
    )
    os.close(follower)
    shown, answered = b"", 0
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
        # What is typed before the prompt is there is thrown away by the terminal.
        if len(re.findall(rb"(?:Passphrase|confirmation): ", shown)) > answered:
            answered += 1
            os.write(leader, f"{typed}\n".encode())
    os.close(leader)
    assert process.wait(60) == 0, shown.decode()
    return shown.decode()


def test_data_is_on_stdout_and_words_on_stderr(cli: Process) -> None:
    """stdout has the data alone; --quiet silences the remarks; both streams are UTF-8."""
    out, err = cli.run("update", "2", "--status", "active")
    assert (out, err) == ("2\n", "changed: status\n")
    assert cli.run("update", "2", "--status", "open", "-q") == ("2\n", "")
    assert "检查" in cli.run("left")[0]


def test_the_exit_codes_are_those_of_the_help(cli: Process) -> None:
    """Not found, wrong key, usage and a missing store have codes of their own, and never a traceback."""
    for arguments, code, environment in (
        (("get", "99"), Exit.NOT_FOUND, {}),
        (("left",), Exit.WRONG_KEY, {"AGENTMEM_KEY": f"hex:{'11' * 32}"}),
        (("left",), Exit.STORE_MISSING, {"AGENTMEM_DB": "/no/such/place.db"}),
        (("left", "--bogus"), Exit.USAGE, {}),
        (("left",), Exit.USAGE, {"AGENTMEM_KEY": "hex:12"}),
    ):
        out, err = cli.run(*arguments, code=code, **environment)
        assert out == ""
        assert "Traceback" not in err


def test_a_damaged_file_is_reported_by_verify(cli: Process) -> None:
    """A flipped byte makes `verify --independent` end with 10 or the opening with a code of damage."""
    path = Path(cli.environment["AGENTMEM_DB"])
    data = bytearray(path.read_bytes())
    data[-2000] ^= 0xFF
    path.write_bytes(data)
    out, err = cli.run("verify", "--independent", code=Exit.DAMAGED)
    assert out or "[corrupt]" in err


@POSIX
def test_a_closed_pipe_ends_quietly(cli: Process) -> None:
    """`| head` gets its line, and the command ends with 141 and without a word."""
    cli.run("add", "fact", *(f"fact {number} {'x' * 400}" for number in range(900)))
    script = "set -o pipefail; agentmem list --json --limit 1000 | head -n 1; exit ${PIPESTATUS[0]}"
    code, out, err = cli.shell(script)
    assert (code, err) == (Exit.PIPE, "")
    assert json.loads(out)["kind"] == "goal"


@POSIX
def test_closed_streams_do_no_harm(cli: Process) -> None:
    """With stdin, stdout and stderr closed a write still goes through, and no stream's number is the database's."""
    assert cli.shell("agentmem add fact 'Written blind' <&- >&- 2>&-")[0] == 0
    assert "Written blind" in cli.run("find", "blind")[0]
    assert cli.shell("agentmem add fact - <&-")[0] == Exit.USAGE
    assert cli.run("verify", "--replay")[0].startswith("sound")


@POSIX
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_under_stdout_is_an_error(cli: Process) -> None:
    """What cannot be written is a failure, not a success with half an answer."""
    code, _, err = cli.shell("agentmem left > /dev/full")
    assert code == Exit.FAILURE
    assert "Traceback" not in err
    assert "os_error" in err


@POSIX
def test_an_interrupt_ends_with_its_own_code(cli: Process) -> None:
    """Ctrl-C while following the log ends with 130 and no traceback."""
    process = subprocess.Popen(
        cli.command("log", "--follow", "--after", "0"), env=cli.environment, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline()  # it is following
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == Exit.INTERRUPTED
    assert b"Traceback" not in err


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONUTF8": "0", "LANG": "C", "LC_ALL": "C"},
        {"PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"},
        {"PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1:strict"},
        {"PYTHONUTF8": "0", "PYTHONIOENCODING": "gbk:strict"},
    ],
    ids=str,
)
def test_any_locale_will_do(cli: Process, environment: dict[str, str]) -> None:
    """Whatever the encoding of the streams, text is printed somehow, and JSON stays JSON that says the same."""
    for arguments in (("left",), ("list",), ("get", "99", "文字")):
        cli.run(*arguments, code=3 if "99" in arguments else 0, **environment)
    encoding = environment.get("PYTHONIOENCODING", "utf-8").partition(":")[0]
    ran = subprocess.run(
        cli.command("list", "--json"),
        capture_output=True,
        check=True,
        env={**cli.environment, **environment},
        timeout=60,
    )
    titles = [json.loads(line)["title"] for line in ran.stdout.decode(encoding).splitlines()]
    assert titles == ["检查 example.com 的登录页", "Check the API", "Déjà vu"]
    made, _ = cli.run("add", "fact", "-", stdin="标题\n", **environment)
    assert json.loads(cli.run("get", made.strip(), "--json")[0])["title"] == "标题"


@POSIX
@pytest.mark.skipif(sys.platform == "darwin", reason="file names are Unicode there")
def test_arguments_that_are_no_text_are_refused(cli: Process) -> None:
    """Bytes that are no UTF-8 end with 2 wherever a text is wanted; a path may hold them."""
    for script in (r"get $'h:\xff'", r"add fact $'\xff'", r"find $'\xff'", r"put host h --attr $'a=\xff'"):
        code, out, err = cli.shell(f"agentmem {script}")
        assert (code, out) == (Exit.USAGE, "")
        assert "Traceback" not in err
    assert cli.shell(r"agentmem import $'no\xffsuch'")[0] == Exit.NOT_FOUND


def test_columns_stand_below_each_other(cli: Process) -> None:
    """Outside a terminal each row is one whole line, wide characters count two."""
    long = "字" * 200
    cli.run("add", "fact", long, "--tag", "p1")
    lines = cli.run("list")[0].splitlines()
    assert len(lines) == 5
    assert long in lines[4]
    kinds = ("kind", "goal", "goal", "goal", "fact")
    starts = [display_width(line[: line.index(kind)]) for line, kind in zip(lines, kinds, strict=True)]
    assert len(set(starts)) == 1
    assert [line.rstrip() for line in lines] == lines


@POSIX
def test_a_table_fits_the_terminal(cli: Process) -> None:
    """In a terminal columns are folded to its width, Chinese ones too, and the header is bold."""
    cli.run("add", "fact", "登录页面的会话令牌在注销之后仍然有效" * 4)
    shown = in_terminal(cli, ["list"], columns=60)
    assert "\x1b[1m" in shown
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in shown.splitlines()]
    assert max(display_width(line) for line in lines) <= 60
    assert "令牌" in shown


@POSIX
def test_no_colour_where_none_is_wanted(cli: Process) -> None:
    """NO_COLOR and a dumb terminal get no escape sequence; neither does a pipe."""
    assert "\x1b" not in in_terminal(cli, ["list"], NO_COLOR="1")
    assert "\x1b" not in in_terminal(cli, ["list"], TERM="dumb")
    assert "\x1b" not in cli.run("list")[0]


@POSIX
def test_stored_text_moves_no_cursor(cli: Process) -> None:
    """Escape sequences, rich markup and emoji codes in a body reach a terminal as visible text."""
    body = "\x1b]0;owned\x07\x1b[31mred [bold]x[/bold] :smile: \u202eoff"
    cli.run("add", "fact", "Look: [red]x[/red] :smile:", "--body", "-", stdin=body)
    for arguments in (("get", "5"), ("list",), ("find", "smile"), ("get", "5", "--json"), ("resume",)):
        shown = in_terminal(cli, arguments, columns=200, NO_COLOR="1")
        assert not set(shown) & {"\x1b", "\x07", "\u202e", "\x9b"}
        assert ":smile:" in shown
    assert "[red]x[/red]" in in_terminal(cli, ["list"], columns=200, NO_COLOR="1")


@POSIX
def test_a_passphrase_is_asked_for_at_a_terminal(tmp_path: Path) -> None:
    """--ask-key asks twice for a new store, shows nothing of it, and opens the store later."""
    cli = Process(tmp_path)
    del cli.environment["AGENTMEM_KEY"]
    shown = in_terminal(cli, ["init", "--ask-key"], typed="correct horse")
    assert "Passphrase" in shown
    assert "left of project" in in_terminal(cli, ["left", "--ask-key"], typed="correct horse")
    name = tmp_path / "key"
    name.write_text("correct horse\n", "utf-8")
    name.chmod(0o600)
    assert "left of project" in cli.run("left", "--key-file", str(name))[0]


@POSIX
def test_a_person_at_a_terminal_may_say_user(cli: Process) -> None:
    """--origin user is taken at a terminal, and refused elsewhere without --yes."""
    cli.run("add", "fact", "From the web", "--origin", "web")
    cli.run("confirm", "5", "--origin", "user", code=Exit.USAGE)
    in_terminal(cli, ["confirm", "5", "--origin", "user"])
    assert json.loads(cli.run("get", "5", "--json")[0])["untrusted"] is False


@POSIX
def test_the_key_is_printed_to_a_terminal(cli: Process) -> None:
    """`key export` prints the key at a terminal, with a warning."""
    shown = in_terminal(cli, ["key", "export"], columns=200)
    assert KEY in shown
    assert "warning" in shown


def test_claims_go_from_process_to_process(cli: Process) -> None:
    """AGENTMEM_CLAIM lets another process write under the claim; without it the record is held."""
    token = cli.run("claim", "2", "--run", "w", "-q")[0].strip()
    _, err = cli.run("update", "2", "--status", "active", "--run", "w", code=Exit.HELD)
    assert "[held]" in err
    cli.run("update", "2", "--status", "active", "--run", "w", AGENTMEM_CLAIM=token)
    out, err = cli.run("release", "--run", "w")
    assert out == "nothing given back\n"
    assert "1 claim of the run w not given back: 2." in err
    assert "--claim TOKEN" in err
    assert "not given back" in json.loads(cli.run("release", "--run", "w", "--json")[0])["notices"][0]
    _, err = cli.run("update", "2", "--status", "active", "--author", "b", code=Exit.HELD)
    assert "run w" in err
    cli.run("release", "--run", "w", AGENTMEM_CLAIM=token)
    cli.run("update", "2", "--status", "done")


def test_many_processes_write_at_once(cli: Process) -> None:
    """Six processes add a note each at the same time, and all are there."""
    started = [
        subprocess.Popen(cli.command("add", "fact", f"from {number}"), env=cli.environment, stdout=subprocess.PIPE)
        for number in range(6)
    ]
    made = [process.communicate(timeout=60)[0].decode().strip() for process in started]
    assert [process.returncode for process in started] == [0] * 6
    assert len(set(made)) == 6
    assert len(cli.run("list", "--kind", "fact", "--json")[0].splitlines()) == 6


def test_the_first_lines_of_the_readme_work(tmp_path: Path) -> None:
    """Import the example, resume: from nothing, with a key file made on the way."""
    cli = Process(tmp_path)
    del cli.environment["AGENTMEM_KEY"]
    cli.environment["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    out, err = cli.run("import", str(ROOT / "docs" / "examples" / "recon"))
    assert re.fullmatch(r"[\d,]+ tokens in \d+ files -> [\d,]+ tokens of resume; .*", out.splitlines()[-1])
    assert "loses all" in err
    assert "failed, do not repeat:" in cli.run("resume")[0]


@POSIX
def test_without_its_packages_it_says_how_to_get_them(cli: Process, tmp_path: Path) -> None:
    """Where click or rich is not installed one sentence names the extra, code 2, no traceback."""
    for missing in ("click", "rich"):
        packages = tmp_path / f"without-{missing}"
        packages.mkdir()
        for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
            for one in Path(place).iterdir():
                if one.name != missing:
                    (packages / one.name).symlink_to(one)
        # -S leaves the site's own packages out, so that only the copy without the one counts.
        path = os.pathsep.join((str(ROOT / "src"), str(packages)))
        ran = subprocess.run(
            [sys.executable, "-S", "-m", "agentmem", "left"], capture_output=True, text=True, check=False,
            env={**cli.environment, "PYTHONPATH": path}, timeout=60,
        )  # fmt: skip
        assert (ran.returncode, ran.stdout) == (Exit.USAGE, ""), ran.stderr
        assert f"needs {missing}:" in ran.stderr
        assert "pip install '.[cli]'" in ran.stderr
        assert len(ran.stderr.splitlines()) == 1
