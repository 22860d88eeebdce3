# SPDX-License-Identifier: Apache-2.0
"""The listener against real sockets: hostile bytes, limits, time-outs, pipelining, TLS, Unix sockets."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import stat
import threading
import time
import warnings

import pytest

import hostile
from certificates import Authority, server_context
from harness import DEADLINE, Gateway, Headers, chat, wait_until
from upstream import chat_reply, fleet, metric

CHAT = "/v1/chat/completions"
CODES = {400: "bad_request", 408: "request_timeout", 413: "request_too_large", 431: "head_too_large",
         501: "unsupported_coding", 505: "bad_request"}


def connect(gateway):
    s = socket.create_connection(("127.0.0.1", gateway.port), DEADLINE)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def read_all(s):
    data = b""
    while True:
        piece = s.recv(65536)
        if not piece:
            return data
        data += piece


def replies(data):
    """All replies of a connection: (status, headers, body)."""
    found = []
    while data:
        head, data = data.split(b"\r\n\r\n", 1)
        line, *fields = head.decode("latin-1").split("\r\n")
        headers = Headers(tuple(f.split(": ", 1)) for f in fields)
        status = int(line.split(" ")[1])
        length = int(headers.get("content-length", "0"))
        found.append((status, headers, data[:length]))
        data = data[length:]
    return found


def ask(gateway, raw):
    with connect(gateway) as s:
        s.sendall(raw)
        return replies(read_all(s))


def post(body, *fields, path=CHAT, version="1.1"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/{version}", "Host: a", f"Content-Length: {len(data)}", *fields, "", ""]
    return "\r\n".join(lines).encode() + data


@pytest.fixture(scope="module")
def shared():
    with Gateway("", rows=True) as gateway:
        yield gateway


HOSTILE = hostile.requests()


@pytest.mark.parametrize("raw, status, how", [(*h[1:], how) for h in HOSTILE for how in ("at once", "byte by byte")
                                             if how == "at once" or len(h[1]) < 300],
                         ids=[f"{h[0]}, {how}" for h in HOSTILE for how in ("at once", "byte by byte")
                              if how == "at once" or len(h[1]) < 300])
def test_hostile(shared, raw, status, how):
    with connect(shared) as s:
        try:
            if how == "at once":
                s.sendall(raw)
            else:
                for i in range(len(raw)):
                    s.sendall(raw[i:i + 1])
        except (ConnectionResetError, BrokenPipeError):
            assert status != 200  # refused while we were still sending
        if status == 200:
            s.shutdown(socket.SHUT_WR)
        answers = replies(read_all(s))
    assert answers
    *before, (last, headers, body) = answers
    follows = raw.count(b"Host: b\r\n\r\n") and not raw.startswith(b"GET /healthz HTTP/1.1\r\nHost: b")
    if status == 200:
        assert all(h.get("x-request-id") for _, h, _ in answers)  # accepted; what the route says is another matter
        assert len(answers) == (2 if follows else 1)
        assert last == 200 or b"missing_required_parameter" in body or b"invalid_json" in body
    else:
        assert last == status and headers["connection"] == "close"
        assert json.loads(body)["error"]["code"] == CODES[status]
        assert len(before) <= 1 and all(s == 200 or b"invalid_json" in b or b"missing_req" in b for s, _, b in before)


def test_rejects_are_counted(shared):
    name = metric("rolter_http_rejects_total", status="400")
    before = shared.metrics().get(name, 0)
    ask(shared, b"nonsense\r\n\r\n")
    assert shared.metrics()[name] == before + 1


# ---- ordinary life

@pytest.mark.parametrize("method, path, status, allow", [
    ("GET", "/nowhere", 404, None), ("GET", "/v1/nowhere", 404, None), ("POST", "/v1/chat/completions/", 404, None),
    ("GET", CHAT, 405, "POST"), ("DELETE", CHAT, 405, "POST"), ("POST", "/v1/models", 405, "GET, HEAD"),
    ("POST", "/healthz", 405, "GET, HEAD"), ("POST", "/metrics", 405, "GET, HEAD"), ("OPTIONS", CHAT, 405, "POST")])
def test_paths_and_methods(shared, method, path, status, allow):
    reply = shared.request(method, path, b"{}" if method == "POST" else None)
    assert reply.status == status and reply.headers.get("allow") == allow
    assert reply.json()["error"]["type"] and reply.headers["x-request-id"]


@pytest.mark.parametrize("path, status", [
    ("/healthz", 200), ("/readyz", 200), ("/metrics", 200), ("/v1/models", 200), (CHAT, 405), ("/nowhere", 404)])
def test_head_has_no_body(shared, path, status):
    """A body would be read as the next reply of the connection."""
    with connect(shared) as s:
        s.sendall(f"HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n"
                  "GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        head, rest = read_all(s).split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 %d " % status) and b"content-length: 0" not in head
    assert rest.startswith(b"HTTP/1.1 200 OK\r\n") and rest.endswith(b"\r\n\r\nok")


def test_refused_heads_have_an_id(shared):
    ids = [ask(shared, b"nonsense\r\n\r\n")[0][1]["x-request-id"] for _ in range(2)]
    assert ids[0] != ids[1] and all(len(one) == 36 for one in ids)


def test_old_client_is_told_that_the_connection_stays(shared):
    with connect(shared) as s:
        for path, status in (("/healthz", 200), ("/nowhere", 404)):
            s.sendall(f"GET {path} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".encode())
            ((was, headers, _),) = replies(s.recv(65536))
            assert was == status and headers["connection"] == "keep-alive"


def test_keep_alive_and_pipelining(new_upstream, new_gateway):
    """Replies in the order of the requests, whatever each of them takes."""
    def answer(call):
        call.reply(200, chat_reply(call.json()["messages"][0]["content"]))

    gateway = new_gateway(fleet([new_upstream(answer)]))
    raw = b"".join(post(chat(f"t{i}"), f"x-request-id: r{i}") for i in range(50))
    raw += b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" + post(chat("never"))
    answers = ask(gateway, raw)
    assert len(answers) == 51 and answers[-1][0] == 200 and answers[-1][2] == b"ok"
    for i, (status, headers, body) in enumerate(answers[:-1]):
        assert status == 200 and headers["x-request-id"] == f"r{i}"
        assert json.loads(body)["choices"][0]["message"]["content"] == f"t{i}"


def test_many_small_pipelined(shared):
    raw = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" * 2000 + b"GET /healthz HTTP/1.0\r\n\r\n"
    with connect(shared) as s:
        threading.Thread(target=s.sendall, args=(raw,)).start()
        assert [a[0] for a in replies(read_all(s))] == [200] * 2001


def test_old_clients(shared):
    [(status, headers, _)] = ask(shared, b"GET /healthz HTTP/1.0\r\n\r\n")
    assert status == 200 and headers["connection"] == "close"


def test_chunked_body(new_upstream, new_gateway):
    upstream = new_upstream()
    gateway = new_gateway(fleet([upstream]))
    body = json.dumps(chat("x" * 100000)).encode()
    with connect(gateway) as s:
        s.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n".encode())
        for i in range(0, len(body), 4999):
            piece = body[i:i + 4999]
            s.sendall(b"%x;ext=1\r\n%s\r\n" % (len(piece), piece))
        s.sendall(b"0\r\nX-Trailer: dropped\r\n\r\n")
        assert replies(read_all(s))[0][0] == 200
    [call] = upstream.calls
    assert call.body == body and call.headers["content-length"] == str(len(body))
    assert "transfer-encoding" not in call.headers and "x-trailer" not in call.headers


def test_expect_continue(new_upstream, new_gateway):
    upstream = new_upstream()
    gateway = new_gateway(fleet([upstream], more='[[virtual_keys]]\nkey = "k"'), server="max_body_bytes = 1000")
    body = json.dumps(chat("x")).encode()
    head = (f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer k\r\nContent-Length: {len(body)}\r\n"
            "Expect: 100-continue\r\nConnection: close\r\n\r\n").encode()
    with connect(gateway) as s:
        s.sendall(head)
        interim = b""
        while b"\r\n\r\n" not in interim:
            interim += s.recv(1000)
        assert interim.startswith(b"HTTP/1.1 100 ") and not upstream.calls
        s.sendall(body)
        assert replies(read_all(s))[0][0] == 200
    assert "expect" not in upstream.calls[0].headers
    # Who is refused need not send the body.
    assert ask(gateway, head.replace(b"Bearer k", b"Bearer z"))[0][0] == 401
    assert ask(gateway, head.replace(b"%d" % len(body), b"1001"))[0][0] == 413


def test_large_bodies(new_upstream, new_gateway):
    upstream = new_upstream(lambda call: call.reply(200, {"bytes": len(call.body)}))
    gateway = new_gateway(fleet([upstream]), server="max_body_bytes = 4000000")
    body = json.dumps(chat("ü" * 600000), ensure_ascii=False).encode()
    reply = gateway.post(CHAT, body)
    assert reply.status == 200 and reply.json() == {"bytes": len(body)} and upstream.calls[0].body == body
    # Too large: said at once when it is declared, else as soon as it is.
    [(status, _, _)] = ask(gateway, f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nContent-Length: 4000001\r\n\r\n".encode())
    assert status == 413
    with connect(gateway) as s:
        s.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        try:
            for _ in range(5):
                s.sendall(b"f4240\r\n" + b" " * 1000000 + b"\r\n")
        except (ConnectionResetError, BrokenPipeError):
            pass
        [(status, headers, body)] = replies(read_all(s))
        assert status == 413 and json.loads(body)["error"]["code"] == "request_too_large"
    assert len(upstream.calls) == 1


def test_body_that_is_no_json(shared):
    for body in (b"", b"{", b"[]", b"{}", b'{"model":1}', b'{"model":"a","model":"a"}', b'\xff', b'{"model":"m"} x',
                 b'{"a":' * 5000, b'{"model": "\xff"}'):
        reply = shared.post(CHAT, body)
        assert reply.status == 400 and reply.json()["error"]["type"] == "invalid_request_error", body


def test_content_coding_is_refused(shared):
    assert shared.post(CHAT, b"\x1f\x8b", {"Content-Encoding": "gzip"}).status == 415
    assert shared.post(CHAT, chat("x"), {"Content-Encoding": "identity"}).status == 404  # no such model


# ---- time

@pytest.fixture(scope="module")
def impatient():
    with Gateway("[timeouts]\nhead_secs = 1\nbody_secs = 1\nidle_secs = 1\n", rows=True) as gateway:
        yield gateway


@pytest.mark.parametrize("raw", [b"", b"POST /v1/chat", b"GET /healthz HTTP/1.1\r\nHost: a\r\n",
                                 f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{{".encode(),
                                 f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{{".encode()],
                         ids=["nothing", "a word", "half a head", "half a body", "half a chunk"])
def test_slow_clients(impatient, raw):
    with connect(impatient) as s:
        begun = time.monotonic()
        s.sendall(raw)
        answers = replies(read_all(s))
        assert 0.9 < time.monotonic() - begun < 6
    if raw:
        [(status, headers, body)] = answers
        assert status == 408 and headers["connection"] == "close"
        assert json.loads(body)["error"]["code"] == "request_timeout"
    else:
        assert all(status == 408 for status, _, _ in answers)


def test_head_has_one_limit_for_all_of_it(impatient):
    """A byte now and then does not buy time (slowloris)."""
    with connect(impatient) as s:
        begun = time.monotonic()
        stop = threading.Event()

        def drip():
            try:
                s.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: ")
                while not stop.wait(0.1):
                    s.sendall(b"x")
            except OSError:
                pass

        thread = threading.Thread(target=drip)
        thread.start()
        [(status, _, _)] = replies(read_all(s))
        assert status == 408 and time.monotonic() - begun < 5
        stop.set()
        thread.join()


def test_body_may_take_its_time(impatient):
    """The body's limit is between two reads."""
    raw = post({"model": "nobody", "messages": []}, "Connection: close")
    head, body = raw[:-20], raw[-20:]
    begun, more = time.monotonic(), threading.Event()
    with connect(impatient) as s:
        s.sendall(head)
        for i in range(0, 20, 4):
            assert not more.wait(0.3)
            s.sendall(body[i:i + 4])
        assert replies(read_all(s))[0][0] == 404
    assert time.monotonic() - begun > 1.2


