# SPDX-License-Identifier: Apache-2.0
"""Starts our programs for scenario tests and talks to them.

Binaries come from the build folder that ROLTER_BUILD names (default: build, beside this repository's meson.build).
Nothing here uses fixed ports or fixed pauses: programs listen on port 0 and say where, and tests wait for a condition
with a deadline (wait_until). Only the standard library is needed.

    with Sim() as sim:                        # rolter-sim, infinitely fast, recording requests
        reply = sim.post("/v1/chat/completions", chat("hello"))
        assert reply.status == 200 and reply.json()["choices"]

    with Gateway(config_text) as gateway:     # rolter with this rolter.toml
        with gateway.stream("/v1/chat/completions", chat("hello", stream=True)) as stream:
            events = stream.all()             # each with type, data, at (time.monotonic)
            assert stream.complete            # the framing ended as it should

stub.py has an upstream for replies that rolter-sim would never give.
"""

import atexit
import collections
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("ROLTER_BUILD", "build")
DEADLINE = float(os.environ.get("ROLTER_TEST_DEADLINE", "15"))
READY = re.compile(r"^listening on (https?)://(.+):(\d+)$")
LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")
# What a sanitizer prints when it found something.
SANITIZER = re.compile(r"(ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error:|CHECK failed)")

_alive = set()


@atexit.register
def _kill_the_rest():
    for process in list(_alive):
        process.kill()


def wait_until(condition, what="the condition", deadline=DEADLINE):
    """Calls <condition> until it gives something true, and gives that back. Fails after <deadline> seconds."""
    end = time.monotonic() + deadline
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true within {deadline} s")
        time.sleep(0.005)


def wait_still(value, seconds=0.5, what="the value", deadline=DEADLINE):
    """Waits until value() is above zero and has not changed for <seconds>, and gives it."""
    seen = [0, time.monotonic()]

    def look():
        now, at = value(), time.monotonic()
        if now != seen[0]:
            seen[:] = now, at
        return now if now and at - seen[1] >= seconds else None
    return wait_until(look, f"{what} standing still", deadline)


