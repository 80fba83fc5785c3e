"""Five of Nexmark's queries: with rivermouth, with Spark's own operators, and as plain SQL.

Each is a function from the streams to a stream of the answer. The SQL is asked of the same files as
tables, and says what is right. Windows are those of the published queries, ten seconds, and both
sides wait four seconds for late events, as the published tables do.

Simpler than published: where several auctions or bids of a window are equal, queries 5 and 7 give
the one with the smallest id (published: all of them); of query 9 only its join, which is also that
of queries 4 and 6, without the choice of the best bid of each auction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks.suites.nexmark.events import AUCTIONS, BIDS, OPEN_MS, PERSONS, SIDE_KEYS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Read = Callable[[str], "DataFrame"]  #: an entity's events by its name
Query = Callable[[Read, str], "DataFrame"]  #: of the events and the path of query 13's table

WAIT = "4 seconds"
SIZE, EVERY = "10 seconds", "2 seconds"
OPEN = f"{2 * OPEN_MS} milliseconds"  #: no auction is open for longer
ASKED = {
    "q5": "the auction with the most bids, sliding windows",
    "q7": "the highest bid, tumbling windows",
    "q8": "persons who sell in the window in which they came",
    "q9": "bids while their auction is open",
    "q13": "bids with a table's value",
}
#: what each reads
READS = {
    "q5": (BIDS,), "q7": (BIDS,), "q8": (PERSONS, AUCTIONS), "q9": (AUCTIONS, BIDS), "q13": (BIDS,),
}  # fmt: skip
#: the column that says when an answer is final; None: as soon as it is given
CLOSES = {"q5": "window_end", "q7": "window_end", "q8": "window_end", "q9": None, "q13": None}
_KEY = f"auction % {SIDE_KEYS} AS key"


# -- with rivermouth


def _q5(read: Read, _: str) -> DataFrame:
    import rivermouth as rm

    counts = rm.aggregate(
        read(BIDS),
        rm.summary(by="auction", time="at", window=rm.sliding(SIZE, every=EVERY), n=rm.count()),
        slack=rm.fixed(WAIT),
    ).select("auction", "n", "window_start")
    # windows begin two seconds apart, so that each is alone in a tumbling one
    hot = rm.summary(
        time="window_start", window=rm.tumbling(EVERY),
        hot=rm.top(1, by="n", columns=["auction", "n"]),
    )  # fmt: skip
    found = rm.aggregate(counts, hot, slack=rm.fixed("0 seconds"))
    return found.selectExpr(f"window_start + INTERVAL {SIZE} AS window_end", "inline(hot)")


def _q7(read: Read, _: str) -> DataFrame:
    import rivermouth as rm

    best = rm.top(1, by="price", columns=["auction", "bidder", "price"])
    summary = rm.summary(time="at", window=rm.tumbling(SIZE), best=best)
    found = rm.aggregate(read(BIDS), summary, slack=rm.fixed(WAIT))
    return found.selectExpr("window_end", "inline(best)")


def _q8(read: Read, _: str) -> DataFrame:
    import rivermouth as rm

    found = rm.join_window(
        read(PERSONS), read(AUCTIONS), on=rm.keys({"id": "seller"}), time="at",
        window=rm.tumbling(SIZE), how="semi", lateness=WAIT,
    )  # fmt: skip
    return found.select("window_end", "id", "name")


def _q9(read: Read, _: str) -> DataFrame:
    import rivermouth as rm

    found = rm.join_interval(
        read(AUCTIONS), read(BIDS), on=rm.keys({"id": "auction"}), time="at",
        between=("0 seconds", OPEN), columns={"bidder": "bidder", "price": "price", "bid_at": "at"},
        lateness=WAIT,
    ).where("bid_at <= expires")  # fmt: skip
    return found.select("id", "seller", "category", "expires", "bidder", "price", "bid_at")


def _q13(read: Read, side: str) -> DataFrame:
    import rivermouth as rm

    bids = read(BIDS).selectExpr("*", _KEY)
    found = rm.join_table(bids, rm.tables.parquet(side), on=rm.keys("key"), columns=["value"])
    return found.select("auction", "bidder", "price", "at", "value")


# -- with Spark's own operators


def _spark_q5(read: Read, _: str) -> DataFrame:
    from pyspark.sql import functions as sf

    counts = _waits(read(BIDS)).groupBy("auction", sf.window("at", SIZE, EVERY)).count()
    best = counts.groupBy("window").agg(sf.expr("max(struct(count AS n, -auction AS less))"))
    best = best.toDF("window", "best")
    return best.selectExpr("window.end AS window_end", "-best.less AS auction", "best.n")


def _spark_q7(read: Read, _: str) -> DataFrame:
    from pyspark.sql import functions as sf

    best = sf.expr("max(struct(price, -auction AS auction, -bidder AS bidder))").alias("best")
    found = _waits(read(BIDS)).groupBy(sf.window("at", SIZE)).agg(best)
    return found.selectExpr(
        "window.end AS window_end", "-best.auction AS auction", "-best.bidder AS bidder",
        "best.price",
    )  # fmt: skip


def _spark_q8(read: Read, _: str) -> DataFrame:
    from pyspark.sql import functions as sf

    persons = _waits(read(PERSONS)).select("id", "name", sf.window("at", SIZE).alias("window"))
    sellers = _waits(read(AUCTIONS)).select("seller", sf.window("at", SIZE).alias("when"))
    same: Column = (sf.col("id") == sf.col("seller")) & (sf.col("window") == sf.col("when"))
    found = persons.join(sellers, same, "left_semi")
    return found.selectExpr("window.end AS window_end", "id", "name")


def _spark_q9(read: Read, _: str) -> DataFrame:
    from pyspark.sql import functions as sf

    bids = read(BIDS).selectExpr("auction", "bidder", "price", "at AS bid_at")
    while_open = sf.expr(
        f"id = auction AND bid_at >= at AND bid_at <= at + INTERVAL {OPEN} AND bid_at <= expires"
    )
    found = _waits(read(AUCTIONS)).join(_waits(bids, "bid_at"), while_open)
    return found.select("id", "seller", "category", "expires", "bidder", "price", "bid_at")


def _spark_q13(read: Read, side: str) -> DataFrame:
    bids = read(BIDS).selectExpr("*", _KEY)
    found = bids.join(bids.sparkSession.read.parquet(side).cache(), "key")
    return found.select("auction", "bidder", "price", "at", "value")


def _waits(events: DataFrame, time: str = "at") -> DataFrame:
    return events.withWatermark(time, WAIT)


OURS: dict[str, Query] = {"q5": _q5, "q7": _q7, "q8": _q8, "q9": _q9, "q13": _q13}
SPARK: dict[str, Query] = {
    "q5": _spark_q5, "q7": _spark_q7, "q8": _spark_q8, "q9": _spark_q9, "q13": _spark_q13,
}  # fmt: skip

# -- what is right

SQL = {
    "q5": f"""
        WITH counts AS (
            SELECT auction, window.end AS window_end, count(*) AS n
            FROM bids GROUP BY auction, window(at, '{SIZE}', '{EVERY}')
        ), ranked AS (
            SELECT *, row_number() OVER (PARTITION BY window_end ORDER BY n DESC, auction) AS place
            FROM counts
        )
        SELECT window_end, auction, n FROM ranked WHERE place = 1
    """,
    "q7": f"""
        WITH ranked AS (
            SELECT *, row_number() OVER (
                PARTITION BY window(at, '{SIZE}') ORDER BY price DESC, auction, bidder) AS place
            FROM bids
        )
        SELECT window(at, '{SIZE}').end AS window_end, auction, bidder, price
        FROM ranked WHERE place = 1
    """,
    "q8": f"""
        WITH came AS (SELECT id, name, window(at, '{SIZE}').end AS window_end FROM persons),
        sold AS (SELECT seller, window(at, '{SIZE}').end AS sold_by FROM auctions)
        SELECT window_end, id, name
        FROM came LEFT SEMI JOIN sold ON id = seller AND window_end = sold_by
    """,
    "q9": """
        SELECT a.id, a.seller, a.category, a.expires, b.bidder, b.price, b.at AS bid_at
        FROM auctions a JOIN bids b ON a.id = b.auction AND b.at BETWEEN a.at AND a.expires
    """,
    "q13": f"""
        SELECT auction, bidder, price, at, value
        FROM bids JOIN side ON auction % {SIDE_KEYS} = key
    """,
}
