"""A hub of one repository on the loopback device, that can cut connections, fail, and send the wrong bytes."""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOSITORY = "owner/tiny"


class TinyHub:
    """`files`: what it has.  `cut_at`: bytes of an answer after which the connection breaks, once for each entry;
    `broken`: files are answered with 503; `wrong`: bytes are not those of the checksum.  `ranges`: what was asked for.
    """

    def __init__(self, files: Mapping[str, bytes], port: int = 0) -> None:
        self.files = dict(files)
        self.cut_at: list[int] = []
        self.broken = self.wrong = False
        self.fails_after_cuts = False
        self.waits: Event | None = None  # a cut connection stays open until it is set
        self.ranges: list[tuple[str, str | None]] = []
        self.port = port

    def etag(self, name: str) -> str:
        return hashlib.sha256(self.files[name]).hexdigest()

    def environment(self, home: Path) -> dict[str, str]:
        return {
            "HF_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "HF_HOME": str(home),
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1",
            "XDG_CACHE_HOME": str(home / "cache"),
        }


@contextlib.contextmanager
def serving(hub: TinyHub) -> Iterator[TinyHub]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            path = self.path.partition("?")[0]
            if path == f"/api/models/{REPOSITORY}":
                siblings = [{"rfilename": name, "size": len(data)} for name, data in hub.files.items()]
                self._send(200, json.dumps({"id": REPOSITORY, "sha": COMMIT, "siblings": siblings}).encode(), body)
                return
            if not path.startswith(f"/{REPOSITORY}/"):
                self._send(404, b"", body, {"X-Error-Code": "RepoNotFound"})
                return
            name = path.removeprefix(f"/{REPOSITORY}/resolve/main/")
            if name not in hub.files:
                self._send(404, b"", body, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
                return
            self._file(name, body)

        def _file(self, name: str, body: bool) -> None:
            data = hub.files[name]
            asked = self.headers.get("Range")
            if body:
                hub.ranges.append((name, asked))
            if body and hub.broken:
                self._send(503, b"", body)
                return
            start = int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0
            headers = {"ETag": f'"{hub.etag(name)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
            if asked:
                headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            sent = bytes(len(data)) if hub.wrong else data
            self._send(206 if asked else 200, sent[start:], body, headers)

        def _send(self, status: int, data: bytes, body: bool, headers: Mapping[str, str] | None = None) -> None:
            self.send_response(status)
            for key, value in (headers or {}).items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if not body:
                return
            if status in (200, 206) and headers and hub.cut_at:
                self.wfile.write(data[: hub.cut_at.pop(0)])
                hub.broken = hub.broken or (hub.fails_after_cuts and not hub.cut_at)
                self.close_connection = True
                if hub.waits:
                    self.wfile.flush()
                    hub.waits.wait()
                return
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", hub.port), Handler)
    hub.port = server.server_address[1]
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
