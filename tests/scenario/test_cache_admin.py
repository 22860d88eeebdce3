# SPDX-License-Identifier: Apache-2.0
"""Purging, statistics, and why something was a miss, on the admin listener."""

import json
import threading

from cache_rig import PATH, Counting, ask, caching, chunk, kind
from harness import chat, request, wait_until
from test_admin import admin_of
from test_cache import bearer, keys
from upstream import chat_reply, fleet


def start(new_upstream, new_gateway, *args, **options):
    up = Counting(new_upstream)
    gateway = new_gateway(caching([up.upstream], *args, more="[admin]\nport = 0\n" + options.pop("more", "")), rows=True)
    return up, gateway, admin_of(gateway)


def purge(admin, **what):
    return request("POST", admin + "/cache/purge", json.dumps(what).encode())


def test_purge(new_upstream, new_gateway):
    up, gateway, admin = start(new_upstream, new_gateway, more=keys(alice="", bob=""))
    rows = {who: gateway.row_of(ask(gateway, headers=bearer(who))) for who in ("alice", "bob")}

    def misses():
        return [who for who in ("alice", "bob") if kind(ask(gateway, headers=bearer(who))) == ("miss", None)]

    assert misses() == []
    for what, want in (({"key": "alice"}, ["alice"]), ({"scope": rows["bob"]["cache_scope"]}, ["bob"]),
                       ({"route": "m"}, ["alice", "bob"]), ({"all": True}, ["alice", "bob"]),
                       ({"key": "nobody"}, []), ({"route": "other"}, [])):
        reply = purge(admin, **what)
        assert reply.status == 200 and reply.json() == {"purged": next(iter(what))}
        assert misses() == want, what
        assert misses() == []
    for wrong in ({}, {"key": 1}, {"all": False}, {"key": "a", "route": "m"}, {"scope": "xyz"}, {"nothing": "x"}):
        assert purge(admin, **wrong).status == 400, wrong
    assert request("POST", admin + "/cache/purge", b"{").status == 400
    assert request("GET", admin + "/cache/purge").status == 405
    stats = request("GET", admin + "/cache/stats").json()
    assert stats["purges"] == 6 and stats["memory"]["entries"] == 2 and stats["flights"] == 0
    assert stats["memory"]["stored"] == up.count and stats["memory"]["bytes"] > 0


def test_purge_reaches_what_is_under_way(new_upstream, new_gateway):
    gate = threading.Event()

    def answer(call):
        n = len(up.calls)
        call.begin_events()
        call.event(chunk(f"number {n}"))
        assert n > 1 or gate.wait(20)
        call.event(chunk(None, "stop"))
        call.event("[DONE]")
        call.end()

    up = new_upstream(answer)
    gateway = new_gateway(caching([up], more="[admin]\nport = 0\n"))
    first = gateway.stream(PATH, chat("x", stream=True))
    first.next()
    assert purge(admin_of(gateway), all=True).status == 200
    with gateway.stream(PATH, chat("x", stream=True)) as s:  # neither joins nor finds it
        assert "number 2" in s.all()[0].data and s.headers["x-rolter-cache"] == "miss"
    gate.set()
    first.all()
    with gateway.stream(PATH, chat("x", stream=True)) as s:
        assert "number 2" in s.all()[0].data and s.headers["x-rolter-cache"] == "hit"


def test_explain(new_upstream, new_gateway):
    _, gateway, admin = start(new_upstream, new_gateway)

    def explain(reply):
        return request("GET", f"{admin}/cache/explain?request_id={reply.headers['x-request-id']}")

    ask(gateway, "x", temperature=0, tools=[{"type": "function", "function": {"name": "f"}}])
    other = ask(gateway, "x", temperature=1, tools=[{"type": "function", "function": {"name": "g"}}])
    told = explain(other).json()
    assert (told["request_id"], told["result"]) == (other.headers["x-request-id"], "miss")
    assert set(told["differs"]) == {"temperature", "tools[0].function.name"}
    bypassed = explain(ask(gateway, "x", headers={"cache-control": "no-store"})).json()
    assert (bypassed["result"], bypassed["reason"]) == ("bypass", "no_store")
    assert request("GET", admin + "/cache/explain?request_id=nothing").status == 404
    assert request("GET", admin + "/cache/explain").status == 400


def test_explain_of_hits(new_upstream, new_gateway):
    up, gateway, admin = start(new_upstream, new_gateway, "ttl_secs = 1000")

    def over(reply):
        gateway.row_of(reply)
        return reply

    def explain(reply):
        return request("GET", f"{admin}/cache/explain?request_id={reply.headers['x-request-id']}").json()

    first = ask(gateway, "x")
    told = explain(over(ask(gateway, "x")))
    assert (told["result"], told["reason"], told["layer"], told["differs"]) == ("hit", "exact", "exact", [])
    entry = told["entry"]
    assert entry["scope"] == gateway.row_of(first)["cache_scope"] and len(entry["key"]) == 64
    assert 0 <= entry["age_secs"] <= 30 and 970 <= entry["expires_in_secs"] <= 1000
    # Of two requests with one id the last one counts.
    named = {"x-request-id": "again"}
    for text, want in (("x", "hit"), ("other", "miss"), ("x", "hit")):
        reply = ask(gateway, text, named)
        wait_until(lambda: explain(reply).get("result") == want, want)


