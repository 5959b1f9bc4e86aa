"""The bytes of a file as they lie on disk, read below SQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentmem.engine.pages import RawFile


@pytest.mark.parametrize("ending", [b"\0", b"\0" * 100, b"x", b"\0" * 4096])
def test_zeros_at_the_end_of_a_file_are_read_as_what_they_are(tmp_path: Path, ending: bytes) -> None:
    """However much is asked for, what comes back is what is there, and no less."""
    path = tmp_path / "file"
    data = bytes(range(1, 200)) * 50 + ending
    path.write_bytes(data)
    with RawFile(path) as file:
        assert file.size() == len(data)
        assert file.read(1_000_000, 0) == data
        assert file.read(len(data), 0) == data
        assert file.read(5000, len(data) - 50) == data[-50:]
        assert file.read(10, len(data)) == b""
        assert file.read(10, len(data) + 5) == b""
