# SPDX-License-Identifier: Apache-2.0
"""Requests on caching routes that are interrupted where they wait: the upstream breaks off, the client leaves, a match by
meaning comes in between."""

import json
import socket
import threading
import time

import pytest

from cache_rig import PATH, Counting, caching, kind
from harness import chat, wait_still, wait_until
from semantic_rig import Vectors, semantic
from services import Service
from test_policy import guardrails, plugin, rule
from upstream import chat_reply, fleet, metric, wait_idle

NEVER = guardrails(rule("never", "post_call", "block", pattern="FORBIDDEN"))
HIT = ("hit", "semantic")


class Slow:
    """A service whose answers wait while it is shut."""

    def __init__(self):
        self.open = threading.Event()
        self.open.set()
        self.service = Service(self._judge)

    def _judge(self, asked):
        assert self.open.wait(20)
        return {"action": "allow"}

    @property
    def count(self):
        return len(self.service.asked)


@pytest.fixture
def slow():
    one = Slow()
    yield one
    one.open.set()
    one.service.close()
    assert not one.service.errors


class Shut:
    """Vectors that wait while they are shut."""

    def __init__(self, new_upstream):
        self.open = threading.Event()
        self.open.set()
        self.vectors = Vectors(new_upstream, answer=self._answer)

    def _answer(self, call):
        assert self.open.wait(20)
        self.vectors.give(call)


def later(gateway, body):
    """Asks on a thread; the function waits for the reply."""
    got = []
    thread = threading.Thread(target=lambda: got.append(gateway.post(PATH, body)))
    thread.start()

    def end():
        thread.join(20)
        return got[0]
    return end


def stored(gateway, n):
    gateway.wait_metric("rolter_semantic_cache_stores_total", n)


@pytest.mark.parametrize("cached", [False, True])
def test_a_held_reply_that_breaks_off_is_asked_for_again_whole(new_upstream, new_gateway, cached):
    calls = []

    def answer(call):
        calls.append(call)
        if len(calls) > 1:
            call.reply(200, chat_reply("fine"))
            return
        call.send(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"id":')
        gateway.wait_metric("rolter_inflight_requests", 1)
        call.close()
    both = [new_upstream(answer), new_upstream(answer)]
    gateway = new_gateway((caching if cached else fleet)(both, more=NEVER), rows=True)
    body = chat("hello", temperature=0.5)
    reply = gateway.post(PATH, body)
    assert reply.status == 200 and "fine" in reply.text()
    assert [call.json() for call in calls] == [body, body]
    row = gateway.row_of(reply)
    assert (row["attempts"], row["total_tokens"], row["withheld"]) == (2, 5, 0)
    wait_idle(gateway, ["p0", "p1"])


def test_a_client_that_leaves_a_stale_hit_leaves_nothing_behind(new_upstream, new_gateway, slow):
    up = Counting(new_upstream)
    gateway = new_gateway(caching([up.upstream], "ttl_secs = 1\nstale_while_revalidate_secs = 60",
                                  more=plugin(slow.service, "p", "post_response", timeout_ms=20000)), rows=True)
    assert gateway.post(PATH, chat("hello")).status == 200
    time.sleep(1.1)  # the entry's life
    slow.open.clear()
    body = json.dumps(chat("hello")).encode()
    with socket.create_connection(("127.0.0.1", int(gateway.url.rsplit(":", 1)[1]))) as client:
        client.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                       % (PATH.encode(), len(body), body))
        wait_until(lambda: slow.count == 2, "the plugin's turn on the stale hit")
    rows = gateway.wait_rows(2)
    assert (rows[1]["status"], rows[1]["cache_reason"]) == (499, "stale_while_revalidate")
    slow.open.set()
    wait_idle(gateway)
    assert "number 1" in gateway.post(PATH, chat("hello")).text()
    wait_until(lambda: up.count == 2, "the renewal by the next stale hit")
    wait_idle(gateway)


def test_a_match_while_an_engine_is_asked_for_token_ids(new_upstream, new_gateway, slow):
    engine, asked, calls = threading.Event(), [], []
    engine.set()

    def answer(call):
        if call.target != "/tokenize":
            calls.append(call)
            call.reply(200, chat_reply("fine"))
            return
        asked.append(call)
        assert engine.wait(20)
        call.reply(200, {"count": 3, "max_model_len": 100, "tokens": [1, 2, 3]})
    up, shut = new_upstream(answer), Shut(new_upstream)
    table = '[routes.cache.semantic]\nprovider = "emb"\nmodel = "embed"\nlookup = "race"\nembedding_timeout_ms = 20000\n'
    provider = f'[[providers]]\nname = "emb"\nkind = "openai_compatible"\napi_base = "{shut.vectors.upstream.url}"\n'
    gateway = new_gateway(caching([up, up], table, more=provider + plugin(slow.service, "p", "post_response", timeout_ms=20000),
                                  strategy="precise_cache_aware").replace(
        "targets = [", 'tokenize = "engine"\ntokenize_timeout_ms = 10000\ntargets = [', 1), rows=True)
    assert gateway.post(PATH, chat("hello")).status == 200
    stored(gateway, 1)
    for one in (engine, shut.open, slow.open):
        one.clear()
    reply = later(gateway, chat("hello there"))
    wait_until(lambda: len(asked) == 2, "the engine's turn")
    shut.open.set()
    wait_until(lambda: slow.count == 2, "the policy's turn on the match")
    engine.set()
    assert wait_still(lambda: len(calls)) == 1  # the engine's answer moves nothing any more
    slow.open.set()
    got = reply()
    assert got.status == 200 and kind(got) == HIT
    wait_idle(gateway, ["p0", "p1"])
    assert len(calls) == 1


def test_a_match_while_a_packed_reply_is_held(new_upstream, new_gateway):
    shut, calls = Shut(new_upstream), []

    def answer(call):
        calls.append(call)
        if len(calls) == 1:
            call.reply(200, chat_reply("fine"))
            return
        call.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n"
                  b"Content-Length: 1000\r\n\r\n\x1f\x8b")
        call.wait_gone()

    class Up:
        upstream = new_upstream(answer)
    gateway = new_gateway(semantic(Up, shut.vectors, 'lookup = "race"\nembedding_timeout_ms = 20000', more=NEVER), rows=True)
    assert gateway.post(PATH, chat("hello")).status == 200
    stored(gateway, 1)
    shut.open.clear()
    reply = later(gateway, chat("hello there"))
    wait_until(lambda: len(calls) == 2, "the upstream's turn")
    gateway.wait_metric(metric("rolter_target_requests_total", provider="p0", target="m", outcome="ok"), 2)
    shut.open.set()
    got = reply()
    assert got.status == 200 and kind(got) == HIT and "fine" in got.text()
    row = gateway.row_of(got)
    assert (row["withheld"], row["usage_unknown"], row["cost_usd"], row["cache_hit"]) == (0, 0, 0, 1)
    wait_idle(gateway)
