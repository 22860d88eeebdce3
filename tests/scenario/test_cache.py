# SPDX-License-Identifier: Apache-2.0
"""The response cache, exact layer, as clients see it."""

import json
import threading
import time

import pytest

from cache_rig import PATH, PRICES, Counting, ask, caching, chunk, kind, stream_answer
from harness import chat, messages, wait_until
from upstream import chat_reply, fleet, metric, wait_idle


def test_hit_is_the_miss(new_upstream, new_gateway):
    up = Counting(new_upstream)
    gateway = new_gateway(caching([up.upstream], more=PRICES), rows=True)
    first, second = ask(gateway), ask(gateway)
    assert (kind(first), kind(second)) == (("miss", None), ("hit", "exact"))
    assert first.body == second.body and up.count == 1
    assert second.headers["content-type"] == "application/json"
    assert int(second.headers["age"]) <= 5
    assert second.headers["cache-status"].startswith("rolter; hit; ttl=")
    assert first.headers["cache-status"] == "rolter; fwd=uri-miss"
    for name in ("x-rolter-provider", "x-rolter-model"):
        assert second.headers[name] == first.headers[name]
    assert second.headers["x-request-id"] != first.headers["x-request-id"]
    miss, hit = gateway.row_of(first), gateway.row_of(second)
    assert (miss["cache_hit"], miss["cache_reason"], miss["total_tokens"]) == (0, "not_found", 5)
    assert (hit["cache_hit"], hit["cache_reason"], hit["total_tokens"], hit["cost_usd"]) == (1, "exact", 0, 0)
    assert (hit["saved_tokens"], hit["saved_cost_usd"], hit["provider"]) == (5, miss["cost_usd"], "p0")
    assert hit["saved_cost_usd"] == 7 and hit["attempts"] == 0 and hit["usage_unknown"] == 0
    metrics = gateway.metrics()
    assert metrics[metric("rolter_cache_requests_total", model="m", kind="exact", result="hit")] == 1
    assert metrics[metric("rolter_cache_requests_total", model="m", kind="none", result="miss")] == 1
    assert metrics["rolter_cache_hits_total"] == 1 and metrics["rolter_cache_misses_total"] == 1
    assert metrics["rolter_cache_stores_total"] == 1
    assert metrics[metric("rolter_tokens_total", model="m", kind="prompt")] == 3  # the hit used none


def test_off_without_the_switch_or_the_route(new_upstream, new_gateway):
    up = Counting(new_upstream)
    for config in (fleet([up.upstream], more="[cache]\nenabled = true\n"),
                   fleet([up.upstream], more="[routes.cache]\n"),
                   fleet([up.upstream], more="[routes.cache]\nenabled = false\n[cache]\nenabled = true\n")):
        gateway = new_gateway(config)
        before = up.count
        assert kind(ask(gateway)) == kind(ask(gateway)) == (None, None)
        assert up.count == before + 2


def test_what_splits_and_what_does_not(new_upstream, new_gateway):
    up = Counting(new_upstream)
    gateway = new_gateway(caching([up.upstream]))
    body = chat("hello", temperature=0.5, user="a", metadata={"x": 1})
    assert kind(gateway.post(PATH, body)) == ("miss", None)
    same = [dict(reversed(list(body.items()))), {**body, "user": "b", "metadata": {}}, {**body, "stream": False},
            json.dumps(body, indent=3).replace("0.5", "5e-1")]
    for other in same:
        assert kind(gateway.post(PATH, other)) == ("hit", "exact"), other
    others = [{**body, "seed": 1}, {**body, "temperature": 0}, {**body, "max_tokens": 9}, {**body, "tools": []},
              {**body, "reasoning_effort": "low"}, {**body, "response_format": {"type": "json_object"}},
              {**body, "brand_new_member": 1}, chat("hello "), {**body, "n": 2}]
    for other in others:
        before = up.count
        reply = gateway.post(PATH, other)
        assert kind(reply) == ("miss", None) and up.count == before + 1, other
    # What a header that goes up says, and the query, count as well.
    for headers, path in (({"openai-beta": "x"}, PATH), ({}, PATH + "?a=1")):
        assert kind(gateway.post(path, body, headers)) == ("miss", None)
        assert kind(gateway.post(path, body, headers)) == ("hit", "exact")
    assert kind(gateway.post(PATH, body, {"x-other": "1", "accept": "*/*"})) == ("hit", "exact")


