# SPDX-License-Identifier: Apache-2.0
"""Budgets and rate limits: who is refused, how, and what counts."""

import re
import time

import pytest

from harness import chat, messages, wait_until
from upstream import chat_reply, fleet

CHAT = "/v1/chat/completions"
KEYS = ('[[virtual_keys]]\nkey = "sk-a"\nname = "team-a"\n[[virtual_keys]]\nkey = "sk-b"\nname = "team-b"\n'
        '[[model_prices]]\nmodel = "m"\ninput_per_mtok = 1000.0\noutput_per_mtok = 1000.0\n')


def usage(prompt, completion):
    def answer(call):
        call.reply(200, {**chat_reply("x"), "usage": {"prompt_tokens": prompt, "completion_tokens": completion,
                                                      "total_tokens": prompt + completion}})
    return answer


def limited(upstream, limits):
    return fleet([upstream]) + KEYS + limits


def limit(scope, name, **values):
    kind = "budgets" if "limit_usd" in values else "rate_limits"
    return f'[[{kind}]]\nscope = "{scope}"\nid = "{name}"\n' + "".join(
        f"{k} = {v!r}\n".replace("'", '"') for k, v in values.items())


def ask(gateway, key="sk-a"):
    return gateway.post(CHAT, chat("x"), {"authorization": f"Bearer {key}"})


def not_at_the_end_of_a_minute():
    """A window slides; within one minute what is left of it is exact."""
    while time.time() % 60 > 50:
        time.sleep(0.2)


@pytest.mark.parametrize("scope,name", [("key", "team-a"), ("route", "m")])
def test_requests_per_minute(new_upstream, new_gateway, scope, name):
    upstream = new_upstream(usage(10, 10))
    gateway = new_gateway(limited(upstream, limit(scope, name, rpm=3)), rows=True)
    not_at_the_end_of_a_minute()
    assert [ask(gateway).status for _ in range(3)] == [200] * 3
    refused = ask(gateway)
    assert refused.status == 429 and 1 <= int(refused.headers["retry-after"]) <= 120
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert refused.json()["error"]["type"] == "rate_limit_error"
    # A refused request uses nothing, neither of the limit nor of the upstream.
    assert ask(gateway).status == 429 and len(upstream.calls) == 3
    assert ask(gateway, "sk-b").status == (200 if scope == "key" else 429)
    row = gateway.row_of(refused)
    assert row["status"] == 429 and row["error"] == "rate_limit_exceeded" and row["total_tokens"] == 0
    assert gateway.metrics()["rolter_rate_limit_blocks_total"] == (2 if scope == "key" else 3)


def test_tokens_per_minute(new_upstream, new_gateway):
    gateway = new_gateway(limited(new_upstream(usage(300, 200)), limit("key", "team-a", tpm=1000)))
    not_at_the_end_of_a_minute()
    for _ in range(2):
        assert ask(gateway).status == 200
    wait_until(lambda: ask(gateway).status == 429)
    assert ask(gateway, "sk-b").status == 200


@pytest.mark.parametrize("period", ["monthly", "daily", "total"])
@pytest.mark.parametrize("scope,name", [("key", "team-a"), ("route", "m")])
def test_budget(new_upstream, new_gateway, scope, name, period):
    upstream = new_upstream(usage(100, 100))  # 0.2 USD a request
    gateway = new_gateway(limited(upstream, limit(scope, name, limit_usd=0.5, period=period)), rows=True)
    for _ in range(3):
        reply = ask(gateway)
        assert reply.status == 200 and gateway.row_of(reply)["cost_usd"] == pytest.approx(0.2)
    refused = ask(gateway)
    assert refused.status == 402 and "retry-after" not in refused.headers
    assert refused.json()["error"]["code"] == refused.json()["error"]["type"] == "insufficient_quota"
    assert gateway.row_of(refused)["error"] == "insufficient_quota" and len(upstream.calls) == 3
    assert gateway.metrics()["rolter_budget_blocks_total"] == 1
    assert ask(gateway, "sk-b").status == (200 if scope == "key" else 402)


def test_a_spent_budget_stays_spent_over_reloads(new_upstream, new_gateway):
    upstream = new_upstream(usage(1000, 1000))
    text = limited(upstream, limit("key", "team-a", limit_usd=1.0))
    gateway = new_gateway(text)
    assert ask(gateway).status == 200
    wait_until(lambda: ask(gateway).status == 402)
    gateway.reload(limited(upstream, ""))
    gateway.wait_version(2)
    assert ask(gateway).status == 200  # nobody limits it now
    gateway.reload(text)
    gateway.wait_version(3)
    assert ask(gateway).status == 402
    gateway.reload(limited(upstream, limit("key", "team-a", limit_usd=100.0)))
    gateway.wait_version(4)
    assert ask(gateway).status == 200


def test_failures_cost_requests_but_no_tokens(new_upstream, new_gateway):
    upstream = new_upstream(lambda call: call.reply(400, {"error": {"message": "no"}}))
    gateway = new_gateway(limited(upstream, limit("key", "team-a", rpm=2, tpm=1) +
                                  limit("key", "team-a", limit_usd=0.000001)))
    not_at_the_end_of_a_minute()
    assert [ask(gateway).status for _ in range(3)] == [400, 400, 429]


