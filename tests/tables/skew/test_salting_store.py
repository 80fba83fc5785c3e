"""The folder of crowded places: what one micro-batch decides, the next one knows."""

import pytest

from rivermouth.errors import TableUnavailable
from rivermouth.kernels.skew.salting import Crowds, Step
from rivermouth.tables.skew.salting_store import Crowding

ONE, OTHER = Step(0, 100, 4, 3), Step(1 << 33, 100, 2, 7)


@pytest.fixture
def crowding(tmp_path):
    return Crowding(str(tmp_path / "crowded"), 8, where="join_interval")


def test_a_step_counts_from_the_next_micro_batch_on(crowding):
    assert crowding.before(9) == Crowds()
    crowding.publish(0, [ONE])
    crowding.publish(1, [OTHER])
    assert crowding.before(3) == Crowds()
    assert crowding.before(4) == Crowds((ONE,))
    assert crowding.before(8) == Crowds((ONE, OTHER))


def test_files_that_are_no_buckets_or_not_what_was_written_say_nothing(crowding, tmp_path):
    crowding.publish(0, [ONE])
    crowding.publish(3, [OTHER])  # whose home is bucket 1
    (tmp_path / "crowded" / "bucket-1.json").write_text('{"steps": [[')
    (tmp_path / "crowded" / "notes.txt").write_text("hello")
    assert crowding.before(8) == Crowds((ONE,))


def test_a_folder_that_cannot_be_used_is_said(crowding, tmp_path):
    (tmp_path / "crowded").write_text("a file")
    with pytest.raises(TableUnavailable, match="Check that all hosts may read and write it"):
        crowding.publish(0, [ONE])