def test_idle_connections_are_closed(impatient):
    with connect(impatient) as s:
        s.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        begun = time.monotonic()
        assert [a[0] for a in replies(read_all(s))] == [200]  # and then the end, without a word
        assert 0.9 < time.monotonic() - begun < 6


def test_rows_of_refused_requests(impatient):
    """A request whose head could be read has a row (R41)."""
    def timed_out():
        return [r for r in impatient.rows() if r["status"] == 408 and r["path"] == CHAT]
    before = len(timed_out())
    ask(impatient, f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{{".encode())
    wait_until(lambda: len(timed_out()) == before + 1)
    assert timed_out()[-1]["error"] == "request_timeout"


# ---- Unix socket and TLS

class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=DEADLINE)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(DEADLINE)
        self.sock.connect(self.path)


def test_unix_socket(new_upstream, new_gateway, tmp_path):
    path = tmp_path / "rolter.sock"
    gateway = new_gateway(fleet([new_upstream()]), server=f'unix = "{path}"', rows=True)
    assert stat.S_ISSOCK(os.stat(path).st_mode)
    for _ in range(8):
        c = UnixConnection(path)
        c.request("POST", CHAT, json.dumps(chat("x")), {"Content-Type": "application/json"})
        reply = c.getresponse()
        assert reply.status == 200 and json.loads(reply.read())["choices"]
        c.close()
    assert gateway.post(CHAT, chat("x")).status == 200
    assert len(gateway.wait_rows(9)) == 9
    gateway.stop()
    assert not path.exists()


def test_stale_unix_socket(new_gateway, start, tmp_path):
    path = tmp_path / "rolter.sock"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))
    new_gateway("", server=f'unix = "{path}"')
    c = UnixConnection(path)
    c.request("GET", "/healthz")
    assert c.getresponse().status == 200
    c.close()
    with pytest.raises(AssertionError, match="in use"):
        start(Gateway("", server=f'unix = "{path}"'))


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def certificate(authority):
    return authority.issue("server", "IP:127.0.0.1,DNS:localhost")


