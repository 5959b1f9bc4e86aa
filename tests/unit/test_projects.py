"""Projects: namespaces in one store, and the one that a directory stands for."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentmem import Conflict, InvalidInput, NotFound, Store, default_project
from agentmem.limits import PROJECT_CHARS


def test_a_project_comes_to_be_with_the_first_write(store: Store) -> None:
    """Reading makes none; the first note does, as an event of its own."""
    assert store.projects.list() == ()
    assert store.notes.list() == ()
    with pytest.raises(NotFound):
        store.projects.get()
    store.notes.add("goal", "Move")
    assert [project.name for project in store.projects.list()] == ["acme"]
    assert store.projects.get().id == 1
    assert [event.kind for event in store.log.read()] == ["project.created", "note.added"]


def test_a_refused_first_write_makes_no_project(store: Store) -> None:
    """Nothing of a command that failed stays."""
    with pytest.raises(NotFound):
        store.notes.add("fact", "x", links=[("supports", 99)])
    assert store.projects.list() == ()


def test_projects_do_not_see_each_other(store: Store) -> None:
    """Notes, entities, coverage, search and claims by type are of one project; ids name a record everywhere."""
    there = store.in_project("other")
    note = there.notes.add("step", "Elsewhere")
    there.entities.put("host", "a")
    there.entities.expect("host", ["tls"])
    there.checkpoint("Elsewhere")
    assert (store.notes.list(), store.entities.expected(), store.checkpoints()) == ((), (), ())
    assert store.find("elsewhere").matched == "none"
    assert store.find("elsewhere", project="*").hits
    assert store.find("elsewhere", project="other").hits
    assert not store.left()
    assert there.left().marks_total == 1
    assert store.claim(type="host").ids == ()
    assert store.entities.query("host", total=True).total == 0
    assert store.notes.get(note).title == "Elsewhere"
    assert store.log.read() == ()
    assert len(store.log.read(project="*")) == len(there.log.read())


def test_rename_keeps_records_and_ids(store: Store) -> None:
    """The new name finds them, the old one nothing; a taken name is refused; the same changes nothing."""
    goal = store.notes.add("goal", "Move")
    store.in_project("other").notes.add("goal", "Elsewhere")
    done = store.projects.rename("beta")
    assert (done.id, done.changed) == (1, ("name",))
    assert "in_project('beta')" in done.notices[0]
    beta = store.in_project("beta")
    assert [note.id for note in beta.notes.list()] == [goal.id]
    assert store.notes.list() == ()
    assert beta.projects.rename("beta").changed == ()
    with pytest.raises(Conflict):
        beta.projects.rename("other")
    with pytest.raises(NotFound):
        store.in_project("nowhere").projects.rename("x")
    assert store.verify(replay=True)


def test_stats_count_what_a_project_has(store: Store) -> None:
    """Notes by kind, entities by type, events."""
    store.notes.add("goal", "Move")
    store.notes.add("fact", "One")
    store.entities.put_many("host", keys=["a", "b"])
    stats = store.projects.stats()
    assert (dict(stats.notes), dict(stats.entities), stats.events) == ({"goal": 1, "fact": 1}, {"host": 2}, 5)


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "x" * (PROJECT_CHARS + 1), "*", None, 7])
def test_a_projects_name_is_a_label(store: Store, name: Any) -> None:
    """One word of bounded length; `*` means all and is no name."""
    store.notes.add("goal", "Move")
    with pytest.raises(InvalidInput):
        store.in_project(name)
    with pytest.raises(InvalidInput):
        store.projects.rename(name)


# The default


def git(directory: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *arguments],
        cwd=directory,
        check=True,
        capture_output=True,
    )


def test_h4_two_directories_of_one_name_are_two_projects(tmp_path: Path) -> None:
    """Named by its base name alone, every `app` shared one memory. Ours adds a hash of the real path."""
    for parent in ("one", "two"):
        (tmp_path / parent / "app").mkdir(parents=True)
    names = {default_project(tmp_path / parent / "app") for parent in ("one", "two")}
    assert len(names) == 2
    assert all(name.startswith("app-") for name in names)


def test_h4_the_worktrees_of_a_repository_are_one_project(tmp_path: Path) -> None:
    """Two worktrees split one memory. Ours takes the repository, from any directory in any of its worktrees."""
    main = tmp_path / "app"
    (main / "deep" / "down").mkdir(parents=True)
    git(main, "init")
    git(main, "commit", "--allow-empty", "-m", "first")
    git(main, "worktree", "add", str(tmp_path / "other-tree"))
    names = {default_project(each) for each in (main, main / "deep" / "down", tmp_path / "other-tree")}
    assert len(names) == 1
    assert names.pop().startswith("app-")


def test_a_link_to_a_directory_is_that_directory(tmp_path: Path) -> None:
    """The real path counts."""
    (tmp_path / "app").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "app")
    assert default_project(tmp_path / "link") == default_project(tmp_path / "app")


def test_any_directory_has_a_name_that_is_a_label(tmp_path: Path, store: Store) -> None:
    """Odd characters and long names become a name that is accepted; the root has one too."""
    for name in ("with space & ünïcode 数据", "x" * 200, "...", "-"):
        directory = tmp_path / name
        directory.mkdir()
        assert store.in_project(default_project(directory)).project
    assert store.in_project(default_project("/")).project.startswith("root-")
