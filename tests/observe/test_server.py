"""The page's server: what it answers, whom it refuses, and that a crowd does not stop it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.histories import batch, begin, numbers, whole

from rivermouth.errors import DefinitionError
from rivermouth.observe.server import Server, is_ours


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    whole(tmp_path / "first.jsonl")
    started = Server(tmp_path)
    yield started
    started.stop()


def ask(
    server: Server, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request(method, path, headers={"Host": f"127.0.0.1:{server.port}", **headers})
    answer = connection.getresponse()
    found = answer.status, {name.lower(): of for name, of in answer.getheaders()}, answer.read()
    connection.close()
    return found


def asked(server: Server, path: str) -> Any:
    status, _, body = ask(server, path)
    assert status == 200, path
    return json.loads(body)


def test_a_run_s_numbers_are_those_of_metrics(server: Server) -> None:
    (run,) = asked(server, "/api/runs")
    assert (run["key"], run["name"], run["status"], run["batches"]) == (
        "first",
        "cabs",
        "ended",
        12,
    )
    page = asked(server, "/api/runs/first")
    assert page["metrics"] == numbers(*(batch(number) for number in range(12)))
    assert page["maps"] == ["join_table.districts.geojson"]
    assert len(page["batches"]) == 12
    assert page["places"]["join_table.districts.geojson"][:2] == [[0.5, 0.5], [1.5, 0.5]]


def test_only_news_are_sent_to_who_knows_the_rest(server: Server, tmp_path: Path) -> None:
    writer = begin(tmp_path / "second.jsonl")
    writer.batch(batch(0))
    assert len(asked(server, "/api/runs/second?after=0")["batches"]) == 1
    assert asked(server, "/api/runs/second?after=1")["batches"] == []
    writer.batch(batch(1))
    news = asked(server, "/api/runs/second?after=1")
    assert (news["seen"], len(news["batches"]), news["metrics"]["batches"]) == (2, 1, 2)
    assert len(asked(server, "/api/runs/second?after=x")["batches"]) == 2


def test_the_newest_run_is_first_and_other_files_are_passed_over(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "noise.jsonl").write_text("not ours\n")
    begin(tmp_path / "second.jsonl", name=None)
    assert [run["key"] for run in asked(server, "/api/runs")] == ["second", "first"]
    (tmp_path / "first.jsonl").unlink()
    assert [run["key"] for run in asked(server, "/api/runs")] == ["second"]


def test_shapes_are_those_of_the_operator_s_table(server: Server) -> None:
    shapes = asked(server, "/api/runs/first/shapes/join_table.districts.geojson")
    assert shapes["labels"] == ["Harbour", "<script>alert(1)</script>", "Old Town"]
    assert len(shapes["rings"]) == 3


def test_prometheus_text_tells_of_running_queries(server: Server, tmp_path: Path) -> None:
    begin(tmp_path / "second.jsonl", name="live").batch(batch(0))
    status, headers, body = ask(server, "/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b'rivermouth_rows_total{query="live",query_id="id of live"} 100.0\n' in body
    assert b"cabs" not in body


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/api/runs/none",
        "/api/runs/none/shapes/x",
        "/api/runs/first/shapes/x",
        "/page/",
        "/page/../server.py",
        "/page/%2e%2e/server.py",
        "/page/vendor/../../server.py",
        "/page//etc/passwd",
        "/page/vendor/uPlot.LICENSE",
        "/first.jsonl",
    ],
)
def test_what_is_not_there_is_not_found(server: Server, path: str) -> None:
    assert ask(server, path)[0] == 404


@pytest.mark.parametrize("path", ["/", "/page/main.js", "/page/style.css", "/page/icon.svg"])
def test_the_page_may_use_its_own_origin_only(server: Server, path: str) -> None:
    status, headers, body = ask(server, path)
    assert status == 200
    assert int(headers["content-length"]) == len(body) > 0
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers
    assert ask(server, path, "HEAD")[2] == b""


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "localhost@evil.example"],
)
def test_requests_for_other_hosts_are_refused(server: Server, host: str) -> None:
    status, _, body = ask(server, "/api/runs", Host=host)
    assert (status, body) == (421, b"not this host\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_but_reading_is_answered(server: Server, method: str) -> None:
    assert ask(server, "/api/runs", method)[0] == 501


def test_it_listens_on_loopback_only(server: Server) -> None:
    assert server.url == f"http://127.0.0.1:{server.port}/"
    addresses = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None)}
    for address in {str(one) for one in addresses if "." in str(one)} - {"127.0.0.1"}:
        with socket.socket() as outside:
            outside.settimeout(2)
            assert outside.connect_ex((address, server.port)) != 0


def test_told_to_listen_to_more_it_still_refuses_names_that_are_not_its_own() -> None:
    assert is_ours("192.0.2.7:8080", "0.0.0.0")
    assert is_ours(f"{socket.gethostname()}:8080", "0.0.0.0")
    assert not is_ours("evil.example", "0.0.0.0")
    assert not is_ours("192.0.2.7", "localhost")
    assert is_ours("box.lan:1", "box.lan")


def test_a_port_that_is_taken_is_told_so(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=f"cannot listen on 127.0.0.1, port {server.port}"):
        Server(tmp_path, port=server.port)


def test_a_hundred_clients_are_served_at_once(server: Server) -> None:
    """All connect before the first asks, each asks several times over its one connection."""
    together = threading.Barrier(100, timeout=60)

    def client(number: int) -> list[int]:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.connect()
        together.wait()
        rows = []
        for _ in range(5):
            connection.request("GET", f"/api/runs/first?after={number % 3}")
            rows.append(json.loads(connection.getresponse().read())["metrics"]["rows"])
        connection.close()
        return rows

    with ThreadPoolExecutor(100) as crowd:
        assert {rows for found in crowd.map(client, range(100)) for rows in found} == {1200}


def test_clients_that_say_nothing_or_nonsense_do_not_stop_it(server: Server) -> None:
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(50)]
    for number, one in enumerate(silent):
        one.sendall([b"", b"GET", b"\0\xff\r\n\r\n", b"GET / HTTP/1.1\r\n"][number % 4])
    assert asked(server, "/api/runs")[0]["key"] == "first"
    for one in silent:
        one.close()
    assert asked(server, "/api/runs")[0]["key"] == "first"