def test_tls_listener(new_upstream, new_gateway, authority, certificate):
    cert, key = certificate
    gateway = new_gateway(fleet([new_upstream()]), server=f'tls_cert = "{cert}"\ntls_key = "{key}"')
    assert gateway.url.startswith("https://")
    connection = http.client.HTTPSConnection("127.0.0.1", gateway.port, context=authority.client_context(),
                                             timeout=DEADLINE)
    for size in (1, 100000):
        connection.request("POST", CHAT, json.dumps(chat("x" * size)))
        reply = connection.getresponse()
        assert reply.status == 200 and json.loads(reply.read())["choices"]
    connection.close()
    with pytest.raises(ssl.SSLCertVerificationError):
        http.client.HTTPSConnection("127.0.0.1", gateway.port, timeout=DEADLINE).request("GET", "/healthz")
    with connect(gateway) as s:  # plain HTTP on it
        s.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        s.settimeout(DEADLINE)
        try:
            assert b"200 OK" not in read_all(s)
        except ConnectionResetError:
            pass
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        with connect(gateway) as s:
            old.wrap_socket(s)


def test_tls_stream(new_upstream, new_gateway, authority, certificate):
    cert, key = certificate
    seen = threading.Event()

    def answer(call):
        call.begin_events()
        call.event({"n": 1})
        assert seen.wait(DEADLINE)
        for i in range(2000):
            call.event({"n": i, "pad": "x" * 200})
        call.end()

    gateway = new_gateway(fleet([new_upstream(answer)]), server=f'tls_cert = "{cert}"\ntls_key = "{key}"')
    connection = http.client.HTTPSConnection("127.0.0.1", gateway.port, context=authority.client_context(),
                                             timeout=DEADLINE)
    connection.request("POST", CHAT, json.dumps(chat("x", stream=True)))
    reply = connection.getresponse()
    assert b'{"n": 1}' in reply.read1(1000)
    seen.set()
    rest = reply.read()
    assert rest.count(b"\n\n") == 2000 and b'"n": 1999' in rest
    connection.close()


