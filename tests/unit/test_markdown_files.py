"""Walking a folder that may come from somebody else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentmem.errors import InvalidInput, NotFound
from agentmem.transfer.markdown import Plan, read_folder


def skipped(plan: Plan) -> dict[str, str]:
    return {line.path: line.text for line in plan.lines("skipped")}


def texts(plan: Plan) -> str:
    return "\n".join(note.title + "\n" + note.body for note in plan.notes)


def test_no_link_is_followed(tmp_path):
    """Neither a link to a file nor one to a folder, inside or outside; both are reported."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("# Secret\n\nhunter2\n")
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.md").write_text("# A\n\ntext\n")
    (root / "link.md").symlink_to(outside / "secret.md")
    (root / "folder").symlink_to(outside)
    (root / "loop").symlink_to(root)
    plan = read_folder(root)
    assert "hunter2" not in texts(plan)
    assert set(skipped(plan)) == {"link.md", "folder", "loop"}
    assert [file.path for file in plan.files] == ["a.md"]


def test_a_link_put_in_place_of_a_file_after_the_walk_is_refused(tmp_path):
    """Between listing and opening a file may be exchanged; it is opened without following links."""
    from agentmem.transfer.markdown.files import read_source

    (tmp_path / "secret.md").write_text("hunter2")
    (tmp_path / "a.md").symlink_to(tmp_path / "secret.md")
    source, report = read_source(tmp_path, "a.md")
    assert source is None
    assert [line.kind for line in report] == ["skipped"]


def test_hidden_and_dependency_folders_are_counted_not_read(tmp_path):
    """`.git` and `node_modules` are no logs."""
    for name in (".git/HEAD.md", "node_modules/x/README.md", ".hidden.md", "a.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"# {name}\n")
    plan = read_folder(tmp_path)
    assert [file.path for file in plan.files] == ["a.md"]
    assert sum(line.count for line in plan.lines("skipped")) == 3


def test_size_number_and_depth_have_caps_that_are_reported(tmp_path):
    """A folder cannot make the import read without end."""
    (tmp_path / "big.md").write_text("x" * 3000)
    (tmp_path / "deep/er/still").mkdir(parents=True)
    (tmp_path / "deep/er/still/d.md").write_text("deep")
    for number in range(5):
        (tmp_path / f"n{number}.md").write_text("# N\n\ntext\n")
    plan = read_folder(tmp_path, file_bytes=2000, depth_max=2, files_max=5)
    assert "larger" in skipped(plan)["big.md"]
    assert "deep/er" in skipped(plan)
    assert len(plan.files) == 4
    assert any("beyond the first 5" in line.text for line in plan.lines("skipped"))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("\ufeff# Tïtle\n".encode(), None),
        ("# Tïtle\n".encode("utf-16"), "UTF-16"),
        ("# Tïtle\n".encode(), None),
    ],
)
def test_encodings_with_a_mark_are_read(tmp_path, raw, said):
    """UTF-8 with or without a byte order mark, UTF-16 with one."""
    (tmp_path / "a.md").write_bytes(raw)
    plan = read_folder(tmp_path)
    assert plan.notes[0].title == "Tïtle (a.md)"
    assert [line.text for line in plan.lines("hint")] == ([f"read as {said}"] if said else [])


def test_gb18030_is_read_and_reported(tmp_path):
    """An older Chinese encoding is a guess, and the report says so."""
    (tmp_path / "a.md").write_bytes("# 计划说明\n\n正文\n".encode("gb18030"))
    plan = read_folder(tmp_path)
    assert plan.notes[0].title == "计划说明 (a.md)"
    assert [line.text for line in plan.lines("hint")] == ["read as GB18030"]


def test_binary_and_undecodable_files_are_reported(tmp_path):
    """They make no record and no error."""
    (tmp_path / "a.md").write_bytes(b"\x00\x01\x02")
    (tmp_path / "b.md").write_bytes(b"caf\xff\xff \x81")
    plan = read_folder(tmp_path)
    assert plan.notes == ()
    assert set(skipped(plan)) == {"a.md", "b.md"}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_pipe_is_not_opened(tmp_path):
    """A named pipe would wait for ever."""
    os.mkfifo(tmp_path / "p.md")
    assert skipped(read_folder(tmp_path)) == {"p.md": "no regular file"}


@pytest.mark.skipif(os.name != "posix", reason="names are bytes on POSIX only")
def test_a_name_that_is_no_text_is_read_and_shown_safely(tmp_path):
    """A file name of odd bytes is shown with replacement characters."""
    with open(os.path.join(os.fsencode(tmp_path), b"a\xff.md"), "wb") as file:
        file.write(b"# A\n\ntext\n")
    plan = read_folder(tmp_path)
    assert plan.notes[0].source.path == "a\ufffd.md"


def test_one_file_is_a_folder_of_one(tmp_path):
    """A path to a file reads that file only."""
    (tmp_path / "a.md").write_text("# A\n\ntext\n")
    (tmp_path / "b.md").write_text("# B\n\ntext\n")
    plan = read_folder(tmp_path / "a.md")
    assert [file.path for file in plan.files] == ["a.md"]
    assert plan.root == tmp_path.resolve()


def test_what_is_not_there_is_an_error(tmp_path):
    """A missing path says so; so does one that is neither file nor folder."""
    with pytest.raises(NotFound):
        read_folder(tmp_path / "none")
    if Path("/dev/null").exists():
        with pytest.raises(InvalidInput):
            read_folder("/dev/null")


def test_the_plan_gives_the_raw_texts_for_counting(tmp_path):
    """Each file's text once, and their characters in all; a file that has gone counts as empty."""
    (tmp_path / "a.md").write_text("# A\n\ntext\n")
    (tmp_path / "b.md").write_text("---\nx: y\n---\nB\n")
    plan = read_folder(tmp_path)
    assert list(plan.raw_texts()) == ["# A\n\ntext\n", "---\nx: y\n---\nB\n"]
    assert plan.chars == sum(map(len, plan.raw_texts()))
    (tmp_path / "a.md").unlink()
    assert next(iter(plan.raw_texts())) == ""


def test_an_empty_folder_is_an_empty_plan(tmp_path):
    """Nothing there is no error."""
    plan = read_folder(tmp_path)
    assert (plan.notes, plan.files, plan.items) == ((), (), ())
