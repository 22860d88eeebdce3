# SPDX-License-Identifier: Apache-2.0
"""Streams: events at once, back-pressure, clients that leave or close half, streams that break or stall."""

import hashlib
import json
import resource
import socket
import threading

import pytest

from harness import DEADLINE, chat, chat_text, messages, wait_still, wait_until
from upstream import fleet, metric, wait_idle

CHAT = "/v1/chat/completions"
MiB = 1 << 20


def piece(text):
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}


def connect(gateway, receive_bytes=None):
    s = socket.socket()
    if receive_bytes:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    s.settimeout(DEADLINE)
    s.connect(("127.0.0.1", gateway.port))
    return s


def raw_post(body, path=CHAT, version="1.1", more=""):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/{version}\r\nHost: a\r\nContent-Type: application/json\r\n{more}"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


def read_until(s, mark, limit=1 << 20):
    data = b""
    while mark not in data and len(data) < limit:
        got = s.recv(65536)
        if not got:
            break
        data += got
    return data


def read_all(s):
    data = b""
    while True:
        try:
            got = s.recv(1 << 16)
        except ConnectionResetError:
            return data, True
        if not got:
            return data, False
        data += got


def resident_bytes(process):
    with open(f"/proc/{process.pid}/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


def test_first_event_before_the_second_exists(new_upstream, new_gateway):
    seen = threading.Event()

    def answer(call):
        call.begin_events()
        call.event(piece("one"))
        assert seen.wait(DEADLINE)
        call.event(piece("two"))
        call.event("[DONE]")
        call.end()

    gateway = new_gateway(fleet([new_upstream(answer)]))
    with gateway.stream(CHAT, chat("x", stream=True)) as stream:
        assert stream.next().json()["choices"][0]["delta"]["content"] == "one"
        seen.set()
        assert chat_text(stream.all()) == "two"
        assert stream.complete


def test_head_before_the_first_event(new_upstream, new_gateway):
    seen = threading.Event()

    def answer(call):
        call.begin_events()
        assert seen.wait(DEADLINE)
        call.event("[DONE]")
        call.end()

    gateway = new_gateway(fleet([new_upstream(answer)]))
    with gateway.stream(CHAT, chat("x", stream=True)) as stream:
        assert stream.status == 200 and stream.headers["content-type"] == "text/event-stream"
        seen.set()
        assert [e.data for e in stream] == ["[DONE]"]


def test_half_an_event_goes_on_at_once(new_upstream, new_gateway):
    """Bytes are not held until a whole event is there."""
    seen = threading.Event()

    def answer(call):
        call.begin_events()
        call.chunk(b"data: {\"a\":")
        assert seen.wait(DEADLINE)
        call.chunk(b" 1}\n\n")
        call.end()

    gateway = new_gateway(fleet([new_upstream(answer)]))
    with connect(gateway) as s:
        s.sendall(raw_post(chat("x", stream=True)))
        assert b"data: {\"a\":" in read_until(s, b"data: {\"a\":")
        seen.set()
        assert read_until(s, b"0\r\n\r\n").endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("path, body", [(CHAT, chat("x", stream=True)),
                                        ("/v1/messages", messages("x", stream=True)),
                                        ("/v1/completions", {"model": "m", "prompt": "x", "stream": True}),
                                        ("/v1/responses", {"model": "m", "input": "x", "stream": True})])
def test_streams_pass_byte_for_byte(new_upstream, new_gateway, path, body):
    """Comments, ids, odd line ends, unknown events, bytes that are no UTF-8: as they came, in any slicing."""
    text = (b": hello\n\nid: 7\nevent: odd\r\ndata: {}\r\n\r\ndata:no blank\n\n\ndata: \xff\xfe\r\rretry: 5\n\n"
            + "data: {\"ü\": \"\U0001F600\"}\n\n".encode() * 50 + b"data: [DONE]\n\n" + b"data: cut off")

    def answer(call):
        call.begin_events()
        for i in range(0, len(text), 7):
            call.chunk(text[i:i + 7])
        call.end()

    gateway = new_gateway(fleet([new_upstream(answer)]))
    with gateway.stream(path, body) as stream:
        received = b""
        while True:
            got = stream.reply.read1(65536)
            if not got:
                break
            received += got
    assert received == text


def test_sim_streams_through(new_sim, new_gateway):
    sim = new_sim(tokens=40)
    gateway = new_gateway(fleet([sim]), rows=True)
    direct = sim.post(CHAT, chat("hello")).json()["choices"][0]["message"]["content"]
    with gateway.stream(CHAT, chat("hello", stream=True, stream_options={"include_usage": True})) as stream:
        assert chat_text(stream.all()) == direct and stream.complete
    [row] = gateway.wait_rows(1)
    assert row["stream"] == 1 and row["status"] == 200 and row["completion_tokens"] == 40
    assert row["prompt_tokens"] > 0 and row["usage_unknown"] == 0 and row["error"] == ""


def test_slow_reader_stops_the_upstream(new_upstream, new_gateway):
    total, block = 32 * MiB, bytes(range(256)) * 256
    sent, digest = [0], hashlib.sha256()

    def answer(call):
        call.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        call.begin_events()
        while sent[0] < total:
            if not call.chunk(block):
                return
            sent[0] += len(block)
            digest.update(block)
        call.end()

    gateway = new_gateway(fleet([new_upstream(answer)]), rows=True)
    before = resident_bytes(gateway)
    with connect(gateway, 16384) as s:
        s.sendall(raw_post(chat("x", stream=True), more="Connection: close\r\n"))
        assert wait_still(lambda: sent[0], what="what the upstream can send") < total - 8 * MiB
        # Others are served meanwhile, and the waiting bytes are the kernel's.
        assert gateway.get("/healthz").status == 200
        assert resident_bytes(gateway) - before < 4 * MiB
        received, rest, size = hashlib.sha256(), b"", 0
        head = read_until(s, b"\r\n\r\n")
        rest = head[head.index(b"\r\n\r\n") + 4:]
        stream = s.makefile("rb")

        class Source:
            def __init__(self):
                self.held = rest

            def read(self, n):
                take, self.held = self.held[:n], self.held[n:]
                return take + (stream.read(n - len(take)) if len(take) < n else b"")

            def line(self):
                text = b""
                while not text.endswith(b"\r\n"):
                    text += self.read(1)
                return text

        source = Source()
        while True:
            n = int(source.line(), 16)
            data = source.read(n)
            assert len(data) == n and source.read(2) == b"\r\n"
            if n == 0:
                break
            received.update(data)
            size += n
    assert size == total and received.digest() == digest.digest()
    assert gateway.wait_rows(1)[0]["status"] == 200
    wait_idle(gateway)


@pytest.mark.parametrize("reset", [False, True])
def test_client_that_leaves_cancels_the_upstream(new_upstream, new_gateway, reset):
    gone = threading.Event()

    def answer(call):
        call.begin_events()
        call.event(piece("one"))
        call.wait_gone()
        gone.set()

    gateway = new_gateway(fleet([new_upstream(answer)]), rows=True)
    with gateway.stream(CHAT, chat("x", stream=True)) as stream:
        stream.next()
        assert gateway.metrics()[metric("rolter_inflight", provider="p0")] == 1
        assert gateway.metrics()["rolter_inflight_requests"] == 1
        stream.close(reset)
        assert gone.wait(DEADLINE)
    wait_idle(gateway)
    [row] = gateway.wait_rows(1)
    assert row["status"] == 499 and row["error"] == "client disconnected" and row["attempts"] == 1
    assert gateway.metrics()["rolter_client_disconnects_total"] == 1


def test_client_that_leaves_before_the_head_cancels_the_upstream(new_sim, new_gateway):
    sim = new_sim()
    gateway = new_gateway(fleet([sim, sim]) + '\n[client]\nforwarded_headers = ["x-sim-stall"]\n', rows=True)
    with connect(gateway) as s:
        s.sendall(raw_post(chat("x"), more="x-sim-stall: 1\r\n"))
        gateway_sees = metric("rolter_inflight", provider="p0")
        wait_until(lambda: gateway.metrics()[gateway_sees] == 1)
        wait_until(lambda: len(sim.requests()) == 1)
    wait_until(lambda: gateway.metrics()["rolter_client_disconnects_total"] == 1)
    wait_idle(gateway, ("p0", "p1"))
    [row] = gateway.wait_rows(1)
    assert row["status"] == 499 and row["attempts"] == 1  # nobody asked the second one


def test_sim_sees_the_abort(new_sim, new_gateway):
    sim = new_sim(decode_tps=20, tokens=1000)
    gateway = new_gateway(fleet([sim]))
    with gateway.stream(CHAT, chat("x", stream=True)) as stream:
        stream.next()
    sim.wait_stats(aborted=1, running=0)
    wait_idle(gateway)


def test_half_closed_client_gets_its_reply(new_upstream, new_gateway):
    """R36: shutting the sending side down is not leaving."""
    begun, go = threading.Event(), threading.Event()

    def answer(call):
        begun.set()
        assert go.wait(DEADLINE)
        if call.json().get("stream"):
            call.begin_events()
            call.event(piece("one"))
            call.event("[DONE]")
            call.end()
        else:
            call.reply(200, {"fine": True})

    gateway = new_gateway(fleet([new_upstream(answer)]), rows=True)
    for stream, mark in ((False, b'{"fine": true}'), (True, b"data: [DONE]")):
        begun.clear(), go.clear()
        with connect(gateway) as s:
            s.sendall(raw_post(chat("x", stream=stream)))
            s.shutdown(socket.SHUT_WR)
            assert begun.wait(DEADLINE)
            go.set()
            data, reset = read_all(s)
            assert mark in data and not reset
    assert [r["status"] for r in gateway.wait_rows(2)] == [200, 200]


def test_half_closed_while_the_stream_runs(new_upstream, new_gateway):
    half = threading.Event()

    def answer(call):
        call.begin_events()
        call.event(piece("one"))
        assert half.wait(DEADLINE)
        call.event(piece("two"))
        call.event("[DONE]")
        call.end()

    gateway = new_gateway(fleet([new_upstream(answer)]), rows=True)
    with connect(gateway) as s:
        s.sendall(raw_post(chat("x", stream=True)))
        read_until(s, b"one")
        s.shutdown(socket.SHUT_WR)
        half.set()
        data, reset = read_all(s)
        assert b"two" in data and data.endswith(b"0\r\n\r\n") and not reset
    assert gateway.wait_rows(1)[0]["status"] == 200


def test_broken_stream_leaves_the_reply_before_it_whole(new_upstream, new_gateway):
    """Two requests in one go; the second one's reply breaks off before the client has read the first one's."""
    big = "x" * 60000

    def answer(call):
        if call.json().get("stream"):
            call.begin_events()
            call.event(piece("one"))
            call.reset()
        else:
            call.reply(200, {"fine": big})

    gateway = new_gateway(fleet([new_upstream(answer)]), rows=True)
    with connect(gateway, receive_bytes=4096) as s:
        s.sendall(raw_post(chat("x")) + raw_post(chat("x", stream=True)))
        rows = gateway.wait_rows(2)
        data, reset = read_all(s)
    assert [row["status"] for row in rows] == [200, 502]
    assert big.encode() in data and b"one" in data and not data.endswith(b"0\r\n\r\n") and not reset


def test_broken_stream_to_an_old_client_is_a_reset(new_upstream, new_gateway):
    """Without framing, closing would look like the end."""
    first = threading.Event()

    def answer(call):
        call.begin_events()
        call.event(piece("one"))
        assert first.wait(DEADLINE)
        call.reset()

    gateway = new_gateway(fleet([new_upstream(answer)]), rows=True)
    with connect(gateway) as s:
        s.sendall(raw_post(chat("x", stream=True), version="1.0"))
        read_until(s, b"one")
        first.set()
        assert read_all(s)[1]
    assert gateway.wait_rows(1)[0]["status"] == 502


@pytest.mark.parametrize("how", ["close", "reset", "bad chunk"])
def test_upstream_that_breaks_is_broken_framing(new_upstream, new_gateway, how):
    first = threading.Event()

    def answer(call):
        call.begin_events()
        call.event(piece("one"))
        assert first.wait(DEADLINE)
        if how == "close":
            call.close()
        elif how == "reset":
            call.reset()
        else:
            call.send(b"zz\r\n")
            call.wait_gone()

    gateway = new_gateway(fleet([new_upstream(answer), new_upstream(answer)]), rows=True)
    with gateway.stream(CHAT, chat("x", stream=True)) as stream:
        stream.next()
        first.set()
        assert stream.all() == [] and not stream.complete and stream.error
    [row] = gateway.wait_rows(1)
    assert row["status"] == 502 and row["error"] == {"bad chunk": "bad_reply"}.get(how, "reset")
    assert row["attempts"] == 1  # no second attempt after the first byte
    wait_idle(gateway, ("p0", "p1"))
    reason = metric("rolter_upstream_errors_total", provider=row["provider"], reason=row["error"])
    assert gateway.metrics()[reason] == 1


def test_reply_with_length_that_breaks(new_upstream, new_gateway):
    def answer(call):
        call.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"half\":")
        call.close()

    gateway = new_gateway(fleet([new_upstream(answer)]), rows=True)
    with connect(gateway) as s:
        s.sendall(raw_post(chat("x")))
        data, _ = read_all(s)
    if b"half" in data:  # else it had not begun, and was refused
        assert b"content-length: 100" in data.lower()
        assert len(data) - data.index(b"\r\n\r\n") - 4 < 100
    assert gateway.wait_rows(1)[0]["status"] == 502