def test_tls_certificate_is_renewed(new_upstream, new_gateway, authority, tmp_path):
    cert, key = tmp_path / "live.pem", tmp_path / "live.key"

    def install(name):
        new_cert, new_key = authority.issue(name, f"IP:127.0.0.1,DNS:{name}")
        cert.write_bytes(new_cert.read_bytes())
        key.write_bytes(new_key.read_bytes())

    def names(gateway):
        with connect(gateway) as plain, authority.client_context().wrap_socket(
                plain, server_hostname="127.0.0.1") as s:
            return [v for k, v in s.getpeercert()["subjectAltName"] if k == "DNS"]

    install("first.test")
    text = fleet([new_upstream()])
    # One worker: each takes a configuration over by itself, so that one may still show the certificate of before.
    gateway = new_gateway(text, server=f'tls_cert = "{cert}"\ntls_key = "{key}"\nworkers = 1')
    assert names(gateway) == ["first.test"]
    install("second.test")
    gateway.reload(text)
    wait_until(lambda: names(gateway) == ["second.test"])
    key.write_text("rubbish")
    gateway.reload(text + "# again\n")
    gateway.wait_stderr("certificate")
    assert names(gateway) == ["second.test"]


def tls_fleet(upstream, bundle=None, host="127.0.0.1", more="", own=""):
    text = fleet([upstream.url.replace("127.0.0.1", host)], more=more).replace(
        'kind = "openai_compatible"', 'kind = "openai_compatible"\n' + own)
    return text + (f'[tls]\nca_bundles = ["{bundle}"]\n' if bundle else "")