def test_streams_and_whole_replies_never_serve_each_other(new_upstream, new_gateway):
    up = Counting(new_upstream)
    gateway = new_gateway(caching([up.upstream]))
    assert kind(ask(gateway)) == ("miss", None)
    with gateway.stream(PATH, chat("hello", stream=True)) as s:
        first = s.all()
        assert s.headers["x-rolter-cache"] == "miss"
    with gateway.stream(PATH, chat("hello", stream=True)) as s:
        again = s.all()
        assert s.headers["x-rolter-cache"] == "hit" and s.headers["content-type"].startswith("text/event-stream")
        assert s.complete
    assert [(e.type, e.data) for e in first] == [(e.type, e.data) for e in again]
    assert kind(ask(gateway)) == ("hit", "exact") and up.count == 2


def test_replayed_events_are_those_that_came(new_upstream, new_gateway):
    """Types, ids, several data lines, unknown events, UTF-8: as they were. Cuts do not matter."""
    text = ("event: a\nid: 7\ndata: " + json.dumps(chunk("é\u2028x")) + "\n\n: ping\n\ndata: "
            + json.dumps(chunk(None, "stop")) + "\n\ndata: [DONE]\n\n").encode()

    def answer(call):
        call.begin_events()
        for i in range(0, len(text), 7):
            call.chunk(text[i:i + 7])
        call.end()

    up = new_upstream(answer)
    gateway = new_gateway(caching([up]))
    events = []
    for _ in range(2):
        with gateway.stream(PATH, chat("x", stream=True)) as s:
            events.append([(e.type, e.data) for e in s.all()])
            state = s.headers["x-rolter-cache"]
    assert state == "hit" and events[0] == events[1] and len(events[0]) == 3 and len(up.calls) == 1


@pytest.mark.parametrize("texts,finish,done,reason", [
    (["half"], None, False, "no_terminal_event"),
    (["half"], None, True, "unfinished"),
    (["cut"], "length", True, "length"),
    (["bad"], "content_filter", True, "content_filter"),
    (["", " "], "stop", True, "empty"),
])
def test_streams_that_are_not_stored(new_upstream, new_gateway, texts, finish, done, reason):
    up = new_upstream(lambda call: stream_answer(call, texts, finish, done))
    gateway = new_gateway(caching([up]))
    for n in (1, 2):
        with gateway.stream(PATH, chat("x", stream=True)) as s:
            s.all()
            assert s.complete and s.headers["x-rolter-cache"] == "miss"
        assert len(up.calls) == n
    stored = {k: v for k, v in gateway.metrics().items() if k.startswith("rolter_cache_not_stored_total")}
    assert sum(stored.values()) == 2 and stored.get(metric("rolter_cache_not_stored_total", reason=reason)) == 2, stored


def test_length_cut_replies_where_the_route_keeps_them(new_upstream, new_gateway):
    up = new_upstream(lambda call: stream_answer(call, ["cut"], "length"))
    gateway = new_gateway(caching([up], "store_truncated = true"))
    for want in ("miss", "hit"):
        with gateway.stream(PATH, chat("x", stream=True)) as s:
            s.all()
            assert s.headers["x-rolter-cache"] == want


def test_stream_that_breaks_is_not_stored(new_upstream, new_gateway):
    def answer(call):
        call.begin_events()
        call.event(chunk("half"))
        call.event(chunk(None, "stop"))
        call.event("[DONE]")
        call.close()  # without the last chunk

    up = new_upstream(answer)
    gateway = new_gateway(caching([up]))
    for n in (1, 2):
        with gateway.stream(PATH, chat("x", stream=True)) as s:
            s.all()
            assert not s.complete
        assert len(up.calls) == n


def test_client_that_leaves_stores_nothing(new_upstream, new_gateway):
    gone = threading.Event()

    def answer(call):
        if len(up.calls) > 1:
            return stream_answer(call, ["whole"])
        call.begin_events()
        call.event(chunk("half"))
        call.wait_gone()
        gone.set()

    up = new_upstream(answer)
    gateway = new_gateway(caching([up]), rows=True)
    s = gateway.stream(PATH, chat("x", stream=True))
    s.next()
    s.close()
    assert gone.wait(10)
    gateway.wait_rows(1)
    with gateway.stream(PATH, chat("x", stream=True)) as s:
        s.all()
        assert s.headers["x-rolter-cache"] == "miss"
    wait_idle(gateway)