def test_sim_cut_stream(new_sim, new_gateway):
    sim = new_sim(tokens=20)
    gateway = new_gateway(fleet([sim]) + '\n[client]\nforwarded_headers = ["x-sim-cut"]\n')
    with gateway.stream(CHAT, chat("x", stream=True), {"x-sim-cut": "5"}) as stream:
        assert len(stream.all()) >= 1 and not stream.complete


def test_event_streams_for_old_clients(new_upstream, new_gateway):
    """HTTP/1.0 knows no chunks: the end of the connection is the end of the reply."""
    def answer(call):
        call.begin_events()
        call.event(piece("one"))
        call.event("[DONE]")
        call.end()

    gateway = new_gateway(fleet([new_upstream(answer)]))
    with connect(gateway) as s:
        s.sendall(raw_post(chat("x", stream=True), version="1.0"))
        data, reset = read_all(s)
    head, body = data.split(b"\r\n\r\n", 1)
    assert not reset and b"transfer-encoding" not in head.lower() and b"connection: close" in head.lower()
    assert body == f"data: {json.dumps(piece('one'))}\n\ndata: [DONE]\n\n".encode()


def test_reply_that_ends_with_its_connection(new_upstream, new_gateway):
    def answer(call):
        call.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        call.send(b"data: 2\n\n")
        call.close()

    gateway = new_gateway(fleet([new_upstream(answer)]))
    with gateway.client() as client:
        for _ in range(2):  # the client's connection lives on
            reply = client.post(CHAT, chat("x", stream=True))
            assert reply.complete and reply.body == b"data: 1\n\ndata: 2\n\n"


