"""Our process of `near_shapes`: ``python -m ... INDEX`` answers by that index."""

import sys

from benchmarks.suites.table_join.near_shapes import ours

if __name__ == "__main__":
    ours(sys.argv[1])