class Process:
    """A program of ours. start() begins it, wait_ready() waits for its "listening on" line, stop() ends it."""

    def __init__(self, program, *args, env=None, cwd=None):
        self.command = [str(BUILD / program), *map(str, args)]
        self.env = env
        self.cwd = cwd
        self.child = None
        self.port = None
        self.url = None
        self._lock = threading.Condition()
        self._lines = {"stdout": [], "stderr": []}
        self._threads = []

    def __enter__(self):
        self.start()
        self.wait_ready()
        return self

    def __exit__(self, kind, value, trace):
        if kind:
            self.kill()
            print(f"--- stderr of {self.command[0]}\n{self.stderr}")
        else:
            self.stop()

    def start(self):
        assert self.child is None, "started twice"
        environment = {**os.environ, **(self.env or {})}
        self.child = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, env=environment, cwd=self.cwd)
        _alive.add(self)
        for name in self._lines:
            thread = threading.Thread(target=self._read, args=(name, getattr(self.child, name)), daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def _read(self, name, pipe):
        for line in pipe:
            with self._lock:
                self._lines[name].append(line.decode("utf-8", "replace").rstrip("\n"))
                self._lock.notify_all()
        pipe.close()

    @property
    def stdout(self):
        with self._lock:
            return "\n".join(self._lines["stdout"])

    @property
    def stderr(self):
        with self._lock:
            return "\n".join(self._lines["stderr"])

    @property
    def pid(self):
        return self.child.pid

    def is_running(self):
        return self.child is not None and self.child.poll() is None

    def wait_ready(self, deadline=DEADLINE):
        """Waits for the ready line; sets port and url. Fails when the program ends before, with what it said."""
        end = time.monotonic() + deadline
        while True:
            with self._lock:
                for line in self._lines["stdout"]:
                    match = READY.match(line)
                    if match:
                        self.port = int(match[3])
                        self.url = f"{match[1]}://127.0.0.1:{self.port}"
                        return self
                self._lock.wait(0.05)
            if self.child.poll() is not None:
                self._join()
                raise AssertionError(f"{self.command} ended with {self.child.returncode}:\n{self.stderr}")
            if time.monotonic() > end:
                self.kill()
                raise AssertionError(f"{self.command} was not ready within {deadline} s:\n{self.stderr}")

    def wait_stderr(self, pattern, deadline=DEADLINE):
        """Waits for a line on stderr that matches, and gives the match."""
        def look():
            with self._lock:
                return next((m for m in map(re.compile(pattern).search, self._lines["stderr"]) if m), None)
        return wait_until(look, f"a line like {pattern!r} on stderr", deadline)

    def signal(self, number):
        self.child.send_signal(number)

    def wait(self, deadline=DEADLINE):
        """Waits for the end; gives the exit code (negative: the signal)."""
        try:
            code = self.child.wait(deadline)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.command} did not end within {deadline} s:\n{self.stderr}") from None
        self._join()
        return code

    def stop(self, deadline=DEADLINE):
        """SIGTERM; the program must end with 0 and no sanitizer may have complained."""
        if self.child is None or self not in _alive:
            return
        was_running = self.is_running()
        if was_running:
            self.signal(signal.SIGTERM)
        code = self.wait(deadline)
        assert was_running, f"{self.command} ended by itself, with {code}:\n{self.stderr}"
        assert code == 0, f"{self.command} ended with {code}:\n{self.stderr}"
        assert not SANITIZER.search(self.stderr), self.stderr

    def kill(self):
        if self.is_running():
            self.child.kill()
            self.child.wait()
        self._join()

    def _join(self):
        for thread in self._threads:
            thread.join(5)
        _alive.discard(self)

    # ---- talking to it

    def request(self, method, path, body=None, headers=None, timeout=DEADLINE):
        return request(method, self.url + path, body, headers, timeout)

    def get(self, path, headers=None):
        return self.request("GET", path, None, headers)

    def post(self, path, body, headers=None, timeout=DEADLINE):
        return self.request("POST", path, body, headers, timeout)

    def stream(self, path, body, headers=None, timeout=DEADLINE):
        return Stream("POST", self.url + path, body, headers, timeout)

    def client(self, timeout=DEADLINE):
        """A kept connection."""
        return Client(self.url, timeout)

    def raw(self, data, timeout=DEADLINE):
        """Sends bytes as they are and gives everything that comes until the other side closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout) as s:
            s.sendall(data)
            received = b""
            while True:
                try:
                    piece = s.recv(65536)
                except ConnectionResetError:
                    return received
                if not piece:
                    return received
                received += piece

    def metrics(self):
        """GET /metrics as {"name{labels}": value}."""
        reply = self.get("/metrics")
        assert reply.status == 200
        series = {}
        for line in reply.text().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                series[name] = float(value)
        return series


class Sim(Process):
    """rolter-sim. Keyword arguments become options: Sim(name="a", blocks=100). Infinitely fast unless told."""

    def __init__(self, *args, **options):
        options = {"listen": "127.0.0.1:0", "prefill_tps": 0, "decode_tps": 0, "record": 64, **options}
        flags = []
        for name, value in options.items():
            flag = "--" + name.replace("_", "-")
            if isinstance(value, bool):
                flags += [flag] if value else []
            else:
                for one in value if isinstance(value, (list, tuple)) else [value]:
                    flags += [flag, str(one)]
        super().__init__("rolter-sim", *flags, *args)

    def stats(self):
        return self.get("/sim/stats").json()

    def faults(self, **faults):
        reply = self.post("/sim/faults", faults)
        assert reply.status == 200, reply.text()

    def restart(self):
        assert self.post("/sim/restart", {}).status == 200

    def requests(self):
        """The recorded requests, oldest first: method, target, headers (pairs), body (text)."""
        return self.get("/sim/requests").json()["requests"]

    def wait_stats(self, deadline=DEADLINE, **expected):
        """Waits until these numbers of /sim/stats are as expected."""
        def look():
            now = self.stats()
            return now if all(now[k] == v for k, v in expected.items()) else None
        return wait_until(look, f"stats {expected} (last: {self.stats()})", deadline)


class Gateway(Process):
    """rolter with a configuration. Without a [server] table in the text, it listens on a free loopback port; what
    <server> says is added to that table. With <rows> every request leaves a row in a file, see rows(). <folder>: where
    its files are, instead of a folder that goes with it."""

    def __init__(self, config, *args, env=None, server="", rows=False, folder=None):
        self.temporary = None if folder else tempfile.TemporaryDirectory(prefix="rolter-test-")
        self.folder = Path(folder or self.temporary.name)
        self.server = server
        self.rows_path = self.folder / "rows.jsonl" if rows else None
        self.config_path = self.folder / "rolter.toml"
        self.write_config(config)
        super().__init__("rolter", "--config", self.config_path, *args, env=env, cwd=self.folder)

    def write_config(self, config):
        if not re.search(r"^\s*\[server\]", config, re.M):
            config = f'[server]\nhost = "127.0.0.1"\nport = 0\n{self.server}\n\n' + config
        if self.rows_path and not re.search(r"^\s*\[logging\]", config, re.M):
            config += f'\n[logging]\nfile = "{self.rows_path}"\nflush_ms = 10\n'
        beside = self.config_path.with_suffix(".new")
        beside.write_text(config)
        beside.replace(self.config_path)

    def reload(self, config):
        """Writes the configuration and asks for it. What to wait for is the test's affair."""
        self.write_config(config)
        self.signal(signal.SIGHUP)

    def reload_and_wait(self, config):
        """Reloads, and waits until the configuration runs."""
        before = self.config_version()
        self.reload(config)
        self.wait_version(before + 1)

    def config_version(self):
        return int(self.metrics()["rolter_config_version"])

    def wait_version(self, n):
        wait_until(lambda: self.config_version() >= n, f"configuration {n}")

    def rows(self):
        """The rows so far, as objects."""
        if not self.rows_path.exists():
            return []
        data = self.rows_path.read_bytes()
        return [json.loads(line) for line in data[:data.rfind(b"\n") + 1].splitlines()]

    def wait_rows(self, n, deadline=DEADLINE):
        """Waits for n rows, and gives them."""
        def look():
            rows = self.rows()
            return rows if len(rows) >= n else None
        return wait_until(look, f"{n} rows", deadline)

    def row_of(self, reply, deadline=DEADLINE):
        """The row of a request that was answered with <reply>. Rows of different workers come in any order."""
        ident = reply.headers["x-request-id"]
        return wait_until(lambda: next((r for r in self.rows() if r["request_id"] == ident), None),
                          f"the row of {ident}", deadline)

    def wait_metric(self, name, value, deadline=DEADLINE):
        wait_until(lambda: self.metrics().get(name) == value, f"{name} = {value} (now {self.metrics().get(name)})",
                   deadline)

    def kill(self):
        super().kill()
        self._clean()

    def stop(self, deadline=DEADLINE):
        super().stop(deadline)
        self._clean()

    def _clean(self):
        if self.temporary:
            self.temporary.cleanup()