def test_stream_that_stalls(new_upstream, new_gateway):
    def answer(call):
        call.begin_events()
        call.event(piece("one"))
        call.wait_gone()

    gateway = new_gateway(fleet([new_upstream(answer)], more="[timeouts]\nstream_idle_secs = 1"), rows=True)
    with gateway.stream(CHAT, chat("x", stream=True)) as stream:
        stream.next()
        assert stream.all() == [] and not stream.complete
    [row] = gateway.wait_rows(1)
    assert row["status"] == 502 and row["error"] == "idle_timeout"
    wait_idle(gateway)


def test_clients_that_leave_in_crowds(new_sim, new_gateway):
    """Every charge comes back, whenever its client goes."""
    sim = new_sim(decode_tps=300, tokens=200)
    gateway = new_gateway(fleet([sim, sim], more="[queue]\nworkers = 4\ncapacity = 100"), rows=True)

    def one(i):
        s = connect(gateway)
        s.sendall(raw_post(chat(f"x{i}", stream=True)))
        if i % 3 == 1:
            read_until(s, b"\r\n\r\n")
        elif i % 3 == 2:
            read_until(s, b"data:")
        s.close()

    threads = [threading.Thread(target=one, args=(i,)) for i in range(60)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    rows = gateway.wait_rows(60)
    assert {r["status"] for r in rows} <= {499, 200}
    wait_idle(gateway, ("p0", "p1"))
    sim.wait_stats(running=0, waiting=0)
