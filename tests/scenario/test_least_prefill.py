# SPDX-License-Identifier: Apache-2.0
"""least_prefill, seen from outside, in front of simulated engines that cache: conversations stay, bursts stay together,
what waits is given back, and a replica that has not what it should have is found out."""

import json
import random
import socket
import time

import pytest

from harness import chat, wait_until
from upstream import fleet, metric, wait_idle

CHAT = "/v1/chat/completions"
WORDS = "amber birch cedar delta ember fjord grove haven inlet jetty knoll ledge marsh north ocean pearl".split()


def text(rng, size):
    words = []
    while sum(map(len, words)) + len(words) < size:
        words.append(rng.choice(WORDS) + str(rng.randrange(1000)))
    return " ".join(words)[:size]


def config(sims, cache_tokens=0, route="", more=""):
    return fleet(sims, strategy="least_prefill", route=route, more=more).replace(
        "\n\n[[", f"\ncache_tokens = {cache_tokens}\n\n[[")


class Talks:
    """Conversations that go on by turns, one request after the other over one connection."""

    def __init__(self, gateway, n, seed=1):
        self.rng = random.Random(seed)
        self.client = gateway.client()
        self.turns = [[("user", text(self.rng, 4000))] for _ in range(n)]
        self.prompt = self.cached = self.asked = 0
        self.by_provider = {}

    def ask(self, which=None):
        turns = self.turns[self.rng.randrange(len(self.turns)) if which is None else which]
        reply = self.client.post(CHAT, chat(turns, max_tokens=16), {"x-rolter-explain": "1"})
        assert reply.status == 200, reply.text()
        body = reply.json()
        usage = body["usage"]
        self.prompt += usage["prompt_tokens"]
        self.cached += usage["prompt_tokens_details"]["cached_tokens"]
        turns.append(("assistant", body["choices"][0]["message"]["content"]))
        turns.append(("user", text(self.rng, 100)))
        if len(turns) > 41:  # begun anew, so that no prompt grows without end
            turns[:] = [("user", text(self.rng, 4000))]
        name = reply.headers["x-rolter-provider"]
        self.by_provider[name] = self.by_provider.get(name, 0) + 1
        return name, reply.headers["x-rolter-pick"]

    def rate(self, n):
        """Share of cached tokens over <n> requests."""
        prompt, cached = self.prompt, self.cached
        for _ in range(n):
            self.ask()
        return (self.cached - cached) / (self.prompt - prompt)


def test_conversations_stay_and_new_ones_spread(new_sim, new_gateway):
    sims = [new_sim(name=f"s{i}") for i in range(3)]
    gateway = new_gateway(config(sims), rows=True)
    talks = Talks(gateway, 24)
    homes = [talks.ask(i)[0] for i in range(24)]
    assert [homes.count(f"p{i}") for i in range(3)] == [8, 8, 8]
    for n in range(3):
        for i in range(24):
            name, why = talks.ask(i)
            assert name == homes[i], (n, i, why)
    parts = dict(p.split("=", 1) for p in why.split())
    assert parts["strategy"] == "least_prefill" and parts["reason"] == "prefill"
    assert float(parts["share"]) > 0.9 and int(parts["backlog"]) == 0 and parts["runner_up"].startswith("p")
    assert 0 < int(parts["uncached"]) < 150 and int(parts["cost_ms"]) < int(parts["runner_up_cost_ms"])
    rows = gateway.wait_rows(96)
    assert all(r["pick_reason"] == "prefill" for r in rows) and "uncached=" in rows[-1]["pick_detail"]
    values = gateway.metrics()
    counts = [values[metric("rolter_prefix_prediction_error_ratio_count", provider=f"p{i}")] for i in range(3)]
    sums = [values[metric("rolter_prefix_prediction_error_ratio_sum", provider=f"p{i}")] for i in range(3)]
    assert sum(counts) == 96 and sum(sums) / 96 < 0.05


def test_a_failed_attempt_leaves_nothing(new_sim, new_gateway):
    sims = [new_sim(name=f"s{i}") for i in range(2)]
    gateway = new_gateway(config(sims, more="[cooldown]\nbase_secs = 0\n"))
    talks = Talks(gateway, 1)
    first = gateway.post(CHAT, chat(talks.turns[0]), {"x-rolter-explain": "1"}).headers["x-rolter-provider"]
    other = 1 - int(first[1])
    sims[int(first[1])].faults(fail_rate=1)
    assert talks.ask()[0] == f"p{other}"  # it fails over, and what the failing one had before it keeps
    sims[int(first[1])].faults(fail_rate=0)
    wait_idle(gateway, ["p0", "p1"])
    name, why = talks.ask()
    assert name == f"p{other}" and "share=0.9" in why, why


@pytest.mark.parametrize("stream", [False, True])
def test_charges_come_back(new_sim, new_gateway, stream):
    """Clients that leave, engines that break: the next prompt meets no backlog."""
    sims = [new_sim(name=f"s{i}", prefill_tps=4000, cut_rate=0.3, fail_rate=0.2) for i in range(2)]
    gateway = new_gateway(config(sims, more="[cooldown]\nbase_secs = 0\n"))
    rng = random.Random(5)
    for n in range(30):
        body = json.dumps(chat(text(rng, 2000), stream=stream)).encode()
        with socket.create_connection(("127.0.0.1", gateway.port)) as s:
            s.sendall(b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
                      % (CHAT.encode(), len(body)) + body)
            if n % 3:
                s.settimeout(0.05)
                try:
                    s.recv(100)
                except TimeoutError:
                    pass
    wait_idle(gateway, ["p0", "p1"])
    for sim in sims:
        sim.faults(cut_rate=0, fail_rate=0)
    for _ in range(2):
        why = gateway.post(CHAT, chat(text(rng, 2000)), {"x-rolter-explain": "1"}).headers["x-rolter-pick"]
        assert " backlog=0 " in why, why


