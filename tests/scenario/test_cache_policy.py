# SPDX-License-Identifier: Apache-2.0
"""The delivery policy and the response cache together: whatever a reply's source, one policy, one bill."""

import threading
import time

import pytest

from cache_rig import PRICES, caching, kind
from harness import chat, messages, wait_until
from services import Sanitizer, Service
from test_policy import CHAT, COMPLETIONS, MESSAGES, guardrails, pii, plugin, rule
from upstream import chat_reply, dead_port, fleet, metric, wait_idle

SECRET = "tell a.b@example.org now"


def body_of(path, text="hello"):
    if path == COMPLETIONS:
        return {"model": "m", "prompt": text}
    return messages(text) if path == MESSAGES else chat(text)


def reply_of(path, text):
    if path == CHAT:
        return chat_reply(text)
    if path == COMPLETIONS:
        return {"id": "c", "object": "text_completion", "model": "m",
                "choices": [{"index": 0, "text": text, "finish_reason": "stop", "logprobs": None}],
                "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}
    return {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
            "stop_sequence": None, "content": [{"type": "text", "text": text}],
            "usage": {"input_tokens": 3, "output_tokens": 2}}


@pytest.fixture
def services():
    made = []

    def make(judge):
        made.append(Service(judge))
        return made[-1]
    yield make
    for one in made:
        one.close()


def louder(asked):
    import json
    return {"action": "transform", "content": json.loads(json.dumps(asked["content"]).replace("tell", "shout"))}


DEAD = dead_port()  # the socket keeps the port


def policies(services, name):
    return {
        "pass": lambda: plugin(services(lambda asked: {"action": "allow"}), "p", "post_response"),
        "block": lambda: guardrails({**rule("mail", "post_call", "block"), "builtin": "email"}),
        "redact": lambda: guardrails({**rule("mail", "post_call", "redact"), "builtin": "email"}),
        "transform": lambda: plugin(services(louder), "p", "post_response"),
        "closed": lambda: plugin(f"http://127.0.0.1:{DEAD[1]}/p", "p", "post_response", failure_mode="fail_closed"),
        "open": lambda: plugin(f"http://127.0.0.1:{DEAD[1]}/p", "p", "post_response", failure_mode="fail_open"),
        "garbage": lambda: plugin(services(lambda asked: b"<html>"), "p", "post_response", failure_mode="fail_closed"),
    }[name]()


REFUSING = {"block", "closed", "garbage"}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, MESSAGES])
@pytest.mark.parametrize("policy", ["pass", "block", "redact", "transform", "closed", "open", "garbage"])
def test_every_source_delivers_what_goes_out_uncached(new_upstream, new_gateway, services, path, policy):
    gate = threading.Event()
    gate.set()

    def answer(call):
        assert gate.wait(20)
        call.reply(200, reply_of(path, SECRET))

    up = new_upstream(answer)
    rules = policies(services, policy)
    plain = new_gateway(fleet([up], more=rules + PRICES), rows=True)
    cached = new_gateway(caching([up], "ttl_secs = 1\nstale_while_revalidate_secs = 60", more=rules + PRICES), rows=True)
    want = plain.post(path, body_of(path))
    assert (want.status == 403) == (policy in REFUSING)

    def same(reply):
        assert reply.status == want.status
        if reply.status == 200:
            assert reply.body == want.body
        else:
            assert reply.json()["error"]["message"] == want.json()["error"]["message"]
            assert kind(reply) == (None, None) and "age" not in reply.headers
        return cached.row_of(reply)

    # A miss and one that follows it.
    gate.clear()
    calls, got = len(up.calls), []
    threads = [threading.Thread(target=lambda: got.append(cached.post(path, body_of(path)))) for _ in range(2)]
    [t.start() for t in threads]
    wait_until(lambda: cached.metrics()["rolter_inflight_requests"] == 2, "both")
    gate.set()
    [t.join() for t in threads]
    rows = [same(reply) for reply in got]
    assert len(up.calls) == calls + 1
    assert sorted(r["cache_hit"] for r in rows) == [0, 1]
    hit = cached.post(path, body_of(path))
    rows.append(same(hit))
    time.sleep(1.1)
    stale = cached.post(path, body_of(path))
    rows.append(same(stale))
    wait_until(lambda: len(up.calls) == calls + 2, "the renewal")
    full = plain.row_of(want)
    assert full["total_tokens"] == 5 and full["cost_usd"] == 7
    for row in rows:
        assert row["withheld"] == (policy in REFUSING) and row["error"] == full["error"]
        spent = (row["total_tokens"], row["cost_usd"])
        assert spent == ((0, 0) if row["cache_hit"] else (5, 7))
    wait_idle(cached)


def test_rule_installed_later_reaches_stored_entries(new_upstream, new_gateway):
    up = new_upstream(lambda call: call.reply(200, reply_of(CHAT, SECRET)))
    config = caching([up], more=PRICES)
    gateway = new_gateway(config, rows=True)
    assert kind(gateway.post(CHAT, body_of(CHAT))) == ("miss", None)
    gateway.reload_and_wait(config + guardrails({**rule("mail", "post_call", "block"), "builtin": "email"}))
    refused = gateway.post(CHAT, body_of(CHAT))
    assert refused.status == 403 and len(up.calls) == 1
    row = gateway.row_of(refused)
    assert (row["cache_hit"], row["withheld"], row["cost_usd"], row["total_tokens"]) == (1, 1, 0, 0)
    assert row["error"].startswith("guardrail_blocked")
    gateway.reload_and_wait(config)
    assert kind(gateway.post(CHAT, body_of(CHAT))) == ("hit", "exact")
    assert gateway.metrics()["rolter_withheld_responses_total"] == 1


def test_each_gets_the_own_values_back(new_upstream, new_gateway):
    """Requests that are equal once they are sanitised share an entry; nothing restored is in it."""
    def answer(call):
        text = call.json()["messages"][0]["content"]
        assert "@" not in text
        call.reply(200, chat_reply(f"You said: {text}"))

    with Sanitizer() as sanitizer:
        up = new_upstream(answer)
        gateway = new_gateway(caching([up], more=pii(sanitizer, restoration="trusted_downstream")))
        for who, want in (("alice@example.org", "miss"), ("bob@example.org", "hit"), ("alice@example.org", "hit")):
            reply = gateway.post(CHAT, chat(f"I am {who}"))
            assert reply.headers["x-rolter-cache"] == want
            assert reply.json()["choices"][0]["message"]["content"] == f"You said: I am {who}"
        assert len(up.calls) == 1


def test_limits_and_request_policy_come_before_the_lookup(new_upstream, new_gateway):
    up = new_upstream(lambda call: call.reply(200, reply_of(CHAT, "x")))
    config = caching([up])
    gateway = new_gateway(config)
    gateway.post(CHAT, body_of(CHAT, SECRET))
    gateway.reload_and_wait(config + guardrails({**rule("mail", "pre_call", "block"), "builtin": "email"}))
    assert gateway.post(CHAT, body_of(CHAT, SECRET)).status == 400
    gateway.reload_and_wait(config + '[[rate_limits]]\nscope = "route"\nid = "m"\nrpm = 1\n')
    assert kind(gateway.post(CHAT, body_of(CHAT, SECRET))) == ("hit", "exact")
    assert gateway.post(CHAT, body_of(CHAT, SECRET)).status == 429
