# SPDX-License-Identifier: Apache-2.0
"""The delivery policy on every way that a reply goes out: whatever its source, the client gets what it would have got
without a cache, and the bill is the upstream's own."""

import http.client
import json
import socket
import threading
import time

import pytest

from certificates import Authority
from cache_rig import PRICES as SEMANTIC_PRICES, caching
from harness import DEADLINE, Headers, Response, chat, wait_until
from semantic_rig import Vectors, semantic
from services import Sanitizer, Service
from test_policy import (APPLY, CHAT, MESSAGES, PATHS, SECRET, ask, guardrails, pii, plugin, rule, said, stream_of,
                         stream_text, streamer)
from upstream import chat_reply, dead_port, fleet, wait_idle

PRICES = '[[model_prices]]\nmodel = "m"\ninput_per_mtok = 1000000.0\noutput_per_mtok = 1000000.0\n'
OUTCOMES = ["pass", "block", "transform", "down_closed", "down_open", "garbage_closed", "garbage_open"]
TEXT = "the answer"


class Gate:
    """An upstream whose whole replies wait while it is shut."""

    def __init__(self, new_upstream, text=TEXT):
        self.open = threading.Event()
        self.open.set()
        self.text = text
        self.upstream = new_upstream(self.answer)

    def answer(self, call):
        assert self.open.wait(20)
        if call.target.startswith(MESSAGES):
            call.reply(200, {"id": "m", "type": "message", "role": "assistant", "model": "m",
                             "content": [{"type": "text", "text": self.text}], "stop_reason": "end_turn",
                             "stop_sequence": None, "usage": {"input_tokens": 7, "output_tokens": 5}})
        elif call.target.startswith(CHAT):
            call.reply(200, chat_reply(self.text, prompt=7, completion=5))
        else:
            call.reply(200, {"id": "c", "object": "text_completion", "created": 1, "model": "m",
                             "choices": [{"index": 0, "text": self.text, "finish_reason": "stop"}],
                             "usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}})

    @property
    def count(self):
        return len(self.upstream.calls)


def judge(outcome):
    def say(asked):
        if outcome == "block":
            return {"action": "block", "reason": "not this one"}
        if outcome == "transform":
            text = json.dumps(asked["content"]).replace(TEXT, "another one").replace('"usage": {', '"usage": {"x": 1, ')
            return {"action": "transform", "content": json.loads(text)}
        return b'{"action":"maybe"}' if "garbage" in outcome else {"action": "allow"}
    return say


def essence(reply):
    """What must not depend on the source."""
    body = reply.json()
    body.pop("request_id", None)
    return reply.status, body if reply.status != 200 else reply.body, reply.headers["content-type"]


@pytest.fixture
def new_service():
    made = []

    def make(answer):
        made.append(Service(answer))
        return made[-1]
    yield make
    for one in made:
        one.close()
    assert not [error for one in made for error in one.errors]


def together(gateway, path, body, n, gate):
    """n identical requests while the upstream waits."""
    replies = [None] * n
    before = gate.count
    gate.open.clear()
    try:
        def run(i):
            replies[i] = gateway.post(path, body)
        threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
        for thread in threads:
            thread.start()
        wait_until(lambda: gateway.metrics()["rolter_inflight_requests"] == n and gate.count > before, "all of them")
        time.sleep(0.05)
    finally:
        gate.open.set()
    for thread in threads:
        thread.join()
    return replies


@PATHS
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_the_matrix(new_upstream, new_gateway, new_service, path, outcome):
    refused = outcome in ("block", "down_closed", "garbage_closed")
    gate = Gate(new_upstream)
    held, port = dead_port()
    where = f"http://127.0.0.1:{port}" if "down" in outcome else new_service(judge(outcome))
    hook = plugin(where, "hook", "post_response", failure_mode="fail_closed" if "closed" in outcome else "fail_open")
    body = ask(path, "a question")

    def check(reply, source, want):
        assert essence(reply) == want, source
        row = gateway.row_of(reply)
        live = source in ("off", "miss", "leader")
        assert row["status"] == (403 if refused else 200), source
        assert row["withheld"] == refused and row["cache_hit"] == (not live), source
        assert (row["prompt_tokens"], row["completion_tokens"], row["cost_usd"]) == ((7, 5, 12) if live else (0, 0, 0))
        if refused:
            assert row["error"].startswith("plugin_blocked: ") and "x-rolter-cache" not in reply.headers
        elif outcome.endswith("open"):
            assert "fail_open" in row["annotations"]
        if not live:
            assert (row["saved_tokens"], row["saved_cost_usd"]) == (12, 12), source

    gateway = new_gateway(fleet([gate.upstream], more=PRICES + hook), rows=True)
    off = gateway.post(path, body)
    want = essence(off)
    check(off, "off", want)
    if outcome == "transform":
        assert said(path, off) == "another one"
    elif not refused:
        assert said(path, off) == TEXT

    route = "ttl_secs = 1\nstale_while_revalidate_secs = 60"
    gateway = new_gateway(caching([gate.upstream], route, more=PRICES + hook), rows=True)
    calls = gate.count
    check(gateway.post(path, body), "miss", want)
    check(gateway.post(path, body), "hit", want)
    assert gate.count == calls + 1        # the entry is stored whatever the policy said
    time.sleep(1.1)                       # the entry's life
    check(gateway.post(path, body), "stale", want)
    wait_until(lambda: gate.count == calls + 2, "the renewal")
    wait_idle(gateway)

    replies = together(gateway, path, ask(path, "another question"), 3, gate)
    assert gate.count == calls + 3
    rows = [gateway.row_of(reply) for reply in replies]
    assert sorted(row["cache_hit"] for row in rows) == [0, 1, 1]
    for reply, row in zip(replies, rows):
        check(reply, "follower" if row["cache_hit"] else "leader", want)
    held.close()


@PATHS
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_semantic_hit_is_no_exception(new_upstream, new_gateway, new_service, path, outcome):
    refused = outcome in ("block", "down_closed", "garbage_closed")
    gate, vectors = Gate(new_upstream), Vectors(new_upstream)
    held, port = dead_port()
    where = f"http://127.0.0.1:{port}" if "down" in outcome else new_service(judge(outcome))
    hook = plugin(where, "hook", "post_response", failure_mode="fail_closed" if "closed" in outcome else "fail_open")
    other = ask(path, "another way to ask")
    off = new_gateway(fleet([gate.upstream], more=SEMANTIC_PRICES + hook), rows=True)
    want = essence(off.post(path, other))
    gateway = new_gateway(semantic(gate, vectors, more=hook), rows=True)
    calls = gate.count
    first, second = gateway.post(path, ask(path, "one way to ask")), gateway.post(path, other)
    assert essence(first) == essence(second) == want and (gate.count, vectors.count) == (calls + 1, 2)

    def rows_of(reply):
        """The request's own row, and its embedding's under the same id."""
        ident = reply.headers["x-request-id"]
        rows = wait_until(lambda: len(found := [r for r in gateway.rows() if r["request_id"] == ident]) == 2 and found)
        return sorted(rows, key=lambda row: row["path"] != path)

    for reply, live in ((first, True), (second, False)):
        row, embedding = rows_of(reply)
        assert (row["status"], row["withheld"], row["cache_hit"]) == (403 if refused else 200, refused, not live)
        assert (row["prompt_tokens"], row["completion_tokens"], row["cost_usd"]) == ((7, 5, 17) if live else (0, 0, 0))
        assert (row["saved_tokens"], row["saved_cost_usd"]) == ((0, 0) if live else (12, 17))
        # The embedding is on the bill of either, whatever became of the reply.
        assert (embedding["prompt_tokens"], embedding["cost_usd"], embedding["status"], embedding["withheld"]) == (7, 3.5, 200, 0)
        if refused:
            assert row["error"].startswith("plugin_blocked: ") and "x-rolter-cache" not in reply.headers
        elif outcome.endswith("open"):
            assert "fail_open" in row["annotations"]
    assert row["cache_reason"] == "semantic 1.0000"
    if not refused:
        assert second.headers["x-rolter-cache-kind"] == "semantic"
        assert said(path, second) == ("another one" if outcome == "transform" else TEXT)
    held.close()


@PATHS
@pytest.mark.parametrize("action", ["redact", "block"])
def test_streams_from_every_source(new_upstream, new_gateway, path, action):
    """A stored or followed stream goes through the guardrails like the live one, byte for byte."""
    pieces = ["mail jo", "e@exam", "ple.com", " or", " not"]
    opened = threading.Event()
    opened.set()

    def answer(call):
        assert opened.wait(20)
        streamer(path, pieces)(call)
    upstream = new_upstream(answer)
    rules = guardrails(rule("mail", "post_call", action, builtin="email"), **APPLY)
    body = ask(path, "x", stream=True)

    def check(reply, source, want):
        assert reply.status == 200 and reply.complete and reply.body == want, source
        row = gateway.row_of(reply)
        assert (row["status"], row["withheld"]) == ((403, 1) if action == "block" else (200, 0)), source
        live = source in ("off", "miss", "leader")
        assert (row["prompt_tokens"], row["completion_tokens"]) == ((7, 5) if live else (0, 0)), source

    gateway = new_gateway(fleet([upstream], more=rules), rows=True)
    off = gateway.post(path, body)
    check(off, "off", off.body)
    assert b"joe@" not in off.body and b"jo" not in off.body.replace(b"joe", b"")
    if action == "redact":
        assert stream_text(path, off.events()) == "mail [REDACTED:EMAIL] or not"
    else:
        assert "error" in off.events()[-1].json()
    gateway = new_gateway(caching([upstream], more=rules), rows=True)
    check(gateway.post(path, body), "miss", off.body)
    check(gateway.post(path, body), "hit", off.body)
    assert len(upstream.calls) == 2
    opened.clear()
    replies = [None] * 3

    def run(i):
        replies[i] = gateway.post(path, ask(path, "y", stream=True))
    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: gateway.metrics()["rolter_inflight_requests"] == 3 and len(upstream.calls) == 3, "all of them")
    time.sleep(0.05)
    opened.set()
    for thread in threads:
        thread.join()
    rows = [gateway.row_of(reply) for reply in replies]
    assert sorted(row["cache_hit"] for row in rows) == [0, 1, 1]
    for reply, row in zip(replies, rows):
        check(reply, "follower" if row["cache_hit"] else "leader", off.body)
    # What is stored is the upstream's own: without the rule it is all there.
    gateway.reload_and_wait(caching([upstream]))
    assert gateway.post(path, body).body.decode() == "".join(stream_of(path, pieces))


def fill(gateway, n):
    with gateway.client(60) as client:
        for i in range(n):
            assert client.post(CHAT, chat(f"question {i}")).status == 200


@pytest.mark.parametrize("n", [200, pytest.param(10000, marks=pytest.mark.slow)])
def test_a_reload_reaches_what_was_stored_before(new_upstream, new_gateway, new_service, n):
    gate = Gate(new_upstream)
    gateway = new_gateway(caching([gate.upstream], "ttl_secs = 3600"))
    fill(gateway, n)
    service = new_service(judge("transform"))
    gateway.reload_and_wait(caching([gate.upstream], "ttl_secs = 3600", more=guardrails(
        rule("a", "post_call", "redact", pattern="answer"))))
    with gateway.client(60) as client:
        for i in range(n):
            reply = client.post(CHAT, chat(f"question {i}"))
            assert reply.headers["x-rolter-cache"] == "hit" and said(CHAT, reply) == "the [REDACTED]", i
    gateway.reload_and_wait(caching([gate.upstream], "ttl_secs = 3600", more=plugin(service, "p", "post_response")))
    with gateway.client(60) as client:
        for i in range(0, n, 10):
            reply = client.post(CHAT, chat(f"question {i}"))
            assert reply.headers["x-rolter-cache"] == "hit" and said(CHAT, reply) == "another one", i
    gateway.reload_and_wait(caching([gate.upstream], "ttl_secs = 3600"))
    reply = gateway.post(CHAT, chat("question 7"))
    assert reply.headers["x-rolter-cache"] == "hit" and said(CHAT, reply) == TEXT
    assert gate.count == n


def test_a_blocked_prompt_never_gets_a_hit(new_upstream, new_gateway):
    gate = Gate(new_upstream)
    gateway = new_gateway(caching([gate.upstream]))
    assert gateway.post(CHAT, chat("bad")).status == 200
    gateway.reload_and_wait(caching([gate.upstream], more=guardrails(rule("a", "pre_call", "block", pattern="bad"))))
    assert gateway.post(CHAT, chat("bad")).status == 400


def test_the_key_is_made_of_what_goes_up(new_upstream, new_gateway):
    """Two prompts that a rule makes equal are one; the cache never sees what was masked."""
    gate = Gate(new_upstream)
    gateway = new_gateway(caching([gate.upstream], more=guardrails(rule("a", "pre_call", "redact", builtin="email"))))
    assert gateway.post(CHAT, chat("I am a@b.com")).headers["x-rolter-cache"] == "miss"
    assert gateway.post(CHAT, chat("I am c@d.com")).headers["x-rolter-cache"] == "hit"
    assert gate.count == 1


# ---- what is restored is for one request

def process_memory(pid):
    """What the process has in writable memory."""
    pieces = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            span, flags = line.split()[:2]
            if not flags.startswith("rw"):
                continue
            begin, end = (int(part, 16) for part in span.split("-"))
            if end - begin > 1 << 38:
                pytest.skip("a sanitizer's shadow: terabytes to read, and freed memory that it keeps")
            try:
                memory.seek(begin)
                pieces.append(memory.read(end - begin))
            except (OSError, ValueError, OverflowError):
                continue
    return b"".join(pieces)


def test_each_gets_own_values_back(new_upstream, new_gateway):
    def echo(call):
        call.reply(200, chat_reply(call.json()["messages"][-1]["content"], prompt=7, completion=5))
    upstream = new_upstream(echo)
    with Sanitizer() as sanitizer:
        gateway = new_gateway(caching([upstream], 'scope = "route"', more=pii(
            sanitizer, restoration="caller_authorized")), rows=True)
        restore = {"x-rolter-pii-restore": "true"}
        alice = gateway.post(CHAT, chat("mail alice@example.com"), restore)
        bob = gateway.post(CHAT, chat("mail bob@example.com"), restore)
        nobody = gateway.post(CHAT, chat("mail carol@example.com"))
        assert [r.headers["x-rolter-cache"] for r in (alice, bob, nobody)] == ["miss", "hit", "hit"]
        assert [said(CHAT, r) for r in (alice, bob, nobody)] == \
            ["mail alice@example.com", "mail bob@example.com", "mail <EMAIL_1>"]
        assert len(upstream.calls) == 1
        # Without the sanitizer the entry shows what it holds.
        gateway.reload_and_wait(caching([upstream], 'scope = "route"'))
        entry = gateway.post(CHAT, chat("mail <EMAIL_1>"))
        assert entry.headers["x-rolter-cache"] == "hit" and said(CHAT, entry) == "mail <EMAIL_1>"
        rows = gateway.wait_rows(4)
        seen = json.dumps(rows) + gateway.stderr + gateway.get("/metrics").text()
        assert "@example.com" not in seen and not [t for t in sanitizer.tokens if t in seen]


class TlsClient:
    """A kept connection to a gateway that listens with TLS."""

    def __init__(self, gateway, authority):
        self.connection = http.client.HTTPSConnection("127.0.0.1", gateway.port, context=authority.client_context(),
                                                      timeout=DEADLINE)

    def post(self, path, body):
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        reply = self.connection.getresponse()
        return Response(reply.status, Headers(reply.getheaders()), reply.read(), True, 0)


class SlowClient:
    """Takes a reply in small sips, so that most of it waits in the gateway."""

    def __init__(self, gateway):
        self.gateway = gateway

    def post(self, path, body):
        text = json.dumps(body)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.settimeout(DEADLINE)
            s.connect(("127.0.0.1", self.gateway.port))
            s.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
                      f"Content-Length: {len(text)}\r\n\r\n{text}".encode())
            reply = http.client.HTTPResponse(s)
            reply.begin()
            return Response(reply.status, Headers(reply.getheaders()), reply.read(), True, 0)


