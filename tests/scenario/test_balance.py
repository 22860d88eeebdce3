# SPDX-License-Identifier: Apache-2.0
"""Strategies and variants, seen from outside."""

import collections
import threading

import pytest

from harness import DEADLINE, chat, wait_until
from upstream import chat_reply, dead_port, fleet, metric, wait_idle

CHAT = "/v1/chat/completions"


def provider(name, url):
    return f'[[providers]]\nname = "{name}"\nkind = "openai_compatible"\napi_base = "{url}"\n\n'


def weighted(upstreams, weights, strategy="weighted"):
    text = "".join(provider(f"p{i}", u.url) for i, u in enumerate(upstreams))
    targets = ", ".join(f'{{ provider = "p{i}", weight = {w} }}' for i, w in enumerate(weights))
    return text + f'[[routes]]\nmodel = "m"\nstrategy = "{strategy}"\ntargets = [{targets}]\n'


def many(gateway, n, threads=4, headers=None, path=CHAT, body=None):
    """n requests from several clients; how many went to each provider."""
    counts, lock = collections.Counter(), threading.Lock()

    def work(share):
        with gateway.client() as client:
            for _ in range(share):
                reply = client.post(path, body or chat("x"), headers)
                with lock:
                    counts[(reply.status, reply.headers.get("x-rolter-provider"))] += 1

    share, rest = divmod(n, threads)
    workers = [threading.Thread(target=work, args=(share + (i < rest),)) for i in range(threads)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert all(status == 200 for status, _ in counts), counts
    return {name: counts[(200, name)] for _, name in counts}


def who(gateway, headers=None, text="x"):
    reply = gateway.post(CHAT, chat(text), headers)
    assert reply.status == 200
    return reply.headers["x-rolter-provider"]


def test_round_robin_is_exact_over_all_workers(new_sim, new_gateway):
    sim = new_sim()
    gateway = new_gateway(fleet([sim] * 3), server="workers = 4")
    assert many(gateway, 300, threads=8) == {"p0": 100, "p1": 100, "p2": 100}


def test_weighted_is_exact_over_all_workers(new_sim, new_gateway):
    sim = new_sim()
    gateway = new_gateway(weighted([sim] * 3, [5, 3, 2]), server="workers = 4")
    assert many(gateway, 200, threads=8) == {"p0": 100, "p1": 60, "p2": 40}


def test_weighted_is_smooth(new_sim, new_gateway):
    sim = new_sim()
    gateway = new_gateway(weighted([sim] * 2, [3, 1]))
    order = [who(gateway) for _ in range(16)]
    for i in range(13):  # in any four in a row the light one comes once
        assert order[i:i + 4].count("p1") == 1


def test_weights_without_the_one_that_is_away(new_upstream, new_sim, new_gateway):
    sim, bad = new_sim(), new_upstream(lambda call: call.reply(500))
    gateway = new_gateway(weighted([sim, bad, sim], [2, 5, 1]) + "[cooldown]\nbase_secs = 300\n")
    while not bad.calls:
        who(gateway)
    counts = many(gateway, 90)
    assert set(counts) == {"p0", "p2"} and 50 <= counts["p0"] <= 70


@pytest.mark.parametrize("strategy", ["random", "power_of_two"])
def test_random_reaches_everybody(new_sim, new_gateway, strategy):
    sim = new_sim()
    gateway = new_gateway(fleet([sim] * 3, strategy=strategy))
    counts = many(gateway, 300)
    assert set(counts) == {"p0", "p1", "p2"} and min(counts.values()) > 40


@pytest.mark.parametrize("strategy", ["least_load", "power_of_two"])
def test_load_counts(new_upstream, new_gateway, strategy):
    """Who is busy gets nothing while another one is idle, and all come back."""
    go = threading.Event()

    def answer(call):
        if call.json().get("stream"):
            call.begin_events()
            call.event({"choices": []})
            assert go.wait(DEADLINE)
            call.end()
        else:
            call.reply(200, chat_reply("x"))

    gateway = new_gateway(fleet([new_upstream(answer) for _ in range(2)], strategy=strategy))
    streams = [gateway.stream(CHAT, chat("x", stream=True))]
    busy = streams[0].headers["x-rolter-provider"]
    assert {who(gateway) for _ in range(10)} == {"p0", "p1"} - {busy}
    streams.append(gateway.stream(CHAT, chat("x", stream=True)))
    assert streams[1].headers["x-rolter-provider"] != busy
    for stream in streams:
        stream.next()
    go.set()
    for stream in streams:
        assert stream.all() == [] and stream.complete
        stream.close()
    wait_idle(gateway, ("p0", "p1"))
    assert {who(gateway) for _ in range(20)} == {"p0", "p1"}


def test_idle_least_load_spreads(new_sim, new_gateway):
    """Ties never go to the first one."""
    gateway = new_gateway(fleet([new_sim()] * 3, strategy="least_load"))
    counts = collections.Counter(who(gateway) for _ in range(30))
    assert counts == {"p0": 10, "p1": 10, "p2": 10}


def test_sessions_stay_where_they_are(new_sim, new_gateway):
    sim = new_sim()
    gateway = new_gateway(fleet([sim] * 4, strategy="consistent_hash"), rows=True, server="workers = 3")
    homes = {}
    for i in range(40):
        headers = {"x-session-id": f"s{i}"}
        homes[i] = who(gateway, headers)
        assert {who(gateway, headers, text=f"turn {k}") for k in range(2)} == {homes[i]}
    spread = collections.Counter(homes.values())
    assert set(spread) == {"p0", "p1", "p2", "p3"}
    # Without a session the prompt decides.
    assert len({who(gateway, text="same prompt") for _ in range(5)}) == 1
    assert len({who(gateway, text=f"prompt {i}") for i in range(30)}) > 1
    # One leaves: only its sessions move, and come back with it.
    text = fleet([sim] * 4, strategy="consistent_hash")
    without = text.replace('{ provider = "p2" }, ', "")
    assert without != text
    gateway.reload_and_wait(without)
    moved = {i: who(gateway, {"x-session-id": f"s{i}"}) for i in range(40)}
    assert all(moved[i] == home for i, home in homes.items() if home != "p2")
    assert {moved[i] for i, home in homes.items() if home == "p2"} <= {"p0", "p1", "p3"}
    gateway.reload_and_wait(text)
    assert {i: who(gateway, {"x-session-id": f"s{i}"}) for i in range(40)} == homes


def test_next_on_the_ring(new_upstream, new_gateway):
    """The owner cannot be used: its sessions share out over the others, each to one place, and return."""
    broken = set()

    def answer(call):
        call.reply(500 if call.upstream.name in broken else 200, chat_reply("x"))

    ups = [new_upstream(answer, f"p{i}") for i in range(4)]
    gateway = new_gateway(fleet(ups, strategy="consistent_hash", more="[cooldown]\nbase_secs = 1\n"), rows=True)
    homes = {i: who(gateway, {"x-session-id": f"s{i}"}) for i in range(40)}
    broken.add("p1")
    first = {i: who(gateway, {"x-session-id": f"s{i}"}) for i in range(40) if homes[i] == "p1"}
    assert first and "p1" not in first.values() and len(set(first.values())) > 1
    reply = None
    for i in first:
        reply = gateway.post(CHAT, chat("x"), {"x-session-id": f"s{i}"})
        assert reply.headers["x-rolter-provider"] == first[i]
    assert gateway.row_of(reply)["pick_reason"] in ("hash_next", "hash")  # "hash": the cooldown was just over
    broken.clear()
    wait_until(lambda: all(who(gateway, {"x-session-id": f"s{i}"}) == "p1" for i in first), "the way home")


def test_more_targets_than_bits_in_a_word(new_sim, new_gateway):
    sim = new_sim()
    gateway = new_gateway(fleet([sim] * 130))
    counts = many(gateway, 260)
    assert len(counts) == 130 and set(counts.values()) == {2}


# ---- variants

def variants(upstreams, weights, more="", params=None):
    text = "".join(provider(f"p{i}", u if isinstance(u, str) else u.url) for i, u in enumerate(upstreams))
    text += f'[[routes]]\nmodel = "m"\n{more}\n'
    for i, weight in enumerate(weights):
        own = (params or {}).get(i, "")
        text += (f'[[routes.variants]]\nname = "v{i}"\nweight = {weight}\n'
                 f'targets = [{{ provider = "p{i}", model = "up-{i}" }}]\n{own}\n')
    return text


def variant_counts(gateway, n):
    counts = collections.Counter()
    for _ in range(n):
        reply = gateway.post(CHAT, chat("x"))
        assert reply.status == 200
        assert reply.headers["x-rolter-target"] == "up-" + reply.headers["x-rolter-variant"][1:]
        counts[reply.headers["x-rolter-variant"]] += 1
    return counts


def test_variant_weights_are_exact(new_sim, new_gateway):
    gateway = new_gateway(variants([new_sim()] * 3, [6, 3, 1]), rows=True, server="workers = 3")
    assert variant_counts(gateway, 100) == {"v0": 60, "v1": 30, "v2": 10}
    now = gateway.metrics()
    assert [now[metric("rolter_variant_requests_total", model="m", variant=f"v{i}")] for i in range(3)] == [60, 30, 10]
    assert collections.Counter(r["variant"] for r in gateway.wait_rows(100)) == {"v0": 60, "v1": 30, "v2": 10}


def test_variant_params(new_upstream, new_gateway):
    up = new_upstream()
    gateway = new_gateway(variants([up, up], [1, 1], 'params = { temperature = 0.1, seed = 1 }',
                                   {1: 'params = { temperature = 0.9, top_p = 0.5 }'}))
    for _ in range(4):
        assert gateway.post(CHAT, {"model": "m", "seed": 5}).status == 200
    for call in up.calls:
        sent = call.json()
        if sent["model"] == "up-0":
            assert sent == {"model": "up-0", "seed": 5, "temperature": 0.1}
        else:
            assert sent == {"model": "up-1", "seed": 5, "temperature": 0.9, "top_p": 0.5}
    assert len({c.json()["model"] for c in up.calls}) == 2


def test_variant_fails_over_to_the_next(new_upstream, new_gateway):
    """With the other variant's own model and params."""
    bad, good = new_upstream(lambda call: call.reply(503)), new_upstream()
    gateway = new_gateway(variants([bad, good], [1000, 1], params={0: "params = { a = 1 }", 1: "params = { b = 2 }"})
                          + "[cooldown]\nbase_secs = 0\n", rows=True)
    for _ in range(3):
        reply = gateway.post(CHAT, chat("x"))
        assert reply.status == 200 and reply.headers["x-rolter-variant"] == "v1"
        assert gateway.row_of(reply)["variant"] == "v1" and gateway.row_of(reply)["attempts"] == 2
    assert bad.calls[0].json()["a"] == 1 and "b" not in bad.calls[0].json()
    assert good.calls[0].json()["b"] == 2 and "a" not in good.calls[0].json()
    assert good.calls[0].json()["model"] == "up-1"


def test_variants_without_eligible_targets_are_passed_over(new_upstream, new_sim, new_gateway):
    bad, sim = new_upstream(lambda call: call.reply(500)), new_sim()
    gateway = new_gateway(variants([bad, sim, sim], [10, 1, 1]) + "[cooldown]\nbase_secs = 300\n", rows=True)
    while not bad.calls:
        assert gateway.post(CHAT, chat("x")).status == 200
    for _ in range(12):
        reply = gateway.post(CHAT, chat("x"))
        assert reply.status == 200 and reply.headers["x-rolter-variant"] in ("v1", "v2")
        assert gateway.row_of(reply)["attempts"] == 1
    assert len(bad.calls) == 1


def test_all_variants_away_fails_open(new_gateway):
    held, port = dead_port()
    with held:
        gateway = new_gateway(variants([f"http://127.0.0.1:{port}"] * 2, [1, 1]) + "[cooldown]\nbase_secs = 300\n",
                              rows=True)
        for _ in range(3):
            assert gateway.post(CHAT, chat("x")).status == 502
        assert [r["attempts"] for r in gateway.wait_rows(3)] == [2, 2, 2]
