from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from rivermouth.errors import SessionError
from rivermouth.tables import file_lock
from rivermouth.tables.file_lock import locked


def test_one_process_holds_it_at_a_time_and_its_death_releases_it(tmp_path):
    program = f"""
from pathlib import Path
from rivermouth.tables.file_lock import locked
with locked(Path({str(tmp_path / "lock")!r}), wait=True):
    print("held", flush=True)
    input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as other:
        assert other.stdout.readline() == "held\n"
        with locked(tmp_path / "lock", wait=False) as held:
            assert not held
        other.kill()
    with locked(tmp_path / "lock", wait=True) as held:
        assert held


def test_a_system_without_flock_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(file_lock, "fcntl", None)
    with pytest.raises(SessionError) as raised, locked(tmp_path / "lock", wait=True):
        pass
    assert str(raised.value) == (
        f"file lock: the processes of this host cannot take turns; Python on {sys.platform!r} has "
        "no flock. Run it on Linux or macOS; on Windows, in WSL."
    )


def test_a_disk_without_flock_is_named(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(SessionError) as raised, locked(tmp_path / "lock", wait=False):
        pass
    assert str(raised.value) == (
        f"file lock: {tmp_path / 'lock'} cannot be locked; Operation not supported. Set TMPDIR, "
        "or path=, to a folder on a disk that has flock."
    )
