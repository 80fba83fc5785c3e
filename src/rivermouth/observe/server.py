"""The server of the page: the standard library's, on loopback, which only ever answers GET.

It answers requests that name this machine as their host, and no others: a page of some other site
whose name was made to point here reads nothing. Nothing it sends may be framed, sniffed or run
from elsewhere, and the page may fetch from its own origin only.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from rivermouth.errors import DefinitionError
from rivermouth.observe.run_api import RunApi

_PAGE = files("rivermouth.observe") / "page"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Found = tuple[str, bytes]


class Server:
    """The page over the histories at `place`, until `stop`."""

    def __init__(self, place: Path, *, host: str = "127.0.0.1", port: int = 0) -> None:
        runs = RunApi(place)
        try:
            self._server = _Listening((host, port), _handler(runs, host))
        except OSError as error:
            raise DefinitionError(
                "watch",
                f"cannot listen on {host}, port {port}",
                there=str(error),
                todo="Choose another port, or none: a free one is then taken.",
            ) from error
        self.port: int = self._server.server_address[1]
        self._host = host
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="rivermouth page", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the page is."""
        host = "127.0.0.1" if self._host in ("", "0.0.0.0", "::") else self._host  # noqa: S104
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Listening(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a browser's idle connection must not hold up the end
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: Any) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


def _handler(runs: RunApi, host: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version, sys_version = "rivermouth", ""
        timeout = 30

        def do_GET(self) -> None:
            if not is_ours(self.headers.get("Host", ""), host):
                self._answer(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"not this host\n")
                return
            found = _find(runs, self.path)
            if found is None:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"not found\n")
            else:
                self._answer(HTTPStatus.OK, *found)

        do_HEAD = do_GET  # noqa: N815

        def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
            self.send_response(status)
            for name, value in _HEADERS.items():
                self.send_header(name, value)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """A page that asks every second must not fill anybody's screen."""

    return Handler


def is_ours(header: str, bound: str) -> bool:
    """Whether a request's Host header names this machine.

    Bound to loopback, that is an address of loopback or "localhost". Bound to more by the user's
    wish, any address will do, for only names can be made to point elsewhere, and this machine's
    own name.

    Examples
    --------
    >>> is_ours("localhost:8080", "127.0.0.1"), is_ours("[::1]:8080", "127.0.0.1")
    (True, True)
    >>> is_ours("rebound.example", "127.0.0.1"), is_ours("10.0.0.7:8080", "127.0.0.1")
    (False, False)
    >>> is_ours("10.0.0.7:8080", "0.0.0.0"), is_ours("rebound.example", "0.0.0.0")
    (True, False)
    """
    name = "" if set(header) & set("/?#@\\ ") else urlsplit(f"//{header}").hostname or ""
    if name in ("localhost", bound):
        return True
    bound_to, asked_for = _address(bound), _address(name)
    loopback = bound == "localhost" or (bound_to is not None and bound_to.is_loopback)
    if asked_for is not None:
        return asked_for.is_loopback or not loopback
    return not loopback and name in (socket.gethostname(), socket.getfqdn())


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _find(runs: RunApi, target: str) -> Found | None:
    """What is at this address: its type and its bytes. Nothing outside the page has a name here."""
    url = urlsplit(target)
    match [unquote(part) for part in url.path.split("/")[1:]]:
        case [""]:
            return _files()["index.html"]
        case ["page", *names]:
            return _files().get("/".join(names))
        case ["metrics"]:
            return CONTENT_TYPE_PLAIN_0_0_4, runs.prometheus()
        case ["api", "runs"]:
            body: bytes | None = runs.listed()
        case ["api", "runs", key]:
            after = parse_qs(url.query).get("after", ["0"])[0]
            body = runs.run(key, int(after) if after.isdecimal() and len(after) < 16 else 0)
        case ["api", "runs", key, "shapes", operator]:
            body = runs.shapes(key, operator)
        case _:
            body = None
    return None if body is None else ("application/json", body)


@cache
def _files() -> dict[str, Found]:
    """All files of the page by their names, read once."""
    return {
        prefix + file.name: (_TYPES[suffix], file.read_bytes())
        for folder, prefix in ((_PAGE, ""), (_PAGE / "vendor", "vendor/"))
        for file in folder.iterdir()
        if (suffix := Path(file.name).suffix) in _TYPES and file.is_file()
    }
