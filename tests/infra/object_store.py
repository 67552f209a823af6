"""A server in this process that implements enough of Amazon's S3 to list and read objects."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


@contextmanager
def object_store(folder: Path) -> Iterator[str]:
    """Serves each subfolder as a bucket, with any credentials; gives `host:port`."""

    class Handler(_Handler):
        root = folder

    server = ThreadingHTTPServer(("localhost", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"localhost:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    root: Path
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_HEAD(self) -> None:
        """The headers of an object, without its bytes."""
        self.do_GET()

    def do_GET(self) -> None:
        """A list of objects, or (a range of) the bytes of one."""
        url = urlsplit(self.path)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        if not key:
            options = {name: values[0] for name, values in parse_qs(url.query).items()}
            self._answer(200, self._list(bucket, options), {"Content-Type": "application/xml"})
            return
        file = self.root / bucket / key
        if not file.is_file():
            missing = f"<Error><Code>NoSuchKey</Code><Key>{escape(key)}</Key></Error>"
            self._answer(404, missing.encode(), {"Content-Type": "application/xml"})
            return
        data = file.read_bytes()
        headers = {"Last-Modified": "Wed, 01 May 2024 00:00:00 GMT", "ETag": '"0"', "Accept-Ranges": "bytes"}
        wanted = self.headers.get("Range")
        if wanted is None:
            self._answer(200, data, headers)
            return
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        part = data[int(first) : int(last) + 1 if last else None]
        headers["Content-Range"] = f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"
        self._answer(206, part, headers)

    def _list(self, bucket: str, options: dict[str, str]) -> bytes:
        prefix, delimiter = options.get("prefix", ""), options.get("delimiter", "")
        folder = self.root / bucket
        keys = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
        found, common = [], set()
        for key in keys:
            if key.startswith(prefix):
                head, slash, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
                if slash:
                    common.add(prefix + head + slash)
                else:
                    found.append(key)
        objects = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2024-05-01T00:00:00.000Z</LastModified>"
            f"<ETag>0</ETag><Size>{(folder / key).stat().st_size}</Size></Contents>"
            for key in found
        )
        prefixes = "".join(f"<CommonPrefixes><Prefix>{escape(p)}</Prefix></CommonPrefixes>" for p in sorted(common))
        return (
            f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>{escape(bucket)}</Name>'
            f"<Prefix>{escape(prefix)}</Prefix><KeyCount>{len(found) + len(common)}</KeyCount><MaxKeys>1000</MaxKeys>"
            f"<IsTruncated>false</IsTruncated>{objects}{prefixes}</ListBucketResult>"
        ).encode()

    def _answer(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)
