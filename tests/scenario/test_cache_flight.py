# SPDX-License-Identifier: Apache-2.0
"""Single flight: identical requests at the same time make one upstream call."""

import json
import socket
import threading

import pytest

from cache_rig import PATH, Counting, ask, caching, chunk, kind, stream_answer
from harness import chat, wait_until
from upstream import chat_reply, metric, wait_idle


class Gated:
    """Holds its replies until the test says so."""

    def __init__(self, new_upstream, before=(), after=("rest",), finish="stop"):
        self.before, self.after, self.finish = before, after, finish
        self.gate = threading.Event()
        self.upstream = new_upstream(self.answer)

    @property
    def count(self):
        return len(self.upstream.calls)

    def answer(self, call):
        n = self.count
        if not call.json().get("stream"):
            assert self.gate.wait(20)
            call.reply(200, chat_reply(f"number {n}"))
            return
        call.begin_events()
        for text in self.before:
            call.event(chunk(f"{n} {text}"))
        assert self.gate.wait(20)
        for text in self.after:
            call.event(chunk(f"{n} {text}"))
        call.event(chunk(None, self.finish))
        call.event("[DONE]")
        call.end()


class Crowd:
    """Clients that all ask the same at once, each on a connection of its own; their replies as they end."""

    def __init__(self, gateway, n, body, headers=""):
        text = json.dumps(body).encode()
        self.sockets = [socket.create_connection(("127.0.0.1", gateway.port), 30) for _ in range(n)]
        head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\n{headers}Connection: close\r\nContent-Length: {len(text)}\r\n\r\n"
        for s in self.sockets:
            s.sendall(head.encode() + text)

    def replies(self):
        """(head, body) of each; bodies without chunk framing."""
        got = []
        for s in self.sockets:
            data = b""
            while (piece := s.recv(1 << 20)):
                data += piece
            s.close()
            head, _, body = data.partition(b"\r\n\r\n")
            if b"chunked" in head.lower():
                body = dechunk(body)
            got.append((head.decode().lower(), body))
        return got