@pytest.mark.parametrize("reply,reason", [
    (dict(status=201, body=chat_reply("x")), "status"),
    (dict(status=400, body={"error": {}}), "status"),
    (dict(body=chat_reply("x"), headers=[("Content-Encoding", "gzip")]), "encoded"),
    (dict(body=chat_reply("x"), headers=[("Content-Type", "text/plain")]), "content_type"),
    (dict(body={"error": {"message": "no"}}), "error"),
    (dict(body=b'{"half":'), "unreadable"),
    (dict(body={**chat_reply("x"), "choices": []}), None),
])
def test_replies_that_are_not_stored(new_upstream, new_gateway, reply, reason):
    up = new_upstream(lambda call: call.reply(**reply))
    gateway = new_gateway(caching([up]))
    for n in (1, 2):
        got = ask(gateway)
        assert kind(got) == ("miss", None) and len(up.calls) == n
        assert got.status == reply.get("status", 200)
    stored = {k: v for k, v in gateway.metrics().items() if k.startswith("rolter_cache_not_stored_total")}
    assert sum(stored.values()) == 2
    if reason:
        assert stored.get(metric("rolter_cache_not_stored_total", reason=reason)) == 2, stored


def test_reply_that_ends_with_the_connection_is_not_stored(new_upstream, new_gateway):
    def answer(call):
        call.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + json.dumps(chat_reply("x")).encode())
        call.close()

    up = new_upstream(answer)
    gateway = new_gateway(caching([up]))
    assert kind(ask(gateway)) == kind(ask(gateway)) == ("miss", None) and len(up.calls) == 2


def test_nothing_of_the_transport_is_replayed(new_upstream, new_gateway):
    fields = [("Set-Cookie", "a=b"), ("x-ratelimit-remaining-requests", "1"), ("x-request-id", "up-1"),
              ("openai-processing-ms", "3"), ("Content-Type", "application/json; charset=utf-8")]
    up = new_upstream(lambda call: call.reply(200, chat_reply("x"), fields))
    gateway = new_gateway(caching([up]))
    first, second = ask(gateway), ask(gateway)
    assert first.headers["x-ratelimit-remaining-requests"] == "1" and kind(second) == ("hit", "exact")
    names = {name.lower() for name, _ in second.headers.pairs}
    assert names == {"x-request-id", "content-type", "content-length", "x-rolter-provider", "x-rolter-target",
                     "x-rolter-model", "x-rolter-cache", "x-rolter-cache-kind", "age", "cache-status"}
    assert second.headers["content-type"] == "application/json; charset=utf-8"


def test_too_large_streams_on_and_is_not_stored(new_upstream, new_gateway):
    texts = ["x" * 1000] * 50
    up = new_upstream(lambda call: stream_answer(call, texts))
    gateway = new_gateway(caching([up], cache="max_entry_bytes = 20000"))
    for n in (1, 2):
        with gateway.stream(PATH, chat("x", stream=True)) as s:
            assert len(s.all()) == 52 and s.complete
        assert len(up.calls) == n
    metrics = gateway.metrics()
    assert metrics["rolter_cache_too_large_total"] == 2
    assert metrics[metric("rolter_cache_not_stored_total", reason="too_large")] == 2


def test_request_controls(new_upstream, new_gateway):
    up = Counting(new_upstream)
    gateway = new_gateway(caching([up.upstream]))

    def with_control(value):
        return ask(gateway, headers={"cache-control": value})

    refused = with_control("only-if-cached")
    assert refused.status == 504 and refused.json()["error"]["code"] == "not_cached"
    assert kind(refused) == (None, None)
    stored_nothing = with_control("no-store")
    assert kind(stored_nothing) == ("bypass", None)
    assert stored_nothing.headers["cache-status"] == "rolter; fwd=bypass; detail=no_store"
    assert kind(ask(gateway)) == ("miss", None) and up.count == 2
    assert kind(with_control("only-if-cached")) == ("hit", "exact")
    afresh = with_control("no-cache")
    assert kind(afresh) == ("miss", None) and afresh.headers["cache-status"] == "rolter; fwd=request"
    assert up.count == 3 and ask(gateway).body == afresh.body  # stored afresh
    assert kind(with_control("max-age=100")) == ("hit", "exact")
    assert kind(with_control("max-age=0")) == ("miss", None)
    assert kind(with_control("foo, max-age=junk, no-transform")) == ("hit", "exact")
    assert with_control("no-store, only-if-cached").status == 504
    metrics = gateway.metrics()
    assert metrics[metric("rolter_cache_requests_total", model="m", kind="none", result="bypass")] == 2


