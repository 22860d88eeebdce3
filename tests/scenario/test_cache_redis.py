# SPDX-License-Identifier: Apache-2.0
"""The response cache with Redis: gateways share entries, and Redis may be in any state at any time."""

import json
import time

import pytest

from cache_rig import PATH, Counting, ask, caching, kind
from certificates import Authority
from harness import chat, request, wait_until
from redis_rig import Cluster, Redis, SlowWay
from test_admin import admin_of
from upstream import metric

BUDGET_MS = 50
UP = metric("rolter_redis_connected", consumer="cache")


@pytest.fixture
def open_redis():
    made = []

    def make(*more, kind=Redis, **options):
        made.append(kind(*more, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def shared(upstreams, url, more="", redis="budget_ms = 3000", **options):
    """<redis>: more of [redis]. Where time is not what a test is about, the machine may be slow."""
    return caching(upstreams, more=f'[redis]\nurl = "{url}"\n{redis}\n{more}', **options)


def redis_total(gateway, result):
    return gateway.metrics().get(metric("rolter_cache_redis_total", result=result), 0)


def wait_redis(gateway):
    """Waits until lookups are asked of Redis."""
    gateway.wait_metric(UP, 1)
    n = 0

    def look():
        nonlocal n
        n += 1
        before = redis_total(gateway, "miss")
        ask(gateway, f"is redis asked? {n}", cache_probe=n)
        return redis_total(gateway, "miss") > before
    wait_until(look, "lookups in Redis")


def wait_stored(gateway, n):
    wait_until(lambda: redis_total(gateway, "stored") >= n, f"{n} entries written to Redis")


def changes(gateway):
    """What was said of Redis' state, as words; one line for each change, so no word comes twice in a row."""
    words = []
    for line in gateway.stderr.splitlines():
        words += [word for word in ("is connected", "is away", "takes no writes", "takes writes again") if word in line]
    assert all(a != b for a, b in zip(words, words[1:])), gateway.stderr
    return words


def costs(gateway, n=150):
    """Times of <n> requests that the cache does not know, in milliseconds, sorted; every one is answered with 200."""
    times = []
    with gateway.client() as client:
        for i in range(n):
            start = time.monotonic()
            reply = client.post(PATH, chat(f"cost {i} {start}"))
            times.append((time.monotonic() - start) * 1000)
            assert reply.status == 200 and kind(reply) == ("miss", None)
    return sorted(times)


def assert_once(times):
    """At most one budget a worker, and some for the machine's own pauses; the rest as if there were no Redis."""
    slow = [t for t in times if t > BUDGET_MS - 10]
    assert len(slow) <= 6, times[-12:]
    assert times[-1] < BUDGET_MS + 400, times[-12:]
    assert times[len(times) // 2] < 20, times[len(times) // 2]


def test_two_gateways_share(new_upstream, new_gateway, open_redis):
    up, redis = Counting(new_upstream), open_redis()
    one = new_gateway(shared([up.upstream], redis.url), rows=True)
    two = new_gateway(shared([up.upstream], redis.unix_url), rows=True)
    for gateway in (one, two):
        wait_redis(gateway)
    stored, before = redis_total(one, "stored"), up.count
    first = ask(one, "shared")
    assert kind(first) == ("miss", None)
    wait_stored(one, stored + 1)
    second = ask(two, "shared")
    assert kind(second) == ("hit", "exact") and second.body == first.body and up.count == before + 1
    assert second.headers["x-rolter-provider"] == first.headers["x-rolter-provider"]
    assert two.row_of(second)["cache_reason"] == "exact"
    hits = redis_total(two, "hit")
    assert kind(ask(two, "shared")) == ("hit", "exact")
    assert redis_total(two, "hit") == hits  # from memory now
    # Streams as well, event by event.
    with one.stream(PATH, chat("stream", stream=True)) as s:
        whole = s.all()
    wait_stored(one, stored + 2)
    with two.stream(PATH, chat("stream", stream=True)) as s:
        again = s.all()
        assert s.headers["x-rolter-cache"] == "hit"
    assert [e.data for e in again] == [e.data for e in whole]
    # Nothing of the callers' words stands in the names of keys, and every entry ends by itself.
    assert redis.entries()
    for key in redis.entries():
        assert key.startswith("rolter:cache:") and 0 < redis.command("PTTL", key) <= 60000


def test_purge_crosses(new_upstream, new_gateway, open_redis):
    """What one gateway is told to forget, the other one has forgotten within a second, in memory and in Redis."""
    up, redis = Counting(new_upstream), open_redis()
    one, two = (new_gateway(shared([up.upstream], redis.url, more="[admin]\nport = 0\n")) for _ in range(2))
    for gateway in (one, two):
        wait_redis(gateway)
    for text, what in (("one route", {"route": "m"}), ("everything", {"all": True})):
        stored = redis_total(one, "stored")
        ask(one, text)
        wait_stored(one, stored + 1)
        assert kind(ask(two, text)) == ("hit", "exact")
        start, calls = time.monotonic(), up.count
        assert request("POST", admin_of(one) + "/cache/purge", json.dumps(what).encode()).status == 200
        wait_until(lambda: kind(ask(two, text)) == ("miss", None), "the purge in the other gateway")
        assert time.monotonic() - start < 1.0
        assert up.count == calls + 1
        # Stored anew by the second gateway, under the generation that both go by.
        wait_until(lambda: kind(ask(one, text)) == ("hit", "exact"), "the new entry")


@pytest.mark.parametrize("workers", [1, 2])
def test_frozen(new_upstream, new_gateway, open_redis, workers):
    up, redis = Counting(new_upstream), open_redis()
    gateway = new_gateway(shared([up.upstream], redis.url, redis=""), server=f"workers = {workers}")
    wait_redis(gateway)
    redis.freeze()
    assert_once(costs(gateway))
    assert kind(ask(gateway, "in memory")) == ("miss", None)
    assert kind(ask(gateway, "in memory")) == ("hit", "exact")
    assert gateway.get("/readyz").status == 200
    redis.thaw()
    wait_redis(gateway)
    wait_until(lambda: len(changes(gateway)) >= 3, "the line that says so")
    assert changes(gateway)[:3] == ["is connected", "is away", "is connected"]
    assert "is away: no answer in 50 ms" in gateway.stderr


def test_killed_and_restarted(new_upstream, new_gateway, open_redis):
    up, redis = Counting(new_upstream), open_redis()
    gateway = new_gateway(shared([up.upstream], redis.url, redis=""), server="workers = 2")
    wait_redis(gateway)
    redis.kill()
    assert_once(costs(gateway))
    assert gateway.metrics()[UP] == 0
    redis.start()
    wait_redis(gateway)
    metrics = gateway.metrics()
    assert metrics[metric("rolter_redis_reconnects_total", consumer="cache")] == 2
    assert changes(gateway)[:3] == ["is connected", "is away", "is connected"]


def test_absent_at_the_start(new_upstream, new_gateway, open_redis):
    up, redis = Counting(new_upstream), open_redis()
    redis.kill()
    gateway = new_gateway(shared([up.upstream], redis.url))
    assert kind(ask(gateway)) == ("miss", None)
    assert kind(ask(gateway)) == ("hit", "exact")
    redis.start()
    wait_redis(gateway)


def test_slow(new_upstream, new_gateway, open_redis):
    up, redis = Counting(new_upstream), open_redis()
    way = open_redis(redis.port, kind=SlowWay)
    gateway = new_gateway(shared([up.upstream], way.url, redis=""))
    wait_redis(gateway)
    way.delay = 3 * BUDGET_MS / 1000
    assert_once(costs(gateway))
    way.delay = 0
    wait_redis(gateway)


def test_full(new_upstream, new_gateway, open_redis):
    up, redis = Counting(new_upstream), open_redis("--maxmemory-policy", "noeviction")
    gateway = new_gateway(shared([up.upstream], redis.url))
    wait_redis(gateway)
    redis.command("CONFIG", "SET", "maxmemory", "1")
    costs(gateway)
    assert kind(ask(gateway)) == ("miss", None)
    assert kind(ask(gateway)) == ("hit", "exact")
    wait_until(lambda: redis_total(gateway, "not_stored") >= 151, "refused writes")
    gateway.wait_stderr("takes no writes: OOM")
    redis.command("CONFIG", "SET", "maxmemory", "0")
    before = redis_total(gateway, "stored")
    ask(gateway, "room again")
    wait_stored(gateway, before + 1)
    wait_until(lambda: len(changes(gateway)) >= 3, "the line that says so")
    assert changes(gateway) == ["is connected", "takes no writes", "takes writes again"]


def test_foreign_values(new_upstream, new_gateway, open_redis):
    """The wrong type, the original's format, a cut value: misses, counted, and overwritten."""
    up, redis = Counting(new_upstream), open_redis()
    one, two = (new_gateway(shared([up.upstream], redis.url)) for _ in range(2))
    for gateway in (one, two):
        wait_redis(gateway)

    def spoil(key, how):
        if how == "type":
            redis.command("DEL", key)
            redis.command("RPUSH", key, "x")
        elif how == "json":
            redis.command("SET", key, json.dumps({"status": 200, "content_type": "application/json", "body": [123, 125]}))
        else:
            redis.command("SETRANGE", key, 90, "zzzz")

    for how in ("type", "json", "damage"):
        before = set(redis.entries())
        stored, broken, calls = redis_total(one, "stored"), redis_total(two, "broken"), up.count
        ask(one, how)
        wait_stored(one, stored + 1)
        key, = set(redis.entries()) - before
        spoil(key, how)
        again = redis_total(two, "stored")
        assert kind(ask(two, how)) == ("miss", None) and up.count == calls + 2
        assert redis_total(two, "broken") == broken + 1
        wait_stored(two, again + 1)
        assert redis.command("TYPE", key) == "string"


def test_nonsense(new_upstream, new_gateway, open_redis):
    up = Counting(new_upstream)
    way = open_redis(0, garbage=b"HTTP/1.1 400 Bad Request\r\n\r\n", kind=SlowWay)
    gateway = new_gateway(shared([up.upstream], way.url, redis=""))
    assert_once(costs(gateway))
    assert "its replies cannot be read" in gateway.stderr and len(changes(gateway)) < 40


def test_password_and_tls(new_upstream, new_gateway, open_redis, tmp_path):
    up, ca = Counting(new_upstream), Authority(tmp_path)
    cert, key = ca.issue("redis", "IP:127.0.0.1")
    redis = open_redis(password="s3cr3t-word", tls=(cert, key, ca.path))
    url = redis.tls_url
    tls = f'[tls]\nca_bundles = ["{ca.path}"]\n'
    one = new_gateway(shared([up.upstream], url, more=tls))
    # The environment wins over the file.
    two = new_gateway(shared([up.upstream], "redis://127.0.0.1:1", more=tls), env={"ROLTER_REDIS_URL": url})
    for gateway in (one, two):
        wait_redis(gateway)
    stored = redis_total(one, "stored")
    first = ask(one, "over tls")
    wait_stored(one, stored + 1)
    second = ask(two, "over tls")
    assert kind(second) == ("hit", "exact") and first.body == second.body
    wrong = new_gateway(shared([up.upstream], url.replace("s3cr3t", "wr0ng"), more=tls))
    untrusted = new_gateway(shared([up.upstream], url))
    # One line tells why it is away; to a slow machine the handshake's time-out may come first.
    wrong.wait_stderr("it refused the connection .WRONGPASS.|no connection in time")
    untrusted.wait_stderr("certificate|no connection in time")
    for gateway in (one, two, wrong, untrusted):
        assert "s3cr3t" not in gateway.stderr and "wr0ng" not in gateway.stderr
        assert kind(ask(gateway, "anything"))[0] in ("hit", "miss")


def test_cluster_whose_slots_move(new_upstream, new_gateway, open_redis):
    up, cluster = Counting(new_upstream), open_redis(kind=Cluster)
    one, two = (new_gateway(shared([up.upstream], cluster.url, redis="cluster = true\nbudget_ms = 3000")) for _ in range(2))
    for gateway in (one, two):
        wait_redis(gateway)
    mover = cluster.move_slots(1500)
    rounds = 0
    while mover.poll() is None or rounds < 2:
        rounds += 1
        stored = redis_total(one, "stored")
        before = up.count
        bodies = [ask(one, f"{rounds}.{i}").body for i in range(20)]
        wait_stored(one, stored + 20)
        for i, body in enumerate(bodies):
            reply = ask(two, f"{rounds}.{i}")
            assert reply.status == 200 and kind(reply) == ("hit", "exact") and reply.body == body
        assert up.count == before + 20
    assert mover.returncode == 0
    for gateway in (one, two):
        assert changes(gateway) == ["is connected"]
