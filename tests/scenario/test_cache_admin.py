# SPDX-License-Identifier: Apache-2.0
"""Purging, statistics, and why something was a miss, on the admin listener."""

import json
import threading

from cache_rig import PATH, Counting, ask, caching, chunk, kind
from harness import chat, request, wait_until
from test_admin import admin_of
from test_cache import bearer, keys
from upstream import fleet


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


def test_without_a_cache(new_upstream, new_gateway):
    gateway = new_gateway(fleet([new_upstream()], more="[admin]\nport = 0\n"))
    admin = admin_of(gateway)
    assert {request("GET", admin + p).status for p in ("/cache/stats", "/cache/explain?request_id=x")} == {409}
    assert purge(admin, all=True).status == 409
    wait_until(lambda: kind(ask(gateway)) == (None, None), "an answer")