def test_explain_of_followers(new_upstream, new_gateway):
    """What was not found but answered by somebody else's call is no miss."""
    gate = threading.Event()

    def answer(call):
        assert gate.wait(20)
        call.reply(200, chat_reply("x"))

    gateway = new_gateway(caching([new_upstream(answer)], more="[admin]\nport = 0\n"), rows=True)
    admin, replies = admin_of(gateway), []
    threads = [threading.Thread(target=lambda: replies.append(ask(gateway, "x"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    gateway.wait_metric("rolter_inflight_requests", 3)
    gate.set()
    for thread in threads:
        thread.join()
    gateway.wait_rows(3)  # what becomes of a request is known when it is over
    told = sorted((request("GET", f"{admin}/cache/explain?request_id={r.headers['x-request-id']}").json()
                   for r in replies), key=lambda t: t["result"])
    assert [t["result"] for t in told] == ["hit", "hit", "miss"]
    assert {(t["layer"], t["reason"], t["entry"]["age_secs"]) for t in told[:2]} <= {
        ("coalesced", "coalesced", 0), ("exact", "exact", 0)}


def preview(admin, body, **more):
    return request("POST", admin + "/cache/explain", json.dumps({"body": body, **more}).encode())


def test_explain_before_the_request(new_upstream, new_gateway):
    """What would the cache say? Nothing is sent, counted or kept for the answer."""
    up, gateway, admin = start(new_upstream, new_gateway, "ttl_secs = 1000", more=keys(alice="", bob="", carl="cache = false"))
    ask(gateway, "x", bearer("alice"), temperature=0)
    before = request("GET", admin + "/cache/stats").json()

    told = preview(admin, {**chat("x"), "temperature": 0.0, "user": "anybody"}, key="alice").json()
    assert (told["result"], told["reason"], told["layer"]) == ("hit", "exact", "exact")
    assert told["entry"]["key"] == told["key"] and told["entry"]["scope"] == told["scope"]
    other = preview(admin, {**chat("x"), "temperature": 1}, key="alice").json()
    assert (other["result"], other["reason"], other["differs"]) == ("miss", "differs", ["temperature"])
    assert other["key"] != told["key"] and other["scope"] == told["scope"]
    bob = preview(admin, {**chat("x"), "temperature": 0}, key="bob").json()
    assert (bob["result"], bob["differs"]) == ("miss", ["@scope"])
    carl = preview(admin, chat("x"), key="carl").json()
    assert (carl["result"], carl["reason"]) == ("bypass", "key")
    told = preview(admin, {**chat("x"), "temperature": 0}, key="alice", headers={"OpenAI-Beta": "y"}).json()
    assert told["differs"] == ["@header openai-beta"]
    for control, want in (("no-store", ("bypass", "no_store")), ("no-cache", ("miss", "no_cache")),
                          ("max-age=100", ("hit", "exact"))):
        told = preview(admin, {**chat("x"), "temperature": 0}, key="alice", headers={"cache-control": control}).json()
        assert (told["result"], told["reason"]) == want
    stateful = preview(admin, {"model": "m", "input": "x", "previous_response_id": "r"}, key="alice", path="/v1/responses")
    assert (stateful.json()["result"], stateful.json()["reason"]) == ("bypass", "previous_response_id")

    assert request("GET", admin + "/cache/stats").json() == before and up.count == 1
    for wrong in ({}, {"body": []}, {"body": {"model": "none"}, "key": "alice"}, {"body": chat("x")},
                  {"body": chat("x"), "key": "nobody"}, {"body": chat("x"), "key": "alice", "path": "/nothing"},
                  {"body": chat("x"), "key": "alice", "headers": {"a": "b\r\nc: d"}},
                  {"body": chat("x"), "key": "alice", "headers": [1]}):
        assert request("POST", admin + "/cache/explain", json.dumps(wrong).encode()).status == 400, wrong
    assert request("POST", admin + "/cache/explain", b"{").status == 400
    assert request("DELETE", admin + "/cache/explain").status == 405


def test_without_a_cache(new_upstream, new_gateway):
    gateway = new_gateway(fleet([new_upstream()], more="[admin]\nport = 0\n"))
    admin = admin_of(gateway)
    assert {request("GET", admin + p).status for p in ("/cache/stats", "/cache/explain?request_id=x")} == {409}
    assert purge(admin, all=True).status == 409
    wait_until(lambda: kind(ask(gateway)) == (None, None), "an answer")