def test_anthropic_callers_get_anthropic_errors(new_upstream, new_gateway):
    gateway = new_gateway(limited(new_upstream(usage(1, 1)), limit("route", "m", rpm=1)))
    not_at_the_end_of_a_minute()
    headers = {"x-api-key": "sk-a"}
    assert gateway.post("/v1/messages", messages("x"), headers).status == 200
    refused = gateway.post("/v1/messages", messages("x"), headers)
    assert refused.status == 429 and refused.json()["type"] == "error"
    assert refused.json()["error"]["type"] == "rate_limit_error"


def test_streams_are_charged(new_upstream, new_gateway):
    def stream(call):
        call.begin_events()
        call.chunk(b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n')
        call.chunk(b'data: {"choices":[],"usage":{"prompt_tokens":600,"completion_tokens":600,"total_tokens":1200}}\n\n')
        call.chunk(b"data: [DONE]\n\n")
        call.end()
    gateway = new_gateway(limited(new_upstream(stream), limit("key", "team-a", limit_usd=1.0)))
    body = chat("x", stream=True)
    assert gateway.post(CHAT, body, {"authorization": "Bearer sk-a"}).status == 200
    wait_until(lambda: ask(gateway).status == 402)


@pytest.mark.parametrize("text,says", [
    (limit("key", "nobody", rpm=1), "there is no virtual key with the name"),
    (limit("route", "nothing", rpm=1), "there is no route with the model"),
    (limit("key", "team-a"), 'needs "rpm" or "tpm"'),
    (limit("key", "team-a", limit_usd=0.0), "must be above 0"),
])
def test_bad_limits_are_named(new_upstream, new_gateway, text, says):
    upstream = new_upstream()
    gateway = new_gateway(limited(upstream, ""))
    gateway.reload(limited(upstream, text))
    gateway.wait_stderr(says)


# ---- several gateways

def shared(redis, upstream, limits):
    return limited(upstream, limits) + f'[redis]\nurl = "{redis.url}"\n'


def test_gateways_share_a_budget(new_redis, new_upstream, new_gateway):
    redis, upstream = new_redis(), new_upstream(usage(300, 300))
    text = shared(redis, upstream, limit("key", "team-a", limit_usd=1.0, period="daily"))
    one, two = new_gateway(text), new_gateway(text)
    assert ask(one).status == ask(two).status == 200  # 1.2 USD together
    wait_until(lambda: [redis.command("GET", k) for k in redis.keys()] == ["1200000000"])
    wait_until(lambda: ask(one).status == 402 and ask(two).status == 402)
    # One that starts now hears of it, too.
    three = new_gateway(text)
    wait_until(lambda: len(re.findall(r" cmd=(?:get|exec) ", redis.command("CLIENT", "LIST"))) == 3)
    before = len(upstream.calls)
    wait_until(lambda: ask(three).status == 402)
    assert len(upstream.calls) - before <= 1
    wait_until(lambda: [int(redis.command("GET", k)) for k in redis.keys()] == [len(upstream.calls) * 600_000_000])
    (key,) = redis.keys()
    assert key.startswith("rolter:cache:limits:usd:key:") and "team" not in key
    assert 0 < redis.command("TTL", key) <= 2 * 86400


def test_gateways_share_requests_per_minute(new_redis, new_upstream, new_gateway):
    redis, upstream = new_redis(), new_upstream(usage(1, 1))
    text = shared(redis, upstream, limit("route", "m", rpm=4))
    one, two = new_gateway(text), new_gateway(text)
    not_at_the_end_of_a_minute()
    assert [ask(one).status for _ in range(3)] == [200] * 3
    wait_until(lambda: [int(redis.command("GET", k)) for k in redis.keys("*requests*")] == [3])
    assert ask(two).status == 200
    wait_until(lambda: [int(redis.command("GET", k)) for k in redis.keys("*requests*")] == [4])
    wait_until(lambda: ask(one).status == 429)
    assert ask(two).status == 429


def test_limits_without_redis_go_on(new_redis, new_upstream, new_gateway):
    redis, upstream = new_redis(), new_upstream(usage(300, 300))
    gateway = new_gateway(shared(redis, upstream, limit("key", "team-a", limit_usd=1.0)))
    assert ask(gateway).status == 200
    wait_until(lambda: redis.keys() and int(redis.command("GET", redis.keys()[0])) == 600_000_000)
    redis.freeze()
    assert ask(gateway).status == 200
    wait_until(lambda: ask(gateway).status == 402)
    spent = len(upstream.calls)
    redis.thaw()
    # What was spent meanwhile is told as soon as it answers again.
    wait_until(lambda: int(redis.command("GET", redis.keys()[0])) == spent * 600_000_000)
    redis.restart()  # empty: nobody else knows what was spent
    assert ask(gateway).status in (200, 402)
    assert ask(gateway, "sk-b").status == 200
