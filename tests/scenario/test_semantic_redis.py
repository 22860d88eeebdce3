# SPDX-License-Identifier: Apache-2.0
"""The semantic cache of several gateways that share a redis-server."""

from cache_rig import ask, kind
from harness import chat, request, wait_until
from semantic_rig import SAME, Vectors, connected, semantic
from test_admin import admin_of
from test_semantic import HIT, MISS, PATH, Both, row_of
from upstream import metric


def pair(new_upstream, new_gateway, new_redis, keys="", more="", cache="", **options):
    """Two gateways, one upstream, one provider of embeddings, one redis-server."""
    redis, up, vectors = new_redis(), Both(new_upstream), Vectors(new_upstream)
    more += f'[redis]\nurl = "{redis.url}"\nbudget_ms = 5000\n[admin]\nport = 0\n'
    config = semantic(up, vectors, keys, more=more, cache=cache)
    gateways = [new_gateway(config, rows=True) for _ in range(2)]
    for gateway in gateways:
        connected(gateway)
    return gateways, up, vectors, redis


def stream_keys(redis):
    return redis.keys("rolter:cache:semantic:v5:*")


def stored(redis, n=1):
    """Waits until <n> vectors stand in Redis."""
    wait_until(lambda: sum(redis.command("XLEN", key) for key in stream_keys(redis)) >= n, "the vector in Redis")


def test_one_gateways_reply_is_the_others_hit(new_upstream, new_gateway, new_redis):
    (one, two), up, vectors, redis = pair(new_upstream, new_gateway, new_redis)
    first = ask(one, "what is the capital of France")
    assert kind(first) == MISS
    stored(redis)
    other = ask(two, "the French capital")
    assert kind(other) == HIT and other.body == first.body and up.count == 1
    # Vectors lie apart from bodies, packed, in a stream that ends with its entries.
    key, = stream_keys(redis)
    record = redis.command("XRANGE", key, "-", "+")[0][1][1]
    assert len(record) < 72 + 4 * len(SAME) + 200 and b"number 1" not in record
    assert 0 < redis.command("PTTL", key) <= 60000
    body_keys = [k for k in redis.keys("rolter:cache:*") if len(k.split(":")[-1]) == 64]
    assert len(body_keys) == 1 and redis.command("PTTL", body_keys[0]) > 0


def test_older_layouts_are_never_read(new_upstream, new_gateway, new_redis):
    (one, two), up, vectors, redis = pair(new_upstream, new_gateway, new_redis)
    assert kind(ask(one, "one")) == MISS
    stored(redis)
    key, = stream_keys(redis)
    partition = key.split(":")[-1]
    for old in (f"rolter:cache:semantic:v2:{partition}", f"rolter:cache:semantic:{partition}"):
        redis.command("LPUSH", old, "poison")
    # Foreign bytes in the stream itself are skipped.
    redis.command("XADD", key, "*", "r", "RSEM poison")
    redis.command("XADD", key, "*", "other", "x")
    assert kind(ask(two, "two")) == HIT and up.count == 1


def test_only_what_is_new_is_fetched(new_upstream, new_gateway, new_redis):
    (one, two), up, vectors, redis = pair(new_upstream, new_gateway, new_redis)
    vectors.vector = lambda text: [1.0 if i == ord(text[-1]) else 0.0 for i in range(1536)]
    for word in "abc":
        assert kind(ask(one, word)) == MISS
    stored(redis, 3)

    def sent():
        return int(next(line.split(":")[1] for line in redis.command("INFO", "stats").splitlines()
                        if line.startswith("total_net_output_bytes")))
    ask(two, "d")
    before = sent()
    ask(two, "e")
    spent = sent() - before
    # Its own first vector comes back once (6 KB and a little); the three of the other gateway do not.
    assert spent < 9000, spent  # with the answer to INFO


def test_redis_away_and_back(new_upstream, new_gateway, new_redis):
    (one, two), up, vectors, redis = pair(new_upstream, new_gateway, new_redis)
    assert kind(ask(one, "one")) == MISS
    stored(redis)
    redis.kill()
    wait_until(lambda: one.metrics()[metric("rolter_redis_connected", consumer="cache")] == 0, "the loss")
    assert kind(ask(one, "two")) == HIT      # from memory
    assert kind(ask(two, "three")) == MISS   # which has nothing yet
    assert kind(ask(two, "four")) == HIT
    redis.start()
    for gateway in (one, two):
        connected(gateway)
    assert kind(ask(two, "five")) == HIT and up.count == 2


def test_frozen_redis_costs_its_budget_at_most(new_upstream, new_gateway, new_redis):
    redis, up, vectors = new_redis(), Both(new_upstream), Vectors(new_upstream)
    config = semantic(up, vectors, more=f'[redis]\nurl = "{redis.url}"\nbudget_ms = 50\n')
    gateway = new_gateway(config, rows=True)
    connected(gateway)
    assert kind(ask(gateway, "one")) == MISS
    redis.freeze()
    try:
        for i in range(5):
            reply = ask(gateway, f"text {i}")
            assert reply.status == 200 and kind(reply) == HIT  # memory has it
            assert row_of(gateway, reply)["latency_ms"] < 1000
    finally:
        redis.thaw()


def test_purges_reach_hits_of_other_gateways(new_upstream, new_gateway, new_redis):
    (one, two), up, vectors, redis = pair(new_upstream, new_gateway, new_redis)
    assert kind(ask(one, "one")) == MISS
    stored(redis)
    assert kind(ask(two, "two")) == HIT
    assert request("POST", admin_of(one) + "/cache/purge", b'{"route": "m"}').status == 200
    assert kind(ask(one, "three")) == MISS
    # The other one learns it within a second; the reply to "three" is all that it may serve then.
    wait_until(lambda: "number 1" not in ask(two, "one").text(), "the purge at the other gateway", 5)


def test_vectors_of_gone_replies_are_passed_over(new_upstream, new_gateway, new_redis):
    (one, two), up, vectors, redis = pair(new_upstream, new_gateway, new_redis)
    assert kind(ask(one, "one")) == MISS
    stored(redis)
    for key in redis.keys("rolter:cache:*"):
        if ":semantic:" not in key:
            redis.command("DEL", key)
    missed = ask(two, "two")
    assert kind(missed) == MISS and up.count == 2
    assert row_of(two, missed)["cache_reason"] == "not_found, semantic: gone"
    assert kind(ask(two, "three")) == HIT


def test_streams_are_shared_too(new_upstream, new_gateway, new_redis):
    (one, two), up, vectors, redis = pair(new_upstream, new_gateway, new_redis)

    def stream(gateway, text):
        with gateway.stream(PATH, chat(text, stream=True)) as s:
            return [e.data for e in s.all()], kind(s)
    first = stream(one, "one")
    assert first[1] == MISS
    stored(redis)
    assert stream(two, "two") == (first[0], HIT) and up.count == 1
