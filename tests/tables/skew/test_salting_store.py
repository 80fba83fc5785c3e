"""The folder of skewed cells: what one micro-batch decides, the next one applies."""

import pytest

from rivermouth.errors import TableUnavailable
from rivermouth.kernels.stream_join.salting import SaltChange, SaltSchedule
from rivermouth.tables.skew.salting_store import SaltingStore

ONE, OTHER = SaltChange(0, 100, 4, 3), SaltChange(1 << 33, 100, 2, 7)


@pytest.fixture
def store(tmp_path):
    return SaltingStore(str(tmp_path / "skew"), 8, where="join_interval")


def test_a_change_applies_from_the_next_micro_batch_on(store):
    assert store.schedule(9) == SaltSchedule()
    store.publish(0, [ONE])
    store.publish(1, [OTHER])
    assert store.schedule(3) == SaltSchedule()
    assert store.schedule(4) == SaltSchedule((ONE,))
    assert store.schedule(8) == SaltSchedule((ONE, OTHER))


def test_files_that_are_no_buckets_or_unreadable_are_ignored(store, tmp_path):
    store.publish(0, [ONE])
    store.publish(3, [OTHER])  # whose home is bucket 1
    (tmp_path / "skew" / "bucket-1.json").write_text('{"steps": [[')
    (tmp_path / "skew" / "notes.txt").write_text("hello")
    assert store.schedule(8) == SaltSchedule((ONE,))


def test_a_folder_that_cannot_be_used_is_an_error(store, tmp_path):
    (tmp_path / "skew").write_text("a file")
    with pytest.raises(TableUnavailable, match="Check that all hosts may read and write it"):
        store.publish(0, [ONE])
