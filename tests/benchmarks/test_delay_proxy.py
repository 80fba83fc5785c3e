"""The proxy that puts a store some milliseconds away, as the command that it is."""

from __future__ import annotations

import random
import socket
import socketserver
import subprocess
import sys
import threading
import time

import pytest

DELAY = 0.02


class Echo(socketserver.StreamRequestHandler):
    """Sends back what it gets."""

    def handle(self):
        while piece := self.request.recv(1 << 16):
            self.request.sendall(piece)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def proxied(target):
    port = free_port()
    addresses = ["--listen", f"127.0.0.1:{port}", "--target", f"127.0.0.1:{target}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.harness.delay_proxy", *addresses, "--delay-ms", "20"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "listens\n"
    return process, port


@pytest.fixture(scope="module")
def port():
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as echo:
        threading.Thread(target=echo.serve_forever, daemon=True).start()
        process, port = proxied(echo.server_address[1])
        yield port
        process.kill()
        process.communicate()
        echo.shutdown()


def read(connection, size):
    got = b""
    while len(got) < size and (piece := connection.recv(1 << 16)):
        got += piece
    return got


def test_an_answer_takes_the_delay_both_ways(port):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        began = time.monotonic()
        for _ in range(5):
            connection.sendall(b"ping")
            assert read(connection, 4) == b"ping"
        assert 10 * DELAY <= time.monotonic() - began < 2.0


def test_a_long_message_comes_whole_and_waits_once(port):
    sent = random.Random(1).randbytes(8 << 20)  # 128 pieces, which in turn would wait for 5 s
    with socket.create_connection(("127.0.0.1", port)) as connection:
        began = time.monotonic()
        sending = threading.Thread(target=connection.sendall, args=[sent])
        sending.start()
        assert read(connection, len(sent)) == sent
        assert 2 * DELAY <= time.monotonic() - began < 4.0
        sending.join()
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""  # the end comes back, too


def test_a_target_that_is_not_there_ends_the_connection():
    process, port = proxied(free_port())
    with socket.create_connection(("127.0.0.1", port)) as connection:
        assert connection.recv(1) == b""
    process.kill()
    process.communicate()
