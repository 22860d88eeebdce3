# SPDX-License-Identifier: Apache-2.0
"""Upstreams that a test scripts byte by byte, where rolter-sim is too well behaved.

    def answer(call):                       # runs on a thread of its own for each request
        call.send(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{}")

    with Upstream(answer) as upstream:
        ... upstream.url ... upstream.calls[0].body

Without <answer> it answers every request with a small chat completion that names the upstream. An exception in a
script (a failed assertion, too) fails the test when the upstream is closed.
"""

import json
import select
import socket
import ssl
import struct
import threading

from harness import DEADLINE, Headers, wait_until


class Call:
    """A request that came, and the connection to answer it on."""

    def __init__(self, upstream, connection, line, headers, head, body):
        self.upstream, self.connection = upstream, connection
        self.method, self.target, _ = line.split(" ", 2)
        self.headers, self.head, self.body = headers, head, body
        self.keep = True

    def json(self):
        return json.loads(self.body)

    def send(self, data):
        """False when the other side has gone."""
        try:
            self.connection.sendall(data)
            return True
        except OSError:
            return False

    def reply(self, status=200, body=b"{}", headers=(), reason="Whatever"):
        if not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        fields = "".join(f"{k}: {v}\r\n" for k, v in headers)
        if not any(k.lower() == "content-type" for k, _ in headers):
            fields += "Content-Type: application/json\r\n"
        return self.send(f"HTTP/1.1 {status} {reason}\r\n{fields}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def begin_events(self, headers=()):
        fields = "".join(f"{k}: {v}\r\n" for k, v in headers)
        return self.send(f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{fields}"
                         "Transfer-Encoding: chunked\r\n\r\n".encode())

    def chunk(self, data):
        return self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def event(self, data):
        if not isinstance(data, str):
            data = json.dumps(data)
        return self.chunk(f"data: {data}\n\n".encode())

    def end(self):
        return self.send(b"0\r\n\r\n")

    def close(self):
        self.keep = False
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def reset(self):
        self.keep = False
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def wait_gone(self, deadline=DEADLINE):
        """Waits until the other side has closed or reset the connection."""
        self.keep = False

        def look():
            try:
                readable, _, _ = select.select([self.connection], [], [], 0.05)
                return bool(readable) and self.connection.recv(65536) == b""
            except OSError:
                return True
        wait_until(look, "the end of the upstream connection", deadline)


def chat_reply(text, model="m", prompt=3, completion=2):
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": prompt, "completion_tokens": completion,
                      "total_tokens": prompt + completion}}


class Upstream:
    def __init__(self, answer=None, name="u", context=None):
        self.name, self.answer, self.context = name, answer or self._default, context
        self.calls, self.errors = [], []
        self.accepted = 0
        self._open, self._threads, self._lock = set(), [], threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self._listener.getsockname()[1]
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.port}"
        self._spawn(self._accept)

    def _default(self, call):
        call.reply(200, chat_reply(self.name))

    def _spawn(self, function, *args):
        thread = threading.Thread(target=function, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.accepted += 1
                self._open.add(connection)
            self._spawn(self._serve, connection)

    def _serve(self, connection):
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.context:
                plain, connection = connection, self.context.wrap_socket(connection, server_side=True)
                with self._lock:
                    self._open.discard(plain)
                    self._open.add(connection)
            rest = b""
            while True:
                call, rest = self._read(connection, rest)
                if not call:
                    return
                with self._lock:
                    self.calls.append(call)
                try:
                    self.answer(call)
                except Exception as error:
                    self.errors.append(error)
                    return
                if not call.keep:
                    return
        except (OSError, ssl.SSLError):
            pass
        finally:
            connection.close()
            with self._lock:
                self._open.discard(connection)

    def _read(self, connection, rest):
        while b"\r\n\r\n" not in rest:
            piece = connection.recv(65536)
            if not piece:
                return None, b""
            rest += piece
        head, rest = rest.split(b"\r\n\r\n", 1)
        line, *fields = head.decode("latin-1").split("\r\n")
        pairs = [tuple(part.strip() for part in field.split(":", 1)) for field in fields]
        headers = Headers(pairs)
        length = int(headers.get("content-length", "0"))
        while len(rest) < length:
            piece = connection.recv(65536)
            if not piece:
                return None, b""
            rest += piece
        return Call(self, connection, line, headers, head, rest[:length]), rest[length:]

    def wait_calls(self, n, deadline=DEADLINE):
        wait_until(lambda: len(self.calls) >= n, f"{n} requests at {self.name} (so far {len(self.calls)})", deadline)
        return self.calls

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        assert not self.errors, self.errors

    def close(self):
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listener.close()
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def dead_port():
    """A loopback port that nobody listens on: bound, so that nobody else takes it, and not listening."""
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    return s, s.getsockname()[1]


def fleet(upstreams, strategy="round_robin", more="", model="m", route="", kind="openai_compatible"):
    """A configuration: a provider p0, p1... for each upstream (anything with a url, or a URL), one route over all."""
    text = ""
    for i, one in enumerate(upstreams):
        url = one if isinstance(one, str) else one.url
        text += f'[[providers]]\nname = "p{i}"\nkind = "{kind}"\napi_base = "{url}"\n\n'
    targets = ", ".join(f'{{ provider = "p{i}" }}' for i in range(len(upstreams)))
    return text + f'[[routes]]\nmodel = "{model}"\nstrategy = "{strategy}"\n{route}\ntargets = [{targets}]\n\n{more}\n'


def metric(name, **labels):
    """The key of a series in Process.metrics(): labels in the order given."""
    return name + ("{" + ",".join(f'{k}="{v}"' for k, v in labels.items()) + "}" if labels else "")


def wait_idle(gateway, providers=("p0",)):
    """Waits until nothing is charged to anybody."""
    def look():
        now = gateway.metrics()
        names = ["rolter_inflight_requests"]
        for p in providers:
            names += [metric("rolter_inflight", provider=p), metric("rolter_provider_queue_depth", provider=p)]
        return all(now[name] == 0 for name in names)
    wait_until(look, "an idle gateway")
