# SPDX-License-Identifier: Apache-2.0
"""Gateways in front of the same replicas that share the placements of least_prefill through a real redis-server."""

import random
import struct

import pytest

from harness import chat, wait_until
from test_least_prefill import config, text
from upstream import metric

CHAT = "/v1/chat/completions"
STREAM = "rolter:affinity"


def synced(sims, redis, more=""):
    return config(sims, more=f'[redis]\nurl = "{redis.url}"\n\n[affinity_sync]\nenabled = true\n{more}')


def ask(gateway, turns):
    """One turn of a conversation: the provider that served it, and the share that its mirror was known to hold."""
    reply = gateway.post(CHAT, chat(turns, max_tokens=16), {"x-rolter-explain": "1"})
    assert reply.status == 200, reply.text()
    turns.append(("assistant", reply.json()["choices"][0]["message"]["content"]))
    turns.append(("user", text(random.Random(len(turns)), 300)))
    why = dict(p.split("=", 1) for p in reply.headers["x-rolter-pick"].split())
    return reply.headers["x-rolter-provider"], float(why["share"])


def talks(n, seed):
    rng = random.Random(seed)
    return [[("user", text(rng, 4000))] for _ in range(n)]


def count(gateway, what, **labels):
    return gateway.metrics().get(metric(f"rolter_affinity_sync_{what}_total", **labels), 0)


def wait_shared(a, b, sent):
    """Until <b> has taken over all that <a> has placed."""
    wait_until(lambda: count(a, "sent") >= sent and count(b, "applied") >= sent)


@pytest.fixture
def pair(new_sim, new_redis, new_gateway):
    redis = new_redis()
    sims = [new_sim(name=f"s{i}") for i in range(4)]
    made = synced(sims, redis)
    return redis, new_gateway(made), new_gateway(made)


def begin_and_continue(a, b, seed, n=12):
    """Conversations begun at <a> go on at <b>, on the same replica and with what it has cached."""
    sent, applied = count(a, "sent"), count(b, "applied")
    begun = talks(n, seed)
    homes = [ask(a, t)[0] for t in begun]
    assert len(set(homes)) > 1
    wait_until(lambda: count(a, "sent") == sent + n and count(b, "applied") == applied + n)
    for turns, home in zip(begun, homes):
        name, share = ask(b, turns)
        assert name == home and share > 0.85
    return begun, homes


def test_conversations_go_on_at_another_gateway(pair):
    redis, a, b = pair
    begun, homes = begin_and_continue(a, b, seed=1)
    # Back again: what the other one added, and nothing but that, was told.
    wait_shared(b, a, 12)
    for turns, home in zip(begun, homes):
        name, share = ask(a, turns)
        assert name == home and share > 0.85
    wait_shared(a, b, 24)
    assert count(a, "applied") == 12 and count(b, "applied") == 24  # nobody takes his own for another's
    for gateway in (a, b):
        assert not [v for k, v in gateway.metrics().items() if "affinity_sync_dropped" in k and v]
        assert count(gateway, "malformed") == 0
    entries = redis.command("XRANGE", STREAM, "-", "+")
    size = sum(len(e[1][1].encode() if isinstance(e[1][1], str) else e[1][1]) for e in entries)
    assert size < 12 * 3 * 1000  # deltas: 63 blocks of a first prompt, a few of each turn


def test_a_gateway_that_comes_later_hears_what_was_placed(new_sim, new_redis, new_gateway):
    redis = new_redis()
    sims = [new_sim(name=f"s{i}") for i in range(4)]
    a = new_gateway(synced(sims, redis))
    begun = talks(12, seed=2)
    homes = [ask(a, t)[0] for t in begun]
    wait_until(lambda: count(a, "sent") == 12)
    b = new_gateway(synced(sims, redis))
    wait_until(lambda: count(b, "applied") == 12)
    assert [ask(b, t)[0] for t in begun] == homes


def test_requests_go_on_while_redis_is_frozen(pair):
    redis, a, b = pair
    begin_and_continue(a, b, seed=3)
    redis.freeze()
    alone = talks(8, seed=4)
    homes = [ask(a, t)[0] for t in alone]
    assert [ask(a, t)[0] for t in alone] == homes  # what it placed itself it knows
    for turns in talks(4, seed=5):
        ask(b, turns)
    wait_until(lambda: "is away" in a.stderr and "is away" in b.stderr)
    for turns in talks(4, seed=6):
        ask(a, turns)
    redis.thaw()
    sharing_again(a, b)


def test_requests_go_on_while_redis_is_dead(pair):
    redis, a, b = pair
    begin_and_continue(a, b, seed=7)
    redis.kill()
    alone = talks(8, seed=8)
    homes = [ask(a, t)[0] for t in alone]
    assert [ask(a, t)[0] for t in alone] == homes
    wait_until(lambda: "is away" in a.stderr and "is away" in b.stderr)
    # Nobody can be told: what waits is let go after a while.
    wait_until(lambda: count(a, "dropped", reason="old") + count(a, "dropped", reason="redis") >= 16)
    redis.start()
    sharing_again(a, b)


def sharing_again(a, b):
    """Reconnects take a moment; then a new conversation is continued where it began."""
    rng = random.Random(99)

    def heard():
        before = count(b, "applied")
        ask(a, [("user", text(rng, 4000))])
        try:
            wait_until(lambda: count(b, "applied") > before, deadline=0.5)
            return True
        except AssertionError:
            return False

    wait_until(heard)
    turns = [("user", text(rng, 4000))]
    before = count(b, "applied")
    home, _ = ask(a, turns)
    wait_until(lambda: count(b, "applied") > before)
    wait_until(lambda: ask(b, list(turns))[1] > 0.85)
    assert ask(b, turns)[0] == home


def test_bad_entries_are_skipped(pair):
    redis, a, b = pair
    head = b"RAP\x01" + struct.pack("<Q", 77)
    bad = [(b"p", b""), (b"p", b"hello"), (b"q", head), (b"p", head + b"\1" * 9), (b"p", b"\xff" * 4000)]
    for field, value in bad:
        redis.command("XADD", STREAM, "*", field, value)
    wait_until(lambda: count(a, "malformed") == len(bad) and count(b, "malformed") == len(bad))
    # Well made, but of a target that nobody has here.
    redis.command("XADD", STREAM, "*", b"p", head + struct.pack("<QIHQ", 5, 0, 1, 9))
    wait_until(lambda: count(b, "dropped", reason="unknown_target") == 1)
    begin_and_continue(a, b, seed=9)


def test_the_stream_is_bounded(new_sim, new_redis, new_gateway):
    redis = new_redis("--stream-node-max-entries", "4")
    a = new_gateway(synced([new_sim(), new_sim()], redis, 'max_len = 16\nstream = "mine"\n'))
    for i, turns in enumerate(talks(40, seed=10)):
        ask(a, turns)
        wait_until(lambda: count(a, "sent") == i + 1)  # one batch each
    assert 16 <= redis.command("XLEN", "mine") <= 20


def test_without_the_section_nothing_is_shared(new_sim, new_redis, new_gateway):
    redis = new_redis()
    a = new_gateway(config([new_sim(), new_sim()], more=f'[redis]\nurl = "{redis.url}"\n'))
    for turns in talks(4, seed=11):
        ask(a, turns)
    assert redis.keys() == [] and count(a, "sent") == 0