@pytest.mark.parametrize("client", ["plain", "tls", "slow"])
def test_nothing_restored_stays_in_memory(client, new_upstream, new_gateway, tmp_path):
    """What only the restoring service knows is nowhere in the process when the request is over."""
    hidden = "xyzzy-" + "-".join(str(n * 7919) for n in range(3, 9))
    name = hidden * (150000 if client == "slow" else 1) # more than sockets hold

    def restore(call):
        body = call.json()
        if call.target.endswith("/restore"):
            text = json.dumps(body["content"]).replace("<NAME>", name)
            call.reply(200, {"content": json.loads(text), "restored": 1})
        else:
            call.reply(200, {"content": body["content"], "restoration_token": "tok-" + hidden[::-1]})
    service, gate = new_upstream(restore), Gate(new_upstream, "hello <NAME>")
    server = "workers = 1"
    if client == "tls":
        authority = Authority(tmp_path)
        cert, key = authority.issue("server", "IP:127.0.0.1,DNS:localhost")
        server += f'\ntls_cert = "{cert}"\ntls_key = "{key}"'
    gateway = new_gateway(caching([gate.upstream], more=pii(service, restoration="trusted_downstream", max_body_bytes=1 << 24)),
                          server=server, rows=True)
    poster = {"plain": lambda: gateway, "tls": lambda: TlsClient(gateway, authority),
              "slow": lambda: SlowClient(gateway)}[client]()
    for n, source in enumerate(("miss", "hit")):
        reply = poster.post(CHAT, chat("who?"))
        assert said(CHAT, reply) == f"hello {name}" and reply.headers["x-rolter-cache"] == source
        gateway.wait_rows(n + 1)
    memory = process_memory(gateway.pid)
    assert b"hello <NAME>" in memory            # the entry: this looks where it should
    assert hidden.encode() not in memory and hidden[::-1].encode() not in memory


