"""Pictures for notebooks and papers, drawn by matplotlib (the extra ``plot``).

Figures are made without pyplot: no window opens, and neither the backend nor a style of the
caller's is touched.
"""

from rivermouth.observe.plot.lines import latency, quality, skew, throughput
from rivermouth.observe.plot.map import map  # noqa: A004  (rm.plot.map is what it is)

__all__ = ["latency", "map", "quality", "skew", "throughput"]
