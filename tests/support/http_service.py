"""An HTTP service on loopback that knows names by number; it can be slow, failing, or down."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class NameService:
    """Names ``user n`` for the even numbers below 1000; every request's numbers are noted."""

    def __init__(self):
        self.delay, self.fails, self.status = 0.0, 0, 503
        self.asked: list[list[int]] = []
        self.at_work = self.most_at_work = 0
        self._lock = threading.Lock()
        self._server = None
        self.port = 0
        self.start()

    def start(self):
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                service.answer(self)

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            allow_reuse_address = True
            daemon_threads = True
            request_queue_size = 64

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, request):
        numbers = [int(n) for n in parse_qs(urlsplit(request.path).query)["ids"][0].split(",")]
        with self._lock:
            self.asked.append(numbers)
            self.at_work += 1
            self.most_at_work = max(self.most_at_work, self.at_work)
            fails = self.fails > 0
            self.fails -= fails
        time.sleep(self.delay)
        with self._lock:
            self.at_work -= 1
        known = [{"uid": n, "name": f"user {n}"} for n in numbers if n % 2 == 0 and n < 1000]
        body = json.dumps(known).encode()
        try:
            request.send_response(self.status if fails else 200)
            request.send_header("Content-Length", str(0 if fails else len(body)))
            request.send_header("Connection", "close")
            request.end_headers()
            request.wfile.write(b"" if fails else body)
        except OSError:  # who asked has gone
            pass


@contextmanager
def name_service():
    service = NameService()
    try:
        yield service
    finally:
        service.stop()


def plain(port):
    """A function that asks the service by urllib; it travels to workers by value."""

    def names(keys):
        import json
        from urllib.error import HTTPError
        from urllib.request import urlopen

        ids = ",".join(map(str, keys["uid"].to_pylist()))
        try:
            with urlopen(f"http://127.0.0.1:{port}/names?ids={ids}", timeout=30) as answer:
                return json.load(answer)
        except HTTPError as error:
            error.close()
            raise

    return names


def on_loop(port):
    """The same as a coroutine, by asyncio's own streams."""

    async def names(keys):
        import asyncio
        import json

        ids = ",".join(map(str, keys["uid"].to_pylist()))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(f"GET /names?ids={ids} HTTP/1.0\r\n\r\n".encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        if b" 200 " not in head.splitlines()[0] + b" ":
            raise ConnectionError(head.splitlines()[0].decode())
        return {row["uid"]: row for row in json.loads(body)}

    return names
