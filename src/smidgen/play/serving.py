"""A page served on this machine, to this machine alone."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from smidgen.errors import InputError

PORTS = 65_535


def serve(page: bytes, port: int) -> ThreadingHTTPServer:
    """Return a server of one page on localhost; InputError where the port cannot be had."""
    if not 0 <= port <= PORTS:
        raise InputError(f"port {port} does not exist; give 1 to {PORTS:,}, or 0 for any that is free")

    class Handler(BaseHTTPRequestHandler):
        """The one page at the root, and nothing else."""

        def do_GET(self) -> None:
            """Answer with the page."""
            there = self.path.partition("?")[0] in ("/", "/index.html")
            content = page if there else b"There is one page here, at /\n"
            self.send_response(200 if there else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8" if there else "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: the browser shows what went wrong."""

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise InputError(
            f"port {port} of this machine cannot be had: {error.strerror or error}; give another with --port, or 0 for "
            "any that is free"
        ) from None