def test_entry_ends_with_its_life(new_upstream, new_gateway):
    up = Counting(new_upstream)
    gateway = new_gateway(caching([up.upstream], "ttl_secs = 1"))
    ask(gateway)
    assert kind(ask(gateway)) == ("hit", "exact")
    wait_until(lambda: kind(ask(gateway, headers={"cache-control": "only-if-cached"})) == (None, None), "its end")
    assert kind(ask(gateway)) == ("miss", None) and up.count == 2


def keys(**flags):
    return "".join(f'[[virtual_keys]]\nkey = "{k}"\nname = "{k}"\n{v}\n' for k, v in flags.items())


def bearer(key):
    return {"authorization": f"Bearer {key}"}


def test_scopes(new_upstream, new_gateway):
    up = Counting(new_upstream)
    gateway = new_gateway(caching([up.upstream], more=keys(alice="", bob="")))
    assert kind(ask(gateway, headers=bearer("alice"))) == ("miss", None)
    assert kind(ask(gateway, headers=bearer("bob"))) == ("miss", None)
    assert kind(ask(gateway, headers=bearer("alice"))) == ("hit", "exact")
    gateway = new_gateway(caching([up.upstream], 'scope = "route"', more=keys(alice="", bob="")))
    assert kind(ask(gateway, headers=bearer("alice"))) == ("miss", None)
    assert kind(ask(gateway, headers=bearer("bob"))) == ("hit", "exact")


def test_keys_that_force_it_on_or_off(new_upstream, new_gateway):
    up = Counting(new_upstream)
    more = keys(on="cache = true", off="cache = false", plain="")
    gateway = new_gateway(fleet([up.upstream], more="[cache]\nenabled = true\n" + more))
    assert kind(ask(gateway, headers=bearer("on"))) == ("miss", None)
    assert kind(ask(gateway, headers=bearer("on"))) == ("hit", "exact")
    assert kind(ask(gateway, headers=bearer("plain"))) == kind(ask(gateway, headers=bearer("off"))) == (None, None)
    direct = [gateway.post(PATH, chat("x", model="p0/m"), bearer("on")) for _ in range(2)]
    assert [kind(r) for r in direct] == [("miss", None), ("hit", "exact")]
    assert direct[1].headers["x-rolter-target"] == "m"
    gateway = new_gateway(caching([up.upstream], more=more))
    refused = ask(gateway, headers=bearer("off"))
    assert kind(refused) == ("bypass", None) and refused.headers["cache-status"].endswith("detail=key")


def test_revoked_key_gets_no_hit(new_upstream, new_gateway):
    up = Counting(new_upstream)
    config = caching([up.upstream], 'scope = "route"', more=keys(alice="", bob=""))
    gateway = new_gateway(config)
    ask(gateway, headers=bearer("alice"))
    assert kind(ask(gateway, headers=bearer("bob"))) == ("hit", "exact")
    gateway.reload_and_wait(config.replace('name = "bob"\n', 'name = "bob"\ndisabled = true\n'))
    assert ask(gateway, headers=bearer("bob")).status == 401


def test_reload_keeps_entries_unless_the_target_is_another(new_upstream, new_gateway):
    up = Counting(new_upstream)
    config = caching([up.upstream])
    gateway = new_gateway(config)
    ask(gateway)
    gateway.reload_and_wait(config + '\n[retry]\nmax_retries = 1\n')
    assert kind(ask(gateway)) == ("hit", "exact")
    other = config.replace('{ provider = "p0" }', '{ provider = "p0", model = "other" }')
    gateway.reload_and_wait(other)
    assert kind(ask(gateway)) == ("miss", None)
    params = config.replace('[routes.cache]', '[routes.params]\ntop_p = 0.5\n[routes.cache]')
    gateway.reload_and_wait(params)
    assert kind(ask(gateway)) == ("miss", None)
    gateway.reload_and_wait(config)
    assert kind(ask(gateway)) == ("hit", "exact") and up.count == 3


