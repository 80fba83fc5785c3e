"""A folder that is not the driver's is found by the mark that is not in it."""

import multiprocessing
import os
import socket
import subprocess
import sys

import pytest

from rivermouth.errors import DefinitionError, FolderError
from rivermouth.spec.locations import Location
from rivermouth.tables import shared_folder
from rivermouth.tables.files import write_once
from rivermouth.tables.shared_folder import MARK, SharedFolder

WORKER = """
import sys
from rivermouth.errors import FolderError
from rivermouth.spec.locations import Location
from rivermouth.tables.shared_folder import SharedFolder
try:
    print(str(SharedFolder(Location(sys.argv[1]), sys.argv[2], "d1").seen(where="join_table")))
except FolderError as error:
    print(error)
"""


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch):
    monkeypatch.setattr(shared_folder, "_PATIENCE", 0.2)


def marked(path):
    return SharedFolder.marked(Location.of(path), where="join_table")


def test_the_same_folder_is_seen_and_keeps_its_mark(tmp_path):
    folder = marked(tmp_path / "new" / "snapshots")
    assert folder.seen(where="join_table") == str(tmp_path / "new" / "snapshots")
    assert marked(folder.location) == folder, "a driver that comes later finds the same mark"
    assert os.listdir(folder.location) == [MARK]


def test_nothing_is_looked_for_without_a_mark(tmp_path):
    location = Location.of(tmp_path / "none")
    assert SharedFolder(location).seen(where="join_table") == location
    assert not os.path.exists(location)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda _: None, "there is no such folder"),
        (lambda path: path.mkdir(), "it has no mark"),
        (marked, "it has the mark of another driver"),
    ],
)
def test_another_folder_is_an_error_that_names_host_and_path(tmp_path, make, what):
    mine, other = marked(tmp_path / "mine"), tmp_path / "other"
    make(other)
    host = socket.gethostname()
    with pytest.raises(FolderError) as raised:
        SharedFolder(Location.of(other), mine.mark, "d1").seen(where="join_table")
    assert str(raised.value) == (
        f"join_table: {str(other)!r} is not the folder that the driver sees on host 'd1'; on "
        f"{host!r} {what}. Give a path on a file system that the driver and all workers mount, or "
        "a URI such as s3://bucket/folder."
    )


def test_a_folder_that_another_mount_hides_is_found(tmp_path):
    folder = marked(tmp_path / "snapshots")
    command = [sys.executable, "-c", WORKER, str(folder.location), str(folder.mark)]
    assert _said(command) == str(folder.location)
    hidden = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none "$1"; shift; exec "$@"', "sh"]
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("mount namespaces need root")
    assert "it has no mark" in _said([*hidden, str(folder.location), *command])


def test_a_driver_that_cannot_write_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DefinitionError, match=r"^join_table: the driver, on host .*, cannot write"):
        marked(tmp_path / "file" / "snapshots")


def _write(path, number):
    return write_once(path, b"%d" % number * 1000)


def test_of_many_who_write_once_all_are_given_the_same(tmp_path):
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        for round_ in range(20):
            path = tmp_path / str(round_)
            given = pool.starmap(_write, [(path, number) for number in range(8)])
            assert {*given} == {path.read_bytes()}
    assert len(os.listdir(tmp_path)) == 20, "nothing is left beside the files"


def _said(command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
