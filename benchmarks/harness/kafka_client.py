"""Producer and consumer of a latency run, each a process of its own.

Run with the interpreter of `benchmarks.harness.kafka.client_python`; the standard library and
librdkafka only. Times are nanoseconds of CLOCK_MONOTONIC, one clock for all processes of a host.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

PROBE = -1  # the number of the record that asks whether the way is open


def now() -> int:
    """Nanoseconds on the clock that all processes of this machine share."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def create(bootstrap: str, topics: list[str]) -> None:
    """Make topics of one partition and wait until they are there."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})  # errors only
    for topic in admin.create_topics([NewTopic(name, 1, 1) for name in topics]).values():
        topic.result()


def produce(bootstrap: str, topic: str, bodies: Path, rate: float, count: int) -> None:
    """Send a probe, wait for a line on standard input, then send `count` records at a steady rate.

    A record's key is its number; its value is a line of `bodies` (a JSON object), taken in turn,
    with the time it is ``sent``. One that is overdue leaves at once and says when it left.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "1"})
    lines = bodies.read_text().splitlines()

    def send(number: int, body: str) -> None:
        producer.produce(topic, key=str(number), value=f'{{"sent":{now()},{body[1:]}')
        producer.poll(0)

    send(PROBE, lines[0])
    producer.flush(30)
    sys.stdin.readline()
    start = now()
    for number, body in zip(range(count), itertools.cycle(lines), strict=False):
        due = start + int(number / rate * 1e9)
        time.sleep(max(0, due - now()) / 1e9)
        send(number, body)
    if producer.flush(30):
        raise SystemExit("the broker did not take all records in 30 s")


def replay(bootstrap: str, topic: str, records: Path, factor: float) -> None:
    """Wait for a line on standard input, then send records at their times, `factor` times as fast.

    A line of `records` is microseconds since the first record, a blank, and the value. Says on
    standard output when it began, in seconds since 1970, and in the end by how many seconds a
    record was overdue at most.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "1"})
    with records.open() as lines:
        sys.stdin.readline()
        print(time.time(), flush=True)
        start, overdue = now(), 0
        for line in lines:
            time_us, _, value = line.rstrip().partition(" ")
            due = start + int(int(time_us) * 1000 / factor)
            if (early := due - now()) > 0:
                time.sleep(early / 1e9)
            else:
                overdue = max(overdue, -early)
            producer.produce(topic, value=value)
            producer.poll(0)
    if producer.flush(300):
        raise SystemExit("the broker did not take all records in 300 s")
    print(overdue / 1e9)


def consume(bootstrap: str, topic: str, out: Path, count: int, idle: float) -> None:
    """Note the arrival of each record until all numbers have come, or none for `idle` seconds.

    A number has come when as many records have as the first says by its ``rows``, else one. Says
    so on standard output when the probe is there. Writes a JSON object a record to `out`:
    ``number``, ``arrived``, and what the record's value says.
    """
    settings = {"bootstrap.servers": bootstrap, "group.id": f"{topic}-reader"}
    consumer = Consumer(settings | {"auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([topic])
    missing, came, taken = set(range(count)), Counter(), []
    last = now()
    while missing and now() - last < idle * 1e9:
        message = consumer.poll(0.1)
        if message is None or message.error():
            continue
        last = now()
        number = int(message.key())
        if number == PROBE:
            print("open", flush=True)
            continue
        value = json.loads(message.value())
        taken.append({"number": number, "arrived": last} | value)
        came[number] += 1
        if came[number] >= value.get("rows", 1):
            missing.discard(number)
    consumer.close()
    with out.open("w") as file:
        file.writelines(json.dumps(record) + "\n" for record in taken)


def main() -> None:
    """Do one of the four, as the command line says."""
    parser = argparse.ArgumentParser(description="Producer and consumer of a latency run.")
    parser.add_argument("bootstrap")
    verbs = parser.add_subparsers(dest="verb", required=True)
    creating = verbs.add_parser("create")
    creating.add_argument("topics", nargs="+")
    producing = verbs.add_parser("produce")
    producing.add_argument("topic")
    producing.add_argument("--bodies", type=Path, required=True)
    producing.add_argument("--rate", type=float, required=True)
    producing.add_argument("--count", type=int, required=True)
    replaying = verbs.add_parser("replay")
    replaying.add_argument("topic")
    replaying.add_argument("--records", type=Path, required=True)
    replaying.add_argument("--factor", type=float, required=True)
    consuming = verbs.add_parser("consume")
    consuming.add_argument("topic")
    consuming.add_argument("--out", type=Path, required=True)
    consuming.add_argument("--count", type=int, required=True)
    consuming.add_argument("--idle", type=float, required=True)
    words = vars(parser.parse_args())
    does = {"create": create, "produce": produce, "replay": replay, "consume": consume}
    does[words.pop("verb")](**words)


if __name__ == "__main__":
    main()