def test_cut_replies_are_not_served_once_the_route_keeps_none(new_upstream, new_gateway):
    def answer(call):
        reply = chat_reply(f"number {len(up.calls)}")
        reply["choices"][0]["finish_reason"] = "length"
        call.reply(200, reply)
    up = new_upstream(answer)
    gateway = new_gateway(caching([up], "store_truncated = true"), rows=True)
    ask(gateway)
    assert kind(ask(gateway)) == ("hit", "exact")
    gateway.reload_and_wait(caching([up]))
    fresh = ask(gateway)
    assert kind(fresh) == ("miss", None) and "number 2" in fresh.text()
    assert gateway.row_of(fresh)["cache_reason"] == "truncated"


def test_a_null_that_keeps_a_default_away_splits(new_upstream, new_gateway):
    up = Counting(new_upstream)
    gateway = new_gateway(caching([up.upstream]).replace("[routes.cache]", "[routes.params]\ntemperature = 0.2\n[routes.cache]"))
    assert kind(ask(gateway)) == ("miss", None)
    assert kind(ask(gateway, temperature=None)) == ("miss", None)
    assert [call.json().get("temperature") for call in up.upstream.calls] == [0.2, None]
    assert kind(ask(gateway, top_p=None)) == ("hit", "exact")
    assert kind(ask(gateway, temperature=None)) == ("hit", "exact") and up.count == 2


def test_stale_while_revalidate(new_upstream, new_gateway):
    up = Counting(new_upstream)
    gateway = new_gateway(caching([up.upstream], "ttl_secs = 1\nstale_while_revalidate_secs = 60"), rows=True)
    first = ask(gateway)
    time.sleep(1.1)  # the entry's life
    stale = ask(gateway)
    assert kind(stale) == ("hit", "exact") and stale.body == first.body
    assert int(stale.headers["age"]) >= 1 and int(stale.headers["cache-status"].split("ttl=")[1]) <= 0
    wait_until(lambda: up.count == 2, "the renewal")
    renewed = wait_until(lambda: (r := ask(gateway)).body != first.body and r, "the renewed entry")
    assert kind(renewed) == ("hit", "exact") and "number 2" in renewed.text()
    rows = gateway.wait_rows(4)
    assert gateway.row_of(stale)["cache_reason"] in ("stale_while_revalidate", "revalidate")
    reasons = [r["cache_reason"] for r in rows]
    assert reasons.count("stale_while_revalidate") >= 1 and reasons.count("revalidate") == 1
    renewal = next(r for r in rows if r["cache_reason"] == "revalidate")
    assert (renewal["status"], renewal["cache_hit"], renewal["total_tokens"]) == (200, 0, 5)
    wait_idle(gateway)
    assert gateway.metrics()["rolter_cache_revalidations_total"] == 1


@pytest.mark.parametrize("strategy", ["consistent_hash", "cache_aware", "least_prefill", "precise_cache_aware"])
def test_a_renewal_is_picked_for_like_a_request(new_upstream, new_gateway, strategy):
    """Without a client there is still the head and the prompt that strategies read."""
    up = Counting(new_upstream)
    gateway = new_gateway(caching([up.upstream] * 2, "ttl_secs = 1\nstale_while_revalidate_secs = 60", strategy=strategy))
    ids = {"x-rolter-token-ids": "1,2,3"}
    assert ask(gateway, headers=ids).status == 200
    time.sleep(1.1)  # the entry's life
    assert "number 1" in ask(gateway, headers=ids).text()
    wait_until(lambda: "number 2" in ask(gateway, headers=ids).text(), "the renewed entry")
    wait_idle(gateway, ["p0", "p1"])


def test_stale_stream_is_renewed(new_upstream, new_gateway):
    up = Counting(new_upstream)
    gateway = new_gateway(caching([up.upstream], "ttl_secs = 1\nstale_while_revalidate_secs = 60"))
    with gateway.stream(PATH, chat("x", stream=True)) as s:
        s.all()
    time.sleep(1.1)
    with gateway.stream(PATH, chat("x", stream=True)) as s:
        assert "number 1" in s.all()[0].data
    wait_until(lambda: up.count == 2, "the renewal")

    def look():
        with gateway.stream(PATH, chat("x", stream=True)) as s:
            return "number 2" in s.all()[0].data
    wait_until(look, "the renewed stream")
    wait_idle(gateway)