def small_window(gateway, body):
    """A client that takes little before it reads."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
    s.settimeout(20)
    s.connect(("127.0.0.1", gateway.port))
    text = json.dumps(body).encode()
    s.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (PATH.encode(), len(text), text))
    return s


def dechunk(body):
    out = b""
    while True:
        size, _, body = body.partition(b"\r\n")
        n = int(size, 16)
        if n == 0:
            return out
        out += body[:n]
        assert body[n:n + 2] == b"\r\n"
        body = body[n + 2:]


def in_flight(gateway):
    return gateway.metrics()["rolter_inflight_requests"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_thousand_at_once(new_upstream, new_gateway, stream):
    up = Gated(new_upstream, ["one", "two"])
    gateway = new_gateway(caching([up.upstream]), rows=True)
    crowd = Crowd(gateway, 1000, chat("x", stream=stream))
    wait_until(lambda: in_flight(gateway) == 1000, "all of them")
    up.gate.set()
    replies = crowd.replies()
    assert up.count == 1
    assert len({body for _, body in replies}) == 1 and len(replies) == 1000
    assert sum("x-rolter-cache: miss" in head for head, _ in replies) == 1
    shared = [head for head, _ in replies if "x-rolter-cache-kind: coalesced" in head]
    assert len(shared) == 999 and all("collapsed" in head and "x-rolter-provider: p0" in head for head in shared)
    assert gateway.metrics()["rolter_coalesced_requests_total"] == 999
    rows = gateway.wait_rows(1000)
    assert sum(r["total_tokens"] for r in rows) == (0 if stream else 5)
    assert sum(r["cache_reason"] == "coalesced" and r["cache_hit"] == 1 for r in rows) == 999
    assert kind(ask(gateway, "x", stream=stream)) == ("hit", "exact")
    wait_idle(gateway)


def test_follower_gets_what_has_come_and_then_live(new_upstream, new_gateway):
    up = Gated(new_upstream, ["one", "two"])
    gateway = new_gateway(caching([up.upstream]))
    leader = gateway.stream(PATH, chat("x", stream=True))
    first = [leader.next().data, leader.next().data]
    follower = gateway.stream(PATH, chat("x", stream=True))
    assert [follower.next().data, follower.next().data] == first
    assert kind(follower) == ("hit", "coalesced")
    up.gate.set()
    assert [e.data for e in leader.all()] == [e.data for e in follower.all()]
    assert leader.complete and follower.complete and up.count == 1


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("stream", [False, True])
def test_leader_that_leaves_hands_over(new_upstream, new_gateway, stream, after):
    """At any event: one call, no wrong reply."""
    up = Gated(new_upstream, ["one", "two"])
    gateway = new_gateway(caching([up.upstream]), rows=True)
    body = json.dumps(chat("x", stream=stream)).encode()
    leader = socket.create_connection(("127.0.0.1", gateway.port), 20)
    leader.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (PATH.encode(), len(body), body))
    wait_until(lambda: up.count == 1, "the leader's call")
    if stream:
        got = b""
        while got.count(b"data:") < after:
            got += leader.recv(65536)
    crowd = Crowd(gateway, 20, chat("x", stream=stream))
    wait_until(lambda: in_flight(gateway) == 21, "the followers")
    leader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    leader.close()
    wait_until(lambda: in_flight(gateway) == 21 and gateway.metrics()["rolter_client_connections"] <= 21, "its end")
    up.gate.set()
    replies = crowd.replies()
    assert up.count == 1 and len({body for _, body in replies}) == 1
    want = b"rest" if stream else b"number 1"
    assert all(want in body and "x-rolter-cache-kind: coalesced" in head for head, body in replies)
    wait_idle(gateway)
    assert kind(ask(gateway, "x", stream=stream)) == ("hit", "exact") and up.count == 1
    row = next(r for r in gateway.wait_rows(21) if r["status"] == 499)
    assert row["cache_hit"] == 0 and row["total_tokens"] == (0 if stream else 5)


def test_last_follower_that_leaves_ends_it(new_upstream, new_gateway):
    gone = threading.Event()

    def answer(call):
        call.begin_events()
        call.event(chunk("one"))
        call.wait_gone()
        gone.set()

    up = new_upstream(answer)
    gateway = new_gateway(caching([up]))
    leader = gateway.stream(PATH, chat("x", stream=True))
    leader.next()
    followers = [gateway.stream(PATH, chat("x", stream=True)) for _ in range(3)]
    for f in followers:
        f.next()
    leader.close()
    for f in followers:
        assert not gone.is_set()
        f.close()
    assert gone.wait(10)
    wait_idle(gateway)


@pytest.mark.parametrize("failure", ["reset", "503"])
def test_leader_that_fails_releases_them_into_one_new_flight(new_upstream, new_gateway, failure):
    gate = threading.Event()

    def answer(call):
        if len(up.calls) == 1:
            assert gate.wait(20)
            return call.reset() if failure == "reset" else call.reply(503, {"error": {}})
        call.reply(200, chat_reply("good"))

    up = new_upstream(answer)
    gateway = new_gateway(caching([up], more="[retry]\nmax_retries = 0\n[cooldown]\nbase_secs = 0\n"))
    crowd = Crowd(gateway, 50, chat("x"))
    wait_until(lambda: in_flight(gateway) == 50, "all")
    gate.set()
    replies = crowd.replies()
    assert len(up.calls) == 2
    good = [body for head, body in replies if head.startswith("http/1.1 200")]
    assert len(good) == 49 and len(set(good)) == 1
    wait_idle(gateway)


def test_stream_that_breaks_breaks_for_all_who_read_it(new_upstream, new_gateway):
    gate = threading.Event()

    def answer(call):
        call.begin_events()
        call.event(chunk("one"))
        assert gate.wait(20)
        call.reset()

    up = new_upstream(answer)
    gateway = new_gateway(caching([up]), rows=True)
    streams = [gateway.stream(PATH, chat("x", stream=True)) for _ in range(3)]
    for s in streams:
        s.next()
    gate.set()
    for s in streams:
        s.all()
        assert not s.complete
    assert len(up.calls) == 1
    assert {r["status"] for r in gateway.wait_rows(3)} == {502}
    wait_idle(gateway)


def test_uncacheable_stream_goes_whole_to_those_who_joined(new_upstream, new_gateway):
    up = Gated(new_upstream, ["one"], finish="length")
    gateway = new_gateway(caching([up.upstream]))
    streams = [gateway.stream(PATH, chat("x", stream=True)) for _ in range(5)]
    for s in streams:
        s.next()
    up.gate.set()
    assert len({tuple(e.data for e in s.all()) for s in streams}) == 1 and all(s.complete for s in streams)
    assert up.count == 1
    with gateway.stream(PATH, chat("x", stream=True)) as s:
        s.all()
        assert s.headers["x-rolter-cache"] == "miss"


def test_uncacheable_reply_is_nobody_elses(new_upstream, new_gateway):
    gate = threading.Event()

    def answer(call):
        reply = chat_reply(f"number {len(up.calls)}")
        reply["choices"][0]["finish_reason"] = "length"
        assert gate.wait(20)
        call.reply(200, reply)

    up = new_upstream(answer)
    gateway = new_gateway(caching([up]))
    crowd = Crowd(gateway, 10, chat("x"))
    wait_until(lambda: in_flight(gateway) == 10, "all")
    gate.set()
    assert len({body for _, body in crowd.replies()}) == 10 and len(up.calls) == 10
    wait_idle(gateway)


def test_slow_reader_stops_nobody_else(new_upstream, new_gateway):
    """Neither as a follower nor as the leader; and what it has not read does not fill the memory."""
    texts = ["x" * 60000] * 1000  # 60 MB, past what an entry may be

    def answer(call):
        call.begin_events()
        call.event(chunk("first"))
        assert gate.wait(20)
        for text in texts:
            call.event(chunk(text))
        call.event(chunk(None, "stop"))
        call.event("[DONE]")
        call.end()

    for slow_one in (0, 1):
        gate = threading.Event()
        up = new_upstream(answer)
        gateway = new_gateway(caching([up]), rows=True)
        ask_for = [lambda: small_window(gateway, chat("x", stream=True)),
                   lambda: gateway.stream(PATH, chat("x", stream=True))]
        slow = ask_for[0]() if slow_one == 0 else None
        quick = ask_for[1]()
        quick.next()
        slow = slow or ask_for[0]()
        while b"data: " not in slow.recv(4096):
            pass
        gate.set()
        assert len(quick.all()) == 1002 and quick.complete
        rows = gateway.wait_rows(2)
        assert sorted(r["error"] for r in rows) == ["", "slow_reader"]
        assert sorted(r["cache_hit"] for r in rows) == [0, 1] and len(up.calls) == 1
        slow.close(), quick.close()
        wait_idle(gateway)


def test_alone_a_slow_reader_slows_the_upstream(new_upstream, new_gateway):
    sent = [0]
    texts = ["x" * 60000] * 300

    def answer(call):
        call.begin_events()
        for text in texts:
            call.event(chunk(text))
            sent[0] += 1
        call.event(chunk(None, "stop"))
        call.event("[DONE]")
        call.end()

    up = new_upstream(answer)
    gateway = new_gateway(caching([up]))
    s = gateway.stream(PATH, chat("x", stream=True))
    s.next()
    seen = [0, 0]

    def still():  # the upstream does not get rid of more
        seen[1] = seen[1] + 1 if sent[0] == seen[0] else 0
        seen[0] = sent[0]
        return seen[1] > 100
    wait_until(still, "the upstream to wait")
    assert sent[0] < 299
    assert len(s.all()) == 301 and s.complete
    s.close()
    wait_idle(gateway)


def test_slow_leader_of_a_stream_that_is_kept(new_upstream, new_gateway):
    """It gets the rest from the capture while another one is through; the reply is stored."""
    texts = ["x" * 50000] * 100  # 5 MB
    gate = threading.Event()

    def answer(call):
        call.begin_events()
        call.event(chunk("first"))
        assert gate.wait(20)
        for text in texts:
            call.event(chunk(text))
        call.event(chunk(None, "stop"))
        call.event("[DONE]")
        call.end()

    up = new_upstream(answer)
    gateway = new_gateway(caching([up], cache="max_entry_bytes = 20000000"))
    leader, follower = [gateway.stream(PATH, chat("x", stream=True)) for _ in range(2)]
    leader.next(), follower.next()
    gate.set()
    assert len(follower.all()) == 102
    assert kind(ask(gateway, "x", stream=True)) == ("hit", "exact")
    assert len(leader.all()) == 102 and leader.complete and kind(leader) == ("miss", None)
    leader.close(), follower.close()
    wait_idle(gateway)


def test_only_if_cached_may_join(new_upstream, new_gateway):
    up = Gated(new_upstream)
    gateway = new_gateway(caching([up.upstream]))
    crowd = Crowd(gateway, 1, chat("x"))
    wait_until(lambda: up.count == 1, "the call")
    joined = Crowd(gateway, 1, chat("x"), "Cache-Control: only-if-cached\r\n")
    wait_until(lambda: in_flight(gateway) == 2, "both")
    up.gate.set()
    (_, a), (head, b) = crowd.replies() + joined.replies()
    assert a == b and "coalesced" in head and up.count == 1


@pytest.mark.parametrize("how", ["route", "request"])
def test_where_nothing_is_shared(new_upstream, new_gateway, how):
    up = Gated(new_upstream)
    gateway = new_gateway(caching([up.upstream], "coalesce = false" if how == "route" else ""))
    crowd = Crowd(gateway, 5, chat("x"), "Cache-Control: no-cache\r\n" if how == "request" else "")
    wait_until(lambda: up.count == 5, "five calls")
    up.gate.set()
    assert len(crowd.replies()) == 5
    assert kind(ask(gateway, "x")) == ("hit", "exact")


def test_different_requests_do_not_share(new_upstream, new_gateway):
    up = Gated(new_upstream)
    gateway = new_gateway(caching([up.upstream]))
    crowds = [Crowd(gateway, 3, chat("x", seed=i)) for i in range(4)]
    wait_until(lambda: up.count == 4 and in_flight(gateway) == 12, "four calls")
    up.gate.set()
    bodies = [{body for _, body in c.replies()} for c in crowds]
    assert all(len(b) == 1 for b in bodies) and len(set.union(*bodies)) == 4


def test_shutdown_with_flights_under_way(new_upstream, new_gateway):
    up = new_upstream(lambda call: (call.begin_events(), call.event(chunk("one")), call.wait_gone()))
    gateway = new_gateway(caching([up]), server="drain_secs = 0")
    leader = gateway.stream(PATH, chat("x", stream=True))
    leader.next()
    streams = [gateway.stream(PATH, chat("x", stream=True)) for _ in range(4)]
    for s in streams:
        s.next()
    leader.close()
    wait_until(lambda: gateway.metrics()["rolter_client_connections"] <= 5, "the leader's end")
    gateway.stop()