def test_planted_secrets_are_nowhere(new_redis, new_upstream, new_gateway):
    """Two gateways and the Redis between them: addresses of clients and what was restored leave no trace."""
    def echo(call):
        assert b"@example.com" not in call.body
        call.reply(200, chat_reply(call.json()["messages"][-1]["content"]))
    redis, upstream = new_redis(), new_upstream(echo)
    rules = guardrails(rule("cards", "pre_call", "redact", builtin="payment_card"),
                       rule("out", "post_call", "redact", pattern="mail"))
    with Sanitizer() as sanitizer:
        config = caching([upstream], 'scope = "route"', more=rules + f'[redis]\nurl = "{redis.url}"\n' + pii(
            sanitizer, restoration="trusted_downstream", direction="both"))
        a, b = new_gateway(config, rows=True), new_gateway(config, rows=True)
        text = "mail {} card 4111 1111 1111 1111"
        first = a.post(CHAT, chat(text.format(SECRET)))
        assert said(CHAT, first) == f"[REDACTED] {SECRET} card [REDACTED:CARD]"
        wait_until(lambda: redis.keys(), "the stored entry")
        numbers = iter(range(10**6))

        def asks_redis():      # its connections are made when they are first needed
            b.post(CHAT, chat(f"warm {next(numbers)}"))
            return b.metrics().get('rolter_cache_redis_total{result="miss"}', 0) >= 4
        wait_until(asks_redis, "lookups in Redis")
        calls = len(upstream.calls)
        second = b.post(CHAT, chat(text.format("bob@example.com")))
        assert second.headers["x-rolter-cache"] == "hit"
        assert said(CHAT, second) == "[REDACTED] bob@example.com card [REDACTED:CARD]"
        stored = [str(redis.command("GET", key)) for key in redis.keys()]
        assert any("mail <EMAIL_1> card [REDACTED:CARD]" in value for value in stored)   # the upstream's own
        traces = "".join(stored) + "".join(map(str, redis.keys()))
        for gateway, reply in ((a, first), (b, second)):
            gateway.row_of(reply)
            traces += gateway.rows_path.read_text() + gateway.stderr + gateway.get("/metrics").text()
        for secret in (SECRET, "bob@example.com", "4111 1111", *sanitizer.tokens):
            assert secret not in traces, secret
    assert len(upstream.calls) == calls


@pytest.mark.parametrize("mode", ["fail_closed", "fail_open"])
def test_a_stream_that_nobody_asked_for_passes_no_plugin_by(new_upstream, new_gateway, new_service, mode):
    """Not even where guardrails look at streams themselves."""
    service = new_service(lambda asked: {"action": "allow"})
    upstream = new_upstream(streamer(CHAT, [TEXT]))
    gateway = new_gateway(fleet([upstream], more=plugin(service, "p", "post_response", failure_mode=mode) + guardrails(
        rule("a", "post_call", "redact", pattern="unheard of"), streaming_post_call="apply")), rows=True)
    reply = gateway.post(CHAT, chat("x"))
    row = gateway.row_of(reply)
    if mode == "fail_closed":
        assert reply.status == 403 and reply.json()["error"]["code"] == "plugin_blocked" and TEXT not in reply.text()
        assert row["withheld"] == 1
    else:
        assert reply.status == 200 and TEXT in reply.text() and "fail_open" in row["annotations"]
    wait_idle(gateway)
