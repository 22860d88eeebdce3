# SPDX-License-Identifier: Apache-2.0
"""lmcache_aware: what LMCache endpoints say, well and badly, and where requests go."""

import math
import time

import pytest

from harness import chat, wait_until
from upstream import fleet, metric

CHAT = "/v1/chat/completions"


class Cache:
    """An LMCache endpoint that says what a test wants: set .body (bytes or an object), .status, .stall."""

    def __init__(self, new_upstream, body):
        self.body, self.status, self.stall = body, 200, False
        self.upstream = new_upstream(self.answer)
        self.url = self.upstream.url + "/occupancy"

    def answer(self, call):
        if self.stall:
            call.wait_gone()
        else:
            call.reply(self.status, self.body)

    def polls(self):
        return len(self.upstream.calls)

    def wait_polls(self, n=2):
        """Until <n> more polls have been answered: what the last but one brought has been read then."""
        goal = self.polls() + n
        wait_until(lambda: self.polls() >= goal, f"{n} more polls")


@pytest.fixture
def pool(new_sim, new_upstream, new_gateway):
    """pool(bodies, options): a replica for each body, whose cache says it; gives gateway and caches."""
    def make(bodies, more="", **options):
        caches = [Cache(new_upstream, body) for body in bodies]
        sims = [new_sim() for _ in bodies]
        text = fleet(sims, "lmcache_aware")
        for i, cache in enumerate(caches):
            table = f'[providers.lmcache]\nendpoint = "{cache.url}"\nrefresh_secs = 1\ntimeout_ms = 300\n{more}\n'
            text = text.replace(f'[[providers]]\nname = "p{i + 1}"', f'{table}[[providers]]\nname = "p{i + 1}"') \
                if i + 1 < len(caches) else text.replace("[[routes]]", f"{table}[[routes]]")
        gateway = new_gateway(text, rows=True, **options)
        wait_until(lambda: all(cache.polls() for cache in caches), "the first polls")
        return gateway, caches
    return make


def answered(gateway, n=1):
    wait_until(lambda: gateway.metrics()["rolter_lmcache_refreshes_total"] >= n, f"{n} good answers")


def failed(gateway, n=1):
    wait_until(lambda: gateway.metrics()["rolter_lmcache_refresh_failures_total"] >= n, f"{n} failures")


def pick(gateway, text="x"):
    reply = gateway.post(CHAT, chat(text))
    assert reply.status == 200, reply
    return gateway.row_of(reply)


def picks(gateway, n):
    rows = [pick(gateway) for _ in range(n)]
    return [row["provider"] for row in rows], {row["pick_reason"] for row in rows}


def says(occupancy, **more):
    return {"occupancy": occupancy, **more}


def test_the_emptiest_cache_is_chosen(pool):
    gateway, caches = pool([says(0.9), says(0.25, cache_available=True), says(0.1, cache_available=False)])
    answered(gateway, 3)
    assert picks(gateway, 6) == (["p1"] * 6, {"score"})
    row = pick(gateway)
    assert row["pick_detail"] == \
        "load=0 least=0 lmcache=0.75 score=1.000 runner_up=p0/m runner_up_score=0.350"
    before = gateway.metrics()["rolter_lmcache_decisions_total"]
    pick(gateway)
    assert gateway.metrics()["rolter_lmcache_decisions_total"] == before + 1
    caches[0].body = says(0.05)
    wait_until(lambda: pick(gateway)["provider"] == "p0", "the change")
    age = gateway.metrics()[metric("rolter_cache_telemetry_age_seconds", provider="p0", source="lmcache")]
    assert 0 <= age < 10


def test_occupancies_are_clamped(pool):
    gateway, _ = pool([says(-3), says(0.2)])
    answered(gateway, 2)
    assert "lmcache=1.00 score=1.250" in pick(gateway)["pick_detail"]
    gateway, _ = pool([says(17), says(0.999)])
    answered(gateway, 2)
    row = pick(gateway)
    assert row["provider"] == "p1" and "runner_up_score=0.250" in row["pick_detail"]