@pytest.mark.parametrize("failure", ["status", "reset", "refused"])
def test_stale_if_error(new_upstream, new_gateway, failure):
    def answer(call):
        if len(up.calls) == 1:
            call.reply(200, chat_reply("good"))
        elif failure == "status":
            call.reply(503, {"error": {}})
        else:
            call.reset()

    up = new_upstream(answer)
    gateway = new_gateway(caching([up], "ttl_secs = 1\nstale_if_error_secs = 60",
                                  more="[retry]\nmax_retries = 1\nbase_backoff_ms = 1\n"), rows=True)
    first = ask(gateway)
    if failure == "refused":
        up.close()
    time.sleep(1.1)
    stale = ask(gateway)
    assert stale.status == 200 and kind(stale) == ("hit", "exact") and stale.body == first.body
    row = gateway.row_of(stale)
    assert (row["cache_reason"], row["cache_hit"], row["status"], row["total_tokens"]) == ("stale_if_error", 1, 200, 0)
    assert row["attempts"] >= 1
    wait_idle(gateway)


@pytest.mark.parametrize("backpressure", ["error", "drop", "block"])
def test_stale_when_the_queue_is_full(new_upstream, new_gateway, backpressure):
    """A provider that has no place for a request is one that fails it."""
    gate = threading.Event()

    def answer(call):
        if call.json()["messages"][0]["content"] != "x":
            assert gate.wait(20)
        call.reply(200, chat_reply("good"))

    up = new_upstream(answer)
    gateway = new_gateway(caching([up], "ttl_secs = 1\nstale_if_error_secs = 60",
                                  more=f'[queue]\nworkers = 1\ncapacity = 1\nbackpressure = "{backpressure}"\n'
                                  "block_timeout_ms = 200\n"), rows=True)
    first = ask(gateway, "x")
    time.sleep(1.1)
    busy = [threading.Thread(target=ask, args=(gateway, f"busy {i}")) for i in range(2)]
    for thread in busy:
        thread.start()
    gateway.wait_metric(metric("rolter_provider_queue_depth", provider="p0"), 1)
    stale = ask(gateway, "x")
    assert stale.status == 200 and kind(stale) == ("hit", "exact") and stale.body == first.body
    assert gateway.row_of(stale)["cache_reason"] == "stale_if_error"
    assert ask(gateway, "never seen").status in (429, 503)
    gate.set()
    for thread in busy:
        thread.join()
    wait_idle(gateway)


def test_client_fault_is_not_hidden_by_a_stale_entry(new_upstream, new_gateway):
    up = new_upstream(lambda call: call.reply(200, chat_reply("good")) if len(up.calls) == 1
                      else call.reply(400, {"error": {"message": "no"}}))
    gateway = new_gateway(caching([up], "ttl_secs = 1\nstale_if_error_secs = 60"))
    ask(gateway)
    time.sleep(1.1)
    assert ask(gateway).status == 400


def test_http_1_0_and_large_replays(new_upstream, new_gateway):
    texts = ["x" * 20000] * 40
    up = new_upstream(lambda call: stream_answer(call, texts))
    gateway = new_gateway(caching([up]))
    body = json.dumps(chat("x", stream=True)).encode()
    with gateway.stream(PATH, body.decode()) as s:
        s.all()
        want = bytes(s.raw)
    for connection in ("close", "keep-alive"):
        got = gateway.raw(b"POST %s HTTP/1.0\r\nConnection: %s\r\nContent-Type: application/json\r\n"
                          b"Content-Length: %d\r\n\r\n%s" % (PATH.encode(), connection.encode(), len(body), body)
                          + (b"" if connection == "close" else b"GET /healthz HTTP/1.0\r\n\r\n"))
        head, _, rest = got.partition(b"\r\n\r\n")
        assert b"x-rolter-cache: hit" in head and b"transfer-encoding" not in head.lower()
        assert rest[:len(want)] == want
        if connection == "keep-alive":
            assert rest.endswith(b"\r\n\r\nok")
    assert len(up.calls) == 1


def test_slow_client_of_a_replay(new_upstream, new_gateway):
    """It takes its time; the gateway does not collect the rest of the entry for it, and others go on."""
    texts = ["x" * 50000] * 150  # 7.5 MB
    up = new_upstream(lambda call: stream_answer(call, texts))
    gateway = new_gateway(caching([up], cache="max_entry_bytes = 20000000\nmemory_bytes = 200000000"),
                          server="workers = 1")
    with gateway.stream(PATH, chat("x", stream=True)) as s:
        assert len(s.all()) == 152
    slow = gateway.stream(PATH, chat("x", stream=True))
    slow.next()
    with gateway.stream(PATH, chat("x", stream=True)) as s:
        assert len(s.all()) == 152 and s.headers["x-rolter-cache"] == "hit"
    assert len(slow.all()) == 151 and slow.complete
    slow.close()
    assert len(up.calls) == 1