def test_tls_upstream(new_upstream, new_gateway, authority, certificate):
    upstream = new_upstream(context=server_context(*certificate))
    for host in ("127.0.0.1", "localhost"):
        gateway = new_gateway(tls_fleet(upstream, authority.path, host))
        for _ in range(3):
            assert gateway.post(CHAT, chat("x" * 50000)).status == 200
    gateway = new_gateway(tls_fleet(upstream, own=f'ca_bundles = ["{authority.path}"]'))
    assert gateway.post(CHAT, chat("x")).status == 200


def test_a_renewed_ca_bundle_counts_from_the_reload_on(new_upstream, new_gateway, authority, certificate, tmp_path):
    upstream = new_upstream(context=server_context(*certificate))
    (tmp_path / "other").mkdir()
    bundle = tmp_path / "bundle.pem"
    other = Authority(tmp_path / "other", "other")
    shutil.copy(other.path, bundle)
    gateway = new_gateway(tls_fleet(upstream, bundle), rows=True)
    refused = gateway.post(CHAT, chat("x"))
    assert refused.status == 502 and gateway.row_of(refused)["error"] == "tls"
    renewed = tmp_path / "renewed.pem"
    shutil.copy(authority.path, renewed)
    renewed.rename(bundle)
    gateway.signal(signal.SIGHUP)
    gateway.wait_version(2)
    assert gateway.post(CHAT, chat("x")).status == 200


def test_tls_upstream_that_speaks_plainly(new_gateway):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            connection, _ = listener.accept()
            with connection, contextlib.suppress(ConnectionError):
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
                while connection.recv(65536):
                    pass
        thread = threading.Thread(target=serve)
        thread.start()
        gateway = new_gateway(fleet([f"https://127.0.0.1:{listener.getsockname()[1]}"]), rows=True)
        reply = gateway.post(CHAT, chat("x"))
        assert reply.status == 502 and gateway.row_of(reply)["error"] == "tls"
        thread.join()


@pytest.mark.parametrize("what", ["untrusted", "wrong name"])
def test_tls_upstream_that_cannot_be_trusted(new_upstream, new_gateway, authority, certificate, what):
    if what == "wrong name":
        upstream = new_upstream(context=server_context(*authority.issue("other", "DNS:other.test")))
    else:
        upstream = new_upstream(context=server_context(*certificate))
    gateway = new_gateway(tls_fleet(upstream, None if what == "untrusted" else authority.path), rows=True)
    reply = gateway.post(CHAT, chat("x"))
    assert reply.status == 502 and reply.json()["error"]["code"] == "upstream_unavailable"
    assert gateway.row_of(reply)["error"] == "tls" and not upstream.calls
    assert gateway.metrics()[metric("rolter_upstream_errors_total", provider="p0", reason="tls")] == 1
    if what == "untrusted":
        gateway.reload_and_wait(tls_fleet(upstream, own="insecure_tls = true"))
        wait_until(lambda: gateway.post(CHAT, chat("x")).status == 200, "verification switched off")