BAD = {
    "not json": b"{",
    "no occupancy": {"x": 1},
    "text": says("0.1"),
    "not a number": b'{"occupancy": NaN}',
    "beyond a double": b'{"occupancy": 1e400}',
    "not boolean": says(0.1, cache_available="yes"),
    "null": says(0.1, cache_available=None),
    "huge": b'{"occupancy": 0.1, "x": "' + b"x" * 65536 + b'"}',
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_answer_is_neutral_until_the_next_good_one(pool, bad):
    gateway, caches = pool([says(0.2), says(0.6)])
    answered(gateway, 2)
    assert pick(gateway)["provider"] == "p0"
    caches[0].body = BAD[bad]
    failed(gateway)
    # p0 says nothing any more, p1 keeps its score (R10).
    row = pick(gateway)
    assert row["provider"] == "p1" and "lmcache=0.40" in row["pick_detail"]
    assert gateway.metrics()[metric("rolter_cache_telemetry_age_seconds", provider="p0", source="lmcache")] == math.inf
    gateway.wait_stderr("LMCache of p0 says nothing")
    caches[0].body = says(0.2)
    wait_until(lambda: pick(gateway)["provider"] == "p0", "the good answer")
    gateway.wait_stderr("LMCache of p0 answers again")


def test_one_just_within_the_limit(pool):
    body = b'{"occupancy": 0.1, "x": ""}'
    gateway, _ = pool([body[:-2] + b"x" * (65536 - len(body)) + body[-2:], says(0.6)])
    answered(gateway, 2)
    assert pick(gateway)["provider"] == "p0"


@pytest.mark.parametrize("status", [204, 301, 404, 500])
def test_other_statuses_are_neutral(pool, status):
    gateway, caches = pool([says(0.2), says(0.6)])
    answered(gateway, 2)
    caches[0].status = status
    failed(gateway)
    assert pick(gateway)["provider"] == "p1"


def test_a_slow_cache_times_out_and_nobody_waits(pool):
    gateway, caches = pool([says(0.2), says(0.6)])
    answered(gateway, 2)
    caches[0].stall = caches[1].stall = True
    started = time.monotonic()
    failed(gateway, 2)
    for _ in range(20):  # without their rows, which are written some times a second
        assert gateway.post(CHAT, chat("x")).status == 200
    # The time-out is the poll's own 0.3 s; nothing that a request does takes it.
    assert time.monotonic() - started < 5
    got, reasons = picks(gateway, 6)
    assert sorted(got) == ["p0"] * 3 + ["p1"] * 3 and reasons == {"least_load"}
    assert "lmcache=unknown" in pick(gateway)["pick_detail"]
    before = gateway.metrics()["rolter_lmcache_decisions_total"]
    pick(gateway)
    assert gateway.metrics()["rolter_lmcache_decisions_total"] == before
    caches[0].stall = False
    wait_until(lambda: pick(gateway)["provider"] == "p0" and pick(gateway)["pick_reason"] == "score", "p0's answer")


def test_a_cache_that_is_gone(pool):
    gateway, caches = pool([says(0.2), says(0.6)])
    answered(gateway, 2)
    for cache in caches:
        cache.upstream.close()
    failed(gateway, 2)
    assert sorted(picks(gateway, 4)[0]) == ["p0"] * 2 + ["p1"] * 2


def test_answers_grow_stale(pool):
    """A poll that takes longer than answers live: between the two the provider is neutral."""
    gateway, caches = pool([says(0.2), says(0.6)], 'stale_secs = 1\n')
    gateway.reload_and_wait(gateway.config_path.read_text().replace("timeout_ms = 300", "timeout_ms = 60000"))
    answered(gateway, 3)
    caches[0].stall = True
    failures = gateway.metrics()["rolter_lmcache_refresh_failures_total"]
    wait_until(lambda: pick(gateway)["provider"] == "p1", "p0 being stale")
    assert gateway.metrics()["rolter_lmcache_refresh_failures_total"] == failures
    caches[0].stall = False


def test_the_gauge_of_lmcache_itself(new_sim, new_gateway):
    sims = [new_sim(lmcache_occupancy="0.75"), new_sim(lmcache_occupancy="0.5")]
    text = fleet(sims, "lmcache_aware")
    for i in (1, 0):
        table = (f'[providers.lmcache]\nendpoint = "{sims[i].url}/metrics"\nrefresh_secs = 1\n'
                 'signal = "lmcache_metrics"\n')
        anchor = f'api_base = "{sims[i].url}"\n'
        text = text.replace(anchor, anchor + table)
    gateway = new_gateway(text, rows=True)
    answered(gateway, 2)
    assert pick(gateway)["provider"] == "p1" and "lmcache=0.50" in pick(gateway)["pick_detail"]
    sims[0].faults(lmcache_occupancy="0.1")
    wait_until(lambda: pick(gateway)["provider"] == "p0", "the change")
    sims[0].faults(lmcache_occupancy="NaN")
    failed(gateway)
    assert pick(gateway)["provider"] == "p1"
    # Another gauge of the same text.
    gateway.reload_and_wait(text.replace('signal = "lmcache_metrics"\n',
                                         'signal = "lmcache_metrics"\nmetric = "vllm:kv_cache_usage_perc"\n'))
    wait_until(lambda: "lmcache=1.00" in pick(gateway)["pick_detail"], "the other gauge")


def test_a_full_cache_of_the_simulator(new_sim, new_gateway):
    """End to end with the simulator's own occupancy: what fills up gets less."""
    sims = [new_sim(blocks=64), new_sim(blocks=4096)]
    text = fleet(sims, "lmcache_aware")
    for sim in sims:
        anchor = f'api_base = "{sim.url}"\n'
        text = text.replace(anchor, f'{anchor}[providers.lmcache]\nendpoint = "{sim.url}/lmcache"\nrefresh_secs = 1\n')
    gateway = new_gateway(text, rows=True)
    answered(gateway, 2)
    for sim in sims:
        assert sim.post(CHAT, chat("fill " * 780)).status == 200
    assert sims[0].get("/lmcache").json()["occupancy"] > 0.9
    wait_until(lambda: set(picks(gateway, 4)[0]) == {"p1"}, "the emptier one")


def test_the_token_and_who_does_not_get_it(new_sim, new_upstream, new_gateway):
    cache = Cache(new_upstream, says(0.2))
    sim = new_sim()
    text = fleet([sim], "lmcache_aware").replace(
        "[[routes]]", f'[providers.lmcache]\nendpoint = "{cache.url}"\napi_key_env = "CACHE_KEY"\n[[routes]]')
    gateway = new_gateway(text, env={"CACHE_KEY": "s3cret"}, rows=True)
    answered(gateway)
    call = cache.upstream.calls[0]
    assert call.method == "GET" and call.target == "/occupancy" and call.headers["authorization"] == "Bearer s3cret"
    pick(gateway)
    assert all("s3cret" not in str(request) for request in sim.requests())
    assert "s3cret" not in gateway.stderr


def test_a_reload_that_takes_the_cache_away(pool):
    gateway, caches = pool([says(0.2), says(0.6)])
    answered(gateway, 2)
    assert pick(gateway)["provider"] == "p0"
    text = gateway.config_path.read_text()
    at = text.index("[providers.lmcache]")
    gateway.reload_and_wait(text[:at] + text[text.index("[[providers]]", at):])
    wait_until(lambda: pick(gateway)["provider"] == "p1", "p0 being neutral")
    polls = caches[0].polls()
    caches[1].wait_polls()
    assert caches[0].polls() == polls
