import pytest

import rivermouth as rm
from rivermouth.errors import DefinitionError


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"cell": 0}, "grid: cell is 0. Give a positive length."),
        ({"cell": float("nan")}, "grid: cell is nan. Give a positive length."),
        ({"bin": "0 seconds"}, "grid: bin is 0. Make it positive."),
        ({"salt": -1}, "grid: salt is -1. Make it positive."),
        (
            {"index": "rtree"},
            "grid: 'rtree' is not an index. Use one of ['bands', 'binrtree'].",
        ),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused(asked, message):
    with pytest.raises(DefinitionError) as error:
        rm.grid(**asked)
    assert str(error.value) == message
