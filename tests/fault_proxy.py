"""A proxy between a client and an S3 server that loses requests and answers as it is told."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REFUSALS = {
    "503": b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>",
    "403": b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>",
    "501": b"<Error><Code>NotImplemented</Code><Message>Not implemented.\nId: 7</Message></Error>",
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultProxy

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:  # the client has gone away
            self.close_connection = True

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.proxy.decide(self.command, self.path)
        self.proxy.requests.append((self.command, self.path, fault))
        if fault in REFUSALS:
            self.answer(int(fault), {"Content-Type": "application/xml"}, REFUSALS[fault])
            return
        if fault == "hang":
            self.proxy.closed.wait()
        if fault in ("hang", "lost request"):
            self.close_connection = True
            return
        answer = self.forward(body)
        if fault == "lost answer":
            self.close_connection = True
        else:
            self.answer(*answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = pass_on  # noqa: N815

    def forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy.target, timeout=60)
        try:
            connection.request(self.command, self.path, body, dict(self.headers))
            reply = connection.getresponse()
            return reply.status, dict(reply.getheaders()), reply.read()
        finally:
            connection.close()

    def answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.proxy.answered.append(len(content))
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        length = headers.get("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        pass


class FaultProxy:
    """Passes requests on. ``decide(method, path)`` names what happens to each instead of that.

    ``None``: it is passed on. ``"503"``: the store asks for patience. ``"403"``: it denies access.
    ``"501"``: it does not know how.
    ``"hang"``: there is no answer until ``close``. ``"lost request"``, ``"lost answer"``: the
    connection is closed before or after the store has done what was asked.
    """

    def __init__(self, port: int) -> None:
        self.decide: Callable[[str, str], str | None] = lambda method, path: None
        #: What was asked, and what became of it.
        self.requests: list[tuple[str, str, str | None]] = []
        #: The sizes of the answers.
        self.answered: list[int] = []
        self.closed = threading.Event()
        self.target = port
        handler = type("HandlerOfProxy", (Handler,), {"proxy": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def fail(self, fault: str, times: int, method: str = "", part_of_path: str = "") -> None:
        """Let the next ``times`` requests of that kind have a fault."""
        left = [fault] * times

        def decide(asked: str, path: str) -> str | None:
            is_meant = asked.startswith(method) and part_of_path in path
            return left.pop() if is_meant and left else None

        self.decide = decide

    def close(self) -> None:
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()