def free_port():
    """A port that was free a moment ago, for listeners whose port a program does not tell."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# ---- HTTP

class Headers:
    """Fields in the order in which they came; names in any case."""

    def __init__(self, pairs):
        self.pairs = list(pairs)

    def get(self, name, default=None):
        return next((v for k, v in self.pairs if k.lower() == name.lower()), default)

    def all(self, name):
        return [v for k, v in self.pairs if k.lower() == name.lower()]

    def __getitem__(self, name):
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name):
        return self.get(name) is not None

    def __repr__(self):
        return repr(self.pairs)


class Response:
    """A whole reply. <complete> is false when the connection broke before its end; body is what came."""

    def __init__(self, status, headers, body, complete, seconds):
        self.status, self.headers, self.body = status, headers, body
        self.complete, self.seconds = complete, seconds

    def text(self):
        return self.body.decode("utf-8")

    def json(self):
        return json.loads(self.body)

    def events(self):
        """The body as event stream."""
        parser = EventParser()
        return parser.feed(self.body, 0.0)

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:2000]!r}>"


def _encode(body, headers):
    headers = dict(headers or {})
    if body is not None and not isinstance(body, (bytes, str)):
        body = json.dumps(body)
    if isinstance(body, str):
        body = body.encode("utf-8")
    if body is not None and not any(k.lower() == "content-type" for k in headers):
        headers["Content-Type"] = "application/json"
    return body, headers


class Client:
    """One kept connection; requests one after the other."""

    def __init__(self, url, timeout=DEADLINE):
        parts = urlsplit(url)
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def begin(self, method, path, body=None, headers=None):
        """Head and body go out together: a request that the other side counts as begun is there in full (up to 64 KiB)."""
        body, headers = _encode(body, headers)
        if self.connection.sock is None:
            self.connection.connect()
        sock = self.connection.sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        self.connection.request(method, path, body, headers)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        return self.connection.getresponse()

    def request(self, method, path, body=None, headers=None):
        begun = time.monotonic()
        reply = self.begin(method, path, body, headers)
        complete = True
        try:
            data = reply.read()
        except http.client.IncompleteRead as broken:
            data, complete = broken.partial, False
        except ConnectionError:
            data, complete = b"", False
        return Response(reply.status, Headers(reply.getheaders()), data, complete, time.monotonic() - begun)

    def get(self, path, headers=None):
        return self.request("GET", path, None, headers)

    def post(self, path, body, headers=None):
        return self.request("POST", path, body, headers)

    def close(self):
        self.connection.close()


def request(method, url, body=None, headers=None, timeout=DEADLINE):
    """One request on a connection of its own."""
    parts = urlsplit(url)
    with Client(url, timeout) as client:
        return client.request(method, parts.path + ("?" + parts.query if parts.query else ""), body, headers)


class Event:
    """A server-sent event. <at>: time.monotonic() when its last byte was here."""

    def __init__(self, kind, data, ident, at):
        self.type, self.data, self.id, self.at = kind, data, ident, at

    def json(self):
        return json.loads(self.data)

    def __repr__(self):
        return f"<{self.type or 'event'}: {self.data[:200]}>"


class EventParser:
    """Event stream to events, by the rules of the HTML standard."""

    def __init__(self):
        self.rest = b""
        self.comments = []
        self._fresh()

    def _fresh(self):
        self.kind, self.data, self.ident = "", [], None

    def feed(self, piece, at):
        events = []
        text, begin = self.rest + piece, 0
        # A CR at the very end waits: an LF may follow.
        for match in LINE_END.finditer(text):
            line, begin = text[begin:match.start()].decode("utf-8"), match.end()
            if line == "":
                if self.data:
                    events.append(Event(self.kind, "\n".join(self.data), self.ident, at))
                self._fresh()
                continue
            name, _, value = line.partition(":")
            value = value[1:] if value.startswith(" ") else value
            if name == "":
                self.comments.append(value)
            elif name == "event":
                self.kind = value
            elif name == "data":
                self.data.append(value)
            elif name == "id":
                self.ident = value
        self.rest = text[begin:]
        return events


class Stream:
    """A reply that is read as events while it comes. Iterate, or all(). Closing early is a client that leaves.

    <status>, <headers>: as soon as the constructor returns. <complete>: after the end, whether the framing ended as
    it should (last chunk, length); <error>: the exception when it broke. A reply that is no event stream can be read
    whole with read().
    """

    def __init__(self, method, url, body=None, headers=None, timeout=DEADLINE):
        parts = urlsplit(url)
        self.client = Client(url, timeout)
        self.begun = time.monotonic()
        try:
            self.reply = self.client.begin(method, parts.path, body, headers)
        except BaseException:
            self.client.close()
            raise
        self.head_at = time.monotonic()
        self.status = self.reply.status
        self.headers = Headers(self.reply.getheaders())
        self.complete = False
        self.ended = False
        self.error = None
        self.raw = bytearray()
        self._parser = EventParser()
        self._events = collections.deque()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __iter__(self):
        return self

    def __next__(self):
        while not self._events:
            if self.ended:
                raise StopIteration
            try:
                piece = self.reply.read1(65536)
            except (http.client.IncompleteRead, ConnectionError) as broken:
                self.error, self.ended = broken, True
                raise StopIteration from None
            if not piece:
                self.ended = True
                # A chunked body that breaks raises; one with a length just ends early.
                self.complete = self.reply.length in (0, None)
                raise StopIteration
            self.raw += piece
            self._events += self._parser.feed(piece, time.monotonic())
        return self._events.popleft()

    def next(self):
        """The next event; fails when the stream has ended."""
        event = next(self, None)
        assert event is not None, f"the stream has ended ({self.error})"
        return event

    def all(self):
        return list(self)

    def read(self):
        """Everything, for replies that are no event stream."""
        self.all()
        return bytes(self.raw)

    def close(self, reset=False):
        """Leaves. <reset>: the connection is reset instead of closed."""
        if reset and self.client.connection.sock is not None:
            self.client.connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.reply.close()
        self.client.close()


# ---- bodies

def chat(text, model="m", **more):
    """A chat body; <text>: one user turn, or a list of (role, content)."""
    turns = [("user", text)] if isinstance(text, str) else text
    return {"model": model, "messages": [{"role": r, "content": c} for r, c in turns], **more}


def messages(text, model="m", max_tokens=64, **more):
    return {**chat(text, model), "max_tokens": max_tokens, **more}


def chat_text(events):
    """The text of a chat stream's first choice."""
    parts = [e.json() for e in events if e.data != "[DONE]"]
    return "".join(c["delta"].get("content") or "" for p in parts for c in p["choices"] if c["index"] == 0)
