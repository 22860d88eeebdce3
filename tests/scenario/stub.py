# SPDX-License-Identifier: Apache-2.0
"""An upstream that sends exactly the bytes that a test wants, for what rolter-sim rightly never does.

    def odd(request):
        yield b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
        yield b"5\\r\\nda"
        request.gate.wait(10)         # until the test says stub.gate.set()
        raise Reset                   # the connection is reset here; return ends the reply, Close ends the connection

    with Stub(odd) as stub:
        ... f'api_base = "{stub.url}/v1"' ...
        assert stub.requests[0].json()["model"] == "m"
"""

import json
import socket
import struct
import threading

from harness import DEADLINE, Headers


class Reset(Exception):
    """Raised by a handler: the connection is reset."""


class Close(Exception):
    """Raised by a handler: the connection is closed."""


class Request:
    def __init__(self, method, target, headers, body, stub):
        self.method, self.target, self.headers, self.body = method, target, headers, body
        self.gate = stub.gate

    def json(self):
        return json.loads(self.body)


def reply(status, body, headers=()):
    """A whole reply as bytes; <body>: bytes, or anything that becomes JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = [("Content-Type", "application/json"), ("Content-Length", len(data)), *headers]
    head = f"HTTP/1.1 {status} X\r\n" + "".join(f"{k}: {v}\r\n" for k, v in fields) + "\r\n"
    return head.encode() + data


class Stub:
    """<handler>(request) gives the reply's bytes, or pieces of it. One thread for each connection."""

    def __init__(self, handler):
        self.handler = handler
        self.requests = []
        self.gate = threading.Event()
        self._open = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.gate.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in self._open:
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with self._lock:
            self._open.add(connection)
        try:
            connection.settimeout(DEADLINE * 4)
            stream = connection.makefile("rb")
            while (request := self._read(stream)) is not None:
                with self._lock:
                    self.requests.append(request)
                made = self.handler(request)
                for piece in [made] if isinstance(made, bytes) else made:
                    connection.sendall(piece)
        except Reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except (Close, OSError):
            pass
        finally:
            with self._lock:
                self._open.discard(connection)
            stream.close()
            connection.close()

    def _read(self, stream):
        line = stream.readline().decode("latin-1").split()
        if len(line) != 3:
            return None
        pairs = []
        while (field := stream.readline().decode("latin-1").strip()):
            name, _, value = field.partition(":")
            pairs.append((name, value.strip()))
        headers = Headers(pairs)
        if "chunked" in (headers.get("transfer-encoding") or ""):
            body = b""
            while (size := int(stream.readline().split(b";")[0], 16)):
                body += stream.read(size)
                stream.readline()
            stream.readline()
        else:
            body = stream.read(int(headers.get("content-length") or 0))
        return Request(line[0], line[1], headers, body, self)