def test_messages_and_embeddings(new_upstream, new_gateway):
    def answer(call):
        n = len(up.calls)
        if call.target.startswith("/v1/messages"):
            call.reply(200, {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
                             "stop_sequence": None, "content": [{"type": "text", "text": f"number {n}"}],
                             "usage": {"input_tokens": 3, "output_tokens": 2}})
        else:
            texts = call.json()["input"]
            texts = [texts] if isinstance(texts, str) else texts
            call.reply(200, {"object": "list", "model": "m", "usage": {"prompt_tokens": 1, "total_tokens": 1},
                             "data": [{"object": "embedding", "index": i, "embedding": [n, i]}
                                      for i in range(len(texts))]})

    up = new_upstream(answer)
    gateway = new_gateway(caching([up]), rows=True)
    first = [gateway.post("/v1/messages", messages("x")) for _ in range(2)]
    assert [kind(r) for r in first] == [("miss", None), ("hit", "exact")] and first[0].body == first[1].body
    assert kind(gateway.post("/v1/messages", messages("x"), {"anthropic-beta": "b"})) == ("miss", None)
    one = {"model": "m", "input": "a"}
    some = {"model": "m", "input": ["a", "b"]}
    for body in (one, some, {**one, "encoding_format": "base64"}):
        got = [gateway.post("/v1/embeddings", body) for _ in range(2)]
        assert [kind(r) for r in got] == [("miss", None), ("hit", "exact")] and got[0].body == got[1].body
    assert gateway.row_of(got[1])["saved_tokens"] == 1


@pytest.mark.parametrize("body,reason", [
    (b'{"model":"m","messages":[],"x":"a\xff\xc3"}', "invalid_utf8"),
    (b'{"model":"m","messages":[],"x":"\\ud800"}', "lone_surrogate"),
    (b'{"model":"m","messages":[],"x":1,"x":1}', "duplicate_member"),
])
def test_bodies_that_readers_disagree_about(new_upstream, new_gateway, body, reason):
    """They bypass the cache and go up as they are."""
    up = new_upstream(lambda call: call.reply(200, chat_reply("x")))
    gateway = new_gateway(caching([up]), rows=True)
    replies = [gateway.post(PATH, body) for _ in range(2)]
    assert [kind(r) for r in replies] == [("bypass", None)] * 2
    assert [call.body for call in up.calls] == [body] * 2
    assert gateway.row_of(replies[0])["cache_reason"] == reason


def test_rules_see_no_text_that_is_no_utf8(new_upstream, new_gateway):
    """A rule could not tell what it says, so it does not pass by."""
    up = new_upstream(lambda call: call.reply(200, chat_reply("x")))
    rule = '[guardrails]\nenabled = true\n[[guardrails.rules]]\nname = "r"\npattern = "secret"\nstage = "pre_call"\naction = "block"\n'
    gateway = new_gateway(caching([up], more=rule))
    reply = gateway.post(PATH, b'{"model":"m","messages":[{"role":"user","content":"\xff"}]}')
    assert reply.status == 400 and reply.json()["error"]["code"] == "invalid_json" and not up.calls
    assert gateway.post(PATH, chat("hello")).status == 200


@pytest.mark.parametrize("body,reason", [
    ({"model": "m", "input": "x"}, "store"),
    ({"model": "m", "input": "x", "store": False, "previous_response_id": "r"}, "previous_response_id"),
    ({"model": "m", "input": "x", "store": False, "background": True}, "background"),
    ({"model": "m", "input": "x", "store": False, "tools": [{"type": "web_search"}]}, "hosted_tool"),
])
def test_state_bypasses(new_upstream, new_gateway, body, reason):
    up = new_upstream(lambda call: call.reply(200, {"id": "r", "status": "completed", "output": []}))
    gateway = new_gateway(caching([up]), rows=True)
    replies = [gateway.post("/v1/responses", body) for _ in range(2)]
    assert [kind(r) for r in replies] == [("bypass", None)] * 2 and len(up.calls) == 2
    assert gateway.row_of(replies[0])["cache_reason"] == reason
    assert replies[0].headers["cache-status"].endswith(f"detail={reason}")
