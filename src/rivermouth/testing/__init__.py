"""Helpers for tests of code that uses rivermouth, public.

session            a Spark of the test's own
frame, stream      a small text table as a batch frame, or as a stream in any cut
replay             a batch frame as a stream in any cut
rows, batches      what a frame gives, batch or stream, as plain values
check_table        whether a table of one's own does all that a join needs
check_aggregator   whether an aggregate of one's own keeps the rules
recompute          windows from scratch, slow and obvious
disordered         a stream out of order, from a seed
assert_same_rows   a multiset comparison whose failure can be read
oracle             the joins, slow and obvious; those of two streams are in `testing.stream_joins`,
                   moves and stays in `testing.trips`

Three modules have data that needs no download, for demos, docs and benchmarks: `testing.city` the
districts of a city that does not exist, `testing.taxis` the positions of its taxis,
`testing.tracks` objects that drive, stop, fall silent and flap at borders.
"""

from rivermouth.testing import oracle
from rivermouth.testing.aggregators import check_aggregator
from rivermouth.testing.compare import assert_same_rows
from rivermouth.testing.disorder import disordered
from rivermouth.testing.recompute import recompute
from rivermouth.testing.replaying import replay, stream
from rivermouth.testing.results import batches, rows
from rivermouth.testing.sessions import session
from rivermouth.testing.tables import check_table
from rivermouth.testing.text import frame

__all__ = [
    "assert_same_rows",
    "batches",
    "check_aggregator",
    "check_table",
    "disordered",
    "frame",
    "oracle",
    "recompute",
    "replay",
    "rows",
    "session",
    "stream",
]
