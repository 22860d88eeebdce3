# SPDX-License-Identifier: Apache-2.0
"""The response cache with everything going wrong at once: clients that leave anywhere, upstreams that fail and break off,
reloads, purges. No reply may be another one's, and nothing may be left behind."""

import http.client
import json
import random
import socket
import threading
import time

import pytest

from cache_rig import PATH, caching, chunk
from harness import DEADLINE, chat, request, wait_until
from test_admin import admin_of
from upstream import chat_reply, wait_idle

SLOW = DEADLINE > 20  # under a sanitizer
THREADS, EACH, QUESTIONS = 16, 100 if SLOW else 300, 8


def answer(call):
    rng = random.Random(time.monotonic_ns() ^ id(call))
    body = call.json()
    said = "answer to " + body["messages"][0]["content"]
    fate = rng.random()
    time.sleep(rng.choice([0, 0, 0.002, 0.01]))
    if fate < 0.05:
        return call.reset()
    if fate < 0.12:
        return call.reply(rng.choice([429, 500, 503]), {"error": {}})
    finish = "length" if fate < 0.2 else "stop"
    if not body.get("stream"):
        reply = chat_reply(said)
        reply["choices"][0]["finish_reason"] = finish
        return call.reply(200, reply)
    call.begin_events()
    for word in said.split(" "):
        call.event(chunk(word + " "))
        time.sleep(rng.choice([0, 0, 0.001, 0.004]))
        if rng.random() < 0.01:
            return call.reset()
    call.event(chunk(None, finish))
    call.event("[DONE]")
    call.end()


class Client(threading.Thread):
    """Asks the same few questions as all others; leaves now and then."""

    def __init__(self, port, seed):
        super().__init__()
        self.port, self.rng = port, random.Random(seed)
        self.wrong, self.whole, self.left = [], 0, 0

    def run(self):
        for _ in range(EACH):
            question = f"question number {self.rng.randrange(QUESTIONS)} of {QUESTIONS}"
            stream = self.rng.random() < 0.5
            control = self.rng.choice([{}] * 12 + [{"cache-control": v} for v in
                                                  ("no-cache", "no-store", "only-if-cached", "max-age=1")])
            try:
                self.one(question, stream, control)
            except (OSError, http.client.HTTPException):
                pass

    def one(self, question, stream, control):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE * 2)
        c.request("POST", PATH, json.dumps(chat(question, stream=stream)), control)
        if self.rng.random() < 0.15:
            self.left += 1
            return c.close()
        reply = c.getresponse()
        if self.rng.random() < 0.1:
            reply.read(self.rng.randrange(200))
            self.left += 1
            if self.rng.random() < 0.5:
                c.sock and c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            return c.close()
        body = reply.read()
        c.close()
        if reply.status == 200:
            self.whole += 1
            text = body.decode()
            if stream:
                data = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
                said = "".join(json.loads(d)["choices"][0]["delta"].get("content") or "" for d in data if d != "[DONE]")
                good = data[-1] == "[DONE]" and said.strip() == "answer to " + question
            else:
                good = json.loads(text)["choices"][0]["message"]["content"] == "answer to " + question
            if not good:
                self.wrong.append((question, stream, dict(reply.getheaders()), text))


def config_of(up, rng):
    routed = (f"ttl_secs = {rng.choice([1, 1, 5])}\ncoalesce = {rng.choice(['true', 'true', 'false'])}\n"
              f"stale_while_revalidate_secs = {rng.choice([0, 2])}\nstale_if_error_secs = {rng.choice([0, 2])}\n"
              f"store_truncated = {rng.choice(['true', 'false'])}")
    return caching(up, routed, more="[admin]\nport = 0\n[retry]\nbase_backoff_ms = 1\nmax_backoff_ms = 5\n"
                   "[cooldown]\nbase_secs = 0\n")


@pytest.mark.slow
def test_everything_goes_wrong_under_a_cache(new_upstream, new_gateway):
    rng = random.Random(7)
    ups = [new_upstream(answer) for _ in range(2)]
    gateway = new_gateway(config_of(ups, rng), server="workers = 3", rows=True)
    admin = admin_of(gateway)
    clients = [Client(gateway.port, seed) for seed in range(THREADS)]
    [c.start() for c in clients]
    while any(c.is_alive() for c in clients):
        time.sleep(0.1)
        if rng.random() < 0.5:
            gateway.reload(config_of(ups, rng))
        if rng.random() < 0.3:
            assert request("POST", admin + "/cache/purge", b'{"all": true}').status == 200
    [c.join() for c in clients]
    assert [w for c in clients for w in c.wrong] == []
    assert sum(c.whole for c in clients) > THREADS * EACH / 3 and sum(c.left for c in clients) > 0
    wait_idle(gateway, ("p0", "p1"))
    gateway.wait_metric("rolter_client_connections", 1)  # the one that asks
    metrics = gateway.metrics()
    for kind in ("exact", "coalesced"):
        assert metrics[f'rolter_cache_requests_total{{model="m",kind="{kind}",result="hit"}}'] > 0
    stats = request("GET", admin + "/cache/stats").json()
    assert stats["flights"] == 0 and stats["memory"]["entries"] <= 2 * QUESTIONS
    rows = gateway.rows()
    assert all(r["total_tokens"] == 0 and r["cost_usd"] == 0 for r in rows if r["cache_hit"])
    wait_until(lambda: request("GET", admin + "/cache/stats").json()["memory"]["bytes"] < 1 << 20, "little memory")