def test_reload_keeps_what_is_known(new_sim, new_gateway):
    sims = [new_sim(name=f"s{i}") for i in range(3)]
    gateway = new_gateway(config(sims))
    talks = Talks(gateway, 6)
    homes = [talks.ask(i)[0] for i in range(6)]
    gateway.reload_and_wait(config(sims, route="affinity = { miss_weight = 4.0 }"))
    assert [talks.ask(i)[0] for i in range(6)] == homes


def test_siblings_stay_together(new_sim, new_gateway):
    """64 siblings of an 8k-token prompt at once on 8 idle replicas: their prefix is read twice at most."""
    sims = [new_sim(name=f"s{i}", prefill_tps=8000, blocks=20000) for i in range(8)]
    gateway = new_gateway(config(sims, 320000))
    rng = random.Random(3)
    prefix = text(rng, 32000)
    bodies = []
    for n in range(64):
        body = json.dumps(chat([("system", prefix), ("user", f"Question {n}: {text(rng, 60)}")], max_tokens=4))
        bodies.append(b"POST %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
                      b"content-length: %d\r\n\r\n" % (CHAT.encode(), len(body)) + body.encode())
    sockets = [socket.create_connection(("127.0.0.1", gateway.port)) for _ in bodies]
    begun = time.monotonic()
    for s, body in zip(sockets, bodies):
        s.sendall(body)
    print(f"sent within {(time.monotonic() - begun) * 1000:.1f} ms")
    for s in sockets:
        reply = b""
        while piece := s.recv(65536):
            reply += piece
        assert reply.startswith(b"HTTP/1.1 200 "), reply[:200]
        s.close()
    stats = [sim.stats() for sim in sims]
    computed = sum(s["prompt_tokens"] - s["cached_tokens"] for s in stats)
    one = max(s["prompt_tokens"] / s["requests"] for s in stats if s["requests"])
    assert one > 7000 and computed < 2.7 * one, (one, computed)  # 64 questions are half a prompt


def silent_restart(sim):
    assert sim.post("/sim/silent-restart", {}).status == 200


def shrink(sim):
    sim.faults(blocks=600)


def other_template(sim):
    sim.faults(template_tokens=40)


@pytest.mark.parametrize("fault", [silent_restart, shrink, other_template])
def test_a_mirror_that_lies_is_found_out(new_sim, new_gateway, fault):
    """Within 20 requests of the replica it is known, within 200 the hits are back."""
    sims = [new_sim(name=f"s{i}", blocks=4000) for i in range(3)]
    gateway = new_gateway(config(sims, 64000))
    talks = Talks(gateway, 30)
    talks.rate(400)
    normal = talks.rate(300)
    assert normal > 0.85

    def resets():
        values = gateway.metrics()
        return {why: values[metric("rolter_prefix_mirror_resets_total", provider="p0", reason=why)]
                for why in ("restarted", "dropped", "shrunk")}

    assert sum(resets().values()) == 0
    fault(sims[0])
    begun = talks.by_provider["p0"]
    asked = 0
    while talks.by_provider["p0"] < begun + 20:
        talks.ask()
        asked += 1
    wait_until(lambda: sum(resets().values()) > 0, "a reset")
    gateway.wait_stderr("prefix mirror of p0/m")
    for _ in range(200 - asked):
        talks.ask()
    after = talks.rate(200)
    print(f"{fault.__name__}: {normal:.3f} before, {after:.3f} after, {resets()}")
    assert after > 0.95 * normal
    values = gateway.metrics()  # the others are left alone
    for p in ("p1", "p2"):
        assert values[metric("rolter_prefix_mirror_resets_total", provider=p, reason="dropped")] == 0


def test_a_restart_that_shows_is_known_at_once(new_sim, new_gateway):
    sims = [new_sim(name=f"s{i}") for i in range(2)]
    gateway = new_gateway(config(sims, more="[metrics_scrape]\nenabled = true\ninterval_secs = 1\n"))
    talks = Talks(gateway, 4)
    wait_until(lambda: gateway.metrics().get(metric("rolter_upstream_scrape_up", provider="p0")), "a scrape")
    homes = [talks.ask(i)[0] for i in range(4)]
    begun = int(time.time())  # a start time has whole seconds; two equal ones are no restart
    wait_until(lambda: time.time() > begun + 2, "another second")
    sims[0].restart()

    def known():
        values = gateway.metrics()
        talks.client.post(CHAT, chat("hello"))
        return values[metric("rolter_prefix_mirror_resets_total", provider="p0", reason="restarted")] == 1
    wait_until(known, "a reset")
    i = homes.index("p0")
    assert "share=0.0" in talks.ask(i)[1]


def test_a_kept_reply_gives_nothing_back_twice(new_upstream, new_gateway):
    """Its attempt was over when the next one failed; what it had charged is given back once."""
    def answer(call):
        if len(answered) == 0:
            answered.append(call)
            call.reply(503, {"error": {"message": "kept"}})
        else:
            call.reset()

    answered = []
    gateway = new_gateway(fleet([new_upstream(answer), new_upstream(answer)], "least_prefill",
                                more="[cooldown]\nbase_secs = 0\n[retry]\nbase_backoff_ms = 1\n"))
    for _ in range(5):
        reply = gateway.post(CHAT, chat("a prompt"))
        assert reply.status == 503 and "kept" in reply.body.decode()
        answered.clear()
    wait_idle(gateway, ("p0", "p1"))
