# SPDX-License-Identifier: Apache-2.0
"""The semantic cache as clients see it. The embeddings are identical for every input unless a test says otherwise."""

import json
import socket
import struct
import threading
import time

import pytest

import harness
from cache_rig import PATH, Counting, ask, chunk, kind, stream_answer
from harness import chat, messages, wait_until
from semantic_rig import SAME, Vectors, bag, connected, semantic
from test_admin import admin_of
from upstream import chat_reply, dead_port, metric, wait_idle

HIT = ("hit", "semantic")
MISS = ("miss", None)
ANTHROPIC = "/v1/messages"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def anthropic_reply(n):
    return {"id": "m1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": f"number {n}"}], "usage": {"input_tokens": 3, "output_tokens": 2}}


class Both(Counting):
    """Answers in the dialect that it is asked in."""

    def answer(self, call):
        n, path = len(self.upstream.calls), call.target.split("?")[0]
        if path.endswith("/messages"):
            call.reply(200, anthropic_reply(n))
        elif path.endswith("/chat/completions"):
            super().answer(call)
        elif path.endswith("/completions"):
            call.reply(200, {"id": "c", "object": "text_completion", "model": "m",
                             "choices": [{"index": 0, "text": f"number {n}", "finish_reason": "stop"}]})
        else:
            call.reply(200, {"object": "list", "model": "m", "data": [{"index": 0, "embedding": [n]}]})


@pytest.fixture(params=["memory", "redis"])
def rig(request, new_upstream, new_gateway, new_redis):
    """rig(keys, ...): (gateway, upstream, vectors). Twice: with bodies in memory, and with none in memory, all of them in a
    real redis-server."""
    def make(keys="", vector=None, answer=None, upstream=None, more="", **options):
        up = upstream or Both(new_upstream)
        vectors = Vectors(new_upstream, vector or (lambda text: SAME), answer)
        if request.param == "redis":
            more += f'[redis]\nurl = "{new_redis().url}"\nbudget_ms = 5000\n'
            options["cache"] = "memory_bytes = 0\n"
            if "[server]" not in more:
                more += "[server]\nport = 0\nworkers = 1\n"  # one connection: what is written is there for the next request
        make.config = lambda k: semantic(up, vectors, k, more=more, **options)
        gateway = new_gateway(make.config(keys), rows=True)
        if request.param == "redis":
            connected(gateway, {"authorization": "Bearer sk-ann"} if "virtual_keys" in more else {})
        return gateway, up, vectors
    return make


def wait_rows(gateway, n):
    """Rows but for those of `connected`."""
    def look():
        rows = [row for row in gateway.rows() if row["path"] != ANTHROPIC]
        return rows if len(rows) >= n else None
    return wait_until(look, f"{n} rows")


def post(gateway, body, path=PATH, headers=None):
    return gateway.post(path, body, headers)


def row_of(gateway, reply):
    """The request's own row; the embedding's has the same id."""
    ident = reply.headers["x-request-id"]
    return wait_until(lambda: next((r for r in gateway.rows() if r["request_id"] == ident and
                                    r["cache_reason"] != "embedding"), None), f"the row of {ident}")


def test_other_words_hit(rig):
    gateway, up, vectors = rig()
    first = ask(gateway, "what is the capital of France", user="ann", metadata={"a": "b"})
    other = ask(gateway, "the French capital", user="bob")
    assert (kind(first), kind(other)) == (MISS, HIT)
    assert other.body == first.body and up.count == 1 and vectors.count == 2
    assert vectors.texts == ["user what is the capital of France", "user the French capital"]
    assert other.headers["x-rolter-cache-similarity"] == "1.0000"
    assert other.headers["content-type"] == "application/json" and int(other.headers["age"]) <= 5
    assert other.headers["cache-status"].startswith("rolter; hit; ttl=")
    assert "x-rolter-cache-similarity" not in first.headers
    # An exact repeat is the exact layer's, and asks for no embedding.
    assert kind(ask(gateway, "what is the capital of France")) == ("hit", "exact") and vectors.count == 2
    # A hit is not written to the exact layer; its text is known, so it is not embedded again either.
    assert kind(ask(gateway, "the French capital")) == HIT and (up.count, vectors.count) == (1, 2)
    metrics = gateway.metrics()
    assert metrics["rolter_semantic_cache_hits_total"] == 2
    assert metrics["rolter_semantic_cache_misses_total"] == 1
    assert metrics["rolter_semantic_cache_stores_total"] == 1
    assert metrics[metric("rolter_cache_requests_total", model="m", kind="semantic", result="hit")] == 2
    assert metrics[metric("rolter_semantic_embeddings_total", provider="emb", outcome="ok")] == 2


def test_rows_of_hits_and_of_embeddings(rig):
    gateway, up, vectors = rig()
    first, other = ask(gateway, "one"), ask(gateway, "another")
    rows = wait_rows(gateway, 4)  # those of two workers come in any order
    miss, hit = sorted((row for row in rows if row["path"] == PATH), key=lambda row: row["cache_hit"])
    assert (miss["cache_hit"], miss["cache_reason"]) == (0, "not_found, semantic: not_similar")
    assert (hit["cache_hit"], hit["cache_reason"], hit["cost_usd"]) == (1, "semantic 1.0000", 0)
    assert (hit["saved_tokens"], hit["saved_cost_usd"]) == (5, miss["cost_usd"])
    embeddings = [row for row in rows if row["path"] == "/v1/embeddings"]
    assert {row["request_id"] for row in embeddings} == {r.headers["x-request-id"] for r in (first, other)}
    for row in embeddings:
        assert (row["provider"], row["target"], row["cache_reason"]) == ("emb", "embed", "embedding")
        assert (row["prompt_tokens"], row["cost_usd"], row["status"]) == (7, 3.5, 200)


def test_streams_and_whole_replies_never_serve_each_other(rig):
    gateway, up, vectors = rig()

    def stream(text):
        with gateway.stream(PATH, chat(text, stream=True)) as s:
            events = [e.data for e in s.all()]
            return kind(s), events

    first = stream("one")
    assert first[0] == MISS and up.count == 1
    assert kind(ask(gateway, "two")) == MISS and up.count == 2
    assert kind(ask(gateway, "three")) == HIT
    again = stream("four")
    assert again[0] == HIT and again[1] == first[1] and up.count == 2


@pytest.mark.parametrize("path,system", [(ANTHROPIC, True), (PATH, False)])
def test_instructions_are_exact(rig, path, system):
    gateway, up, vectors = rig()

    def body(instruction, text):
        if system:
            return {"model": "m", "max_tokens": 9, "system": instruction, "messages": [{"role": "user", "content": text}]}
        return {"model": "m", "messages": [{"role": "system", "content": instruction}, {"role": "user", "content": text}]}

    assert kind(post(gateway, body("Answer in German", "a"), path)) == MISS
    assert kind(post(gateway, body("Answer in Japanese", "a"), path)) == MISS
    hit = post(gateway, body("Answer in German", "b"), path)
    assert kind(hit) == HIT and "number 1" in hit.text() and up.count == 2


def test_each_contract_is_a_partition_of_its_own(rig):
    gateway, up, vectors = rig()
    contracts = [{}, {"tools": [TOOL]}, {"tools": [{**TOOL, "function": {"name": "g"}}]}, {"tools": [TOOL, TOOL]},
                 {"tools": [TOOL], "tool_choice": "none"}, {"response_format": {"type": "json_object"}},
                 {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}},
                 {"temperature": 0.5}, {"top_p": 0.5}, {"max_tokens": 5}, {"n": 2}, {"seed": 1}, {"stop": "x"},
                 {"logprobs": True}, {"reasoning_effort": "low"}, {"stream_options": {"include_usage": True}},
                 {"something_new": 1}, {"something_new": 2}, {"safety_identifier": "s"}, {"prompt_cache_key": "k"}]

    def answer(call):
        n = len(up.upstream.calls)
        choices = chat_reply(f"number {n}")["choices"] * call.json().get("n", 1)
        call.reply(200, {**chat_reply(""), "choices": [{**c, "index": i} for i, c in enumerate(choices)]})
    up.upstream.answer = answer
    for i, more in enumerate(contracts):
        assert kind(ask(gateway, f"one {i}", **more)) == MISS, more
        assert up.count == i + 1
    for i, more in enumerate(contracts):
        hit = ask(gateway, "two", **more)
        assert kind(hit) == HIT and f"number {i + 1}" in hit.text(), more
    assert up.count == len(contracts)


def test_headers_query_and_dialect_split(rig):
    gateway, up, vectors = rig()
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "one"}]}
    other = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "two"}]}
    ways = [(PATH, {}), (PATH + "?a=1", {}), (PATH, {"openai-beta": "x"}), (ANTHROPIC, {}),
            (ANTHROPIC, {"anthropic-beta": "x"})]
    for i, (path, headers) in enumerate(ways):
        assert kind(post(gateway, body, path, headers)) == MISS and up.count == i + 1
    for path, headers in ways:
        assert kind(post(gateway, other, path, headers)) == HIT, (path, headers)
    assert up.count == len(ways)


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
BYPASSED = {
    "image": {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE]}]},
    "audio": {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA"}}]}]},
    "file": {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]},
    "part with more": {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "x": 1}]}]},
    "tool result": {"messages": [{"role": "user", "content": "a"}, {"role": "tool", "tool_call_id": "1", "content": "b"}]},
    "tool calls": {"messages": [{"role": "user", "content": "a"},
                                {"role": "assistant", "content": "b", "tool_calls": [{"id": "1"}]},
                                {"role": "user", "content": "c"}]},
    "function role": {"messages": [{"role": "user", "content": "a"}, {"role": "function", "name": "f", "content": "b"}]},
    "function call": {"messages": [{"role": "assistant", "content": "", "function_call": {}}, {"role": "user", "content": "a"}]},
    "member": {"messages": [{"role": "user", "content": "a", "cache_control": {"type": "ephemeral"}}]},
    "refusal": {"messages": [{"role": "assistant", "content": "a", "refusal": "b"}, {"role": "user", "content": "a"}]},
    "null content": {"messages": [{"role": "assistant", "content": None}, {"role": "user", "content": "a"}]},
    "object content": {"messages": [{"role": "user", "content": {"text": "a"}}]},
    "odd role": {"messages": [{"role": "critic", "content": "a"}]},
    "odd name": {"messages": [{"role": "user", "content": "a", "name": 5}]},
    "no words": {"messages": [{"role": "user", "content": " "}]},
    "instructions alone": {"messages": [{"role": "system", "content": "a"}]},
    "prefill": {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
    "no messages": {},
    "messages no array": {"messages": "a"},
}


@pytest.mark.parametrize("name", BYPASSED)
def test_what_text_cannot_hold_costs_no_embedding(rig, name):
    gateway, up, vectors = rig()
    body = {"model": "m", **BYPASSED[name]}
    assert kind(post(gateway, body)) == MISS
    assert kind(post(gateway, {**body, "user": "x"})) == ("hit", "exact")  # the exact layer serves it all the same
    assert (up.count, vectors.count) == (1, 0)


@pytest.mark.parametrize("path,body", [
    ("/v1/completions", {"prompt": ["a", "b"]}), ("/v1/completions", {"prompt": [1, 2]}),
    ("/v1/embeddings", {"input": "a"}),
    (ANTHROPIC, {"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}),
    (ANTHROPIC, {"max_tokens": 5, "system": 5, "messages": [{"role": "user", "content": "a"}]}),
    (ANTHROPIC, {"max_tokens": 5, "messages": [{"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t", "content": "x"}]}]}),
])
def test_other_dialects_bypass_too(rig, path, body):
    gateway, up, vectors = rig()
    post(gateway, {"model": "m", **body}, path)
    post(gateway, {"model": "m", **body, "user": "x"}, path)
    assert vectors.count == 0


def test_images_never_serve_each_other(rig):
    gateway, up, vectors = rig()

    def body(url, words):
        return {"model": "m", "messages": [{"role": "user", "content": [
            {"type": "text", "text": words}, {"type": "image_url", "image_url": {"url": url}}]}]}
    assert kind(post(gateway, body("http://a/1.png", "look"))) == MISS
    assert kind(post(gateway, body("http://a/2.png", "look"))) == MISS
    assert kind(post(gateway, body("http://a/1.png", "look"))) == ("hit", "exact")
    assert vectors.count == 0


def test_completions_and_parts(rig):
    gateway, up, vectors = rig()
    assert kind(post(gateway, {"model": "m", "prompt": "once  upon"}, "/v1/completions")) == MISS
    assert kind(post(gateway, {"model": "m", "prompt": "a time"}, "/v1/completions")) == HIT
    assert vectors.texts == ["once upon", "a time"]
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert kind(post(gateway, {"model": "m", "messages": [{"role": "user", "content": parts}]})) == MISS
    assert kind(ask(gateway, "c")) == HIT
    assert vectors.texts[2] == "user a b"


KEYS = '[[virtual_keys]]\nkey = "sk-{0}"\nname = "{0}"\n'


@pytest.mark.parametrize("scope,second", [("", MISS), ('scope = "route"', HIT)])
def test_scopes_do_not_meet(rig, scope, second):
    gateway, up, vectors = rig(route=scope, more=KEYS.format("ann") + KEYS.format("bob"))
    ann, bob = {"authorization": "Bearer sk-ann"}, {"authorization": "Bearer sk-bob"}
    assert kind(ask(gateway, "one", ann)) == MISS
    assert kind(ask(gateway, "two", ann)) == HIT
    assert kind(ask(gateway, "three", bob)) == second


def test_threshold_decides(rig):
    near, far = "how do I reset my password now", "which birds live in Iceland"
    gateway, up, vectors = rig("threshold = 0.8", vector=bag)
    assert kind(ask(gateway, "how do I reset my password")) == MISS
    hit = ask(gateway, near)
    assert kind(hit) == HIT and 0.8 <= float(hit.headers["x-rolter-cache-similarity"]) < 1
    assert kind(ask(gateway, far)) == MISS and up.count == 2


def test_the_window_holds_the_newest(rig):
    directions = {f"user {w}": [1.0 if i == k else 0.0 for i in range(6)] for k, w in enumerate("abcdef")}
    gateway, up, vectors = rig("max_candidates = 2", vector=lambda t: directions[t.replace(" again", "")])
    for word in "abc":
        assert kind(ask(gateway, word)) == MISS
    assert kind(ask(gateway, "b again")) == HIT and kind(ask(gateway, "c again")) == HIT
    assert kind(ask(gateway, "a again")) == MISS


def test_a_hit_extends_no_life(rig):
    gateway, up, vectors = rig(route="ttl_secs = 1")
    assert kind(ask(gateway, "one")) == MISS
    assert kind(ask(gateway, "two")) == HIT
    wait_until(lambda: kind(ask(gateway, "three")) == MISS, "the end of the entry's life")
    assert up.count == 2


def test_controls(rig):
    gateway, up, vectors = rig()
    assert kind(ask(gateway, "one", {"cache-control": "only-if-cached"}))[0] is None and up.count == 0
    assert kind(ask(gateway, "one")) == MISS
    assert kind(ask(gateway, "two", {"cache-control": "only-if-cached"})) == HIT
    before = vectors.count
    assert kind(ask(gateway, "three", {"cache-control": "no-store"})) == ("bypass", None)
    assert kind(ask(gateway, "four", {"cache-control": "no-cache"})) == MISS
    assert vectors.count == before  # neither looks anything up


def test_the_guard_says_no(rig):
    gateway, up, vectors = rig('guard = "lexical"')
    assert kind(ask(gateway, "What is 15% of 200?")) == MISS
    assert kind(ask(gateway, "What is 15% of 300?")) == MISS
    assert kind(ask(gateway, "Calculate 15 percent of 200")) == HIT
    assert kind(ask(gateway, "How do I open an account?")) == MISS
    closing = ask(gateway, "How do I close an account?")
    assert kind(closing) == MISS and up.count == 4
    assert row_of(gateway, closing)["cache_reason"] == "not_found, semantic: direction"
    assert gateway.metrics()[metric("rolter_semantic_cache_guarded_total", reason="direction")] >= 1
    # Without the guard every one of them would have been a hit.


def test_conversations_are_compared_whole(rig):
    gateway, up, vectors = rig('guard = "lexical"')

    def talk(*turns):
        roles = ["user", "assistant"]
        return {"model": "m", "messages": [{"role": roles[i % 2], "content": t} for i, t in enumerate(turns)]}
    assert kind(post(gateway, talk("Who wrote Hamlet?", "Shakespeare.", "When was he born?"))) == MISS
    assert kind(post(gateway, talk("Who wrote Faust?", "Goethe.", "When was he born?"))) == MISS
    assert kind(post(gateway, talk("Who wrote Hamlet?", "Shakespeare", "Please, when was he born?"))) == HIT


# --- the provider of embeddings fails ---

def slow(call):
    call.wait_gone()


FAILURES = {
    "slow": (slow, "timeout"),
    "500": (lambda call: call.reply(500, {"error": {}}), "status"),
    "reset": (lambda call: call.reset(), "reset"),
    "no json": (lambda call: call.reply(200, "<html>"), "json"),
    "no vector": (lambda call: call.reply(200, {"data": []}), "shape"),
    "empty vector": (lambda call: call.reply(200, {"data": [{"embedding": []}]}), "empty"),
    "NaN": (lambda call: call.reply(200, '{"data":[{"embedding":[1,NaN]}]}'), "json"),
    "null": (lambda call: call.reply(200, '{"data":[{"embedding":[1,null]}]}'), "number"),
    "zeros": (lambda call: call.reply(200, '{"data":[{"embedding":[0,0,0]}]}'), "direction"),
    "too many": (lambda call: call.reply(200, {"data": [{"embedding": [1] * 20000}]}), "too_long"),
}


@pytest.mark.parametrize("lookup", ["wait", "race"])
@pytest.mark.parametrize("name", FAILURES)
def test_embedding_fails_and_nobody_notices(rig, name, lookup):
    answer, reason = FAILURES[name]
    gateway, up, vectors = rig(f'embedding_timeout_ms = 150\nlookup = "{lookup}"', answer=answer)
    first, second = ask(gateway, "one"), ask(gateway, "two")
    assert (first.status, second.status) == (200, 200)
    assert (kind(first), kind(second)) == (MISS, MISS) and up.count == 2
    assert kind(ask(gateway, "one")) == ("hit", "exact")
    if lookup == "wait":
        assert row_of(gateway, first)["cache_reason"] == f"not_found, semantic: {reason}"
    failed = wait_until(lambda: [r for r in gateway.rows() if r["path"] == "/v1/embeddings"], "the embedding's row")[0]
    assert failed["error"] == reason and failed["cost_usd"] == 0
    metrics = gateway.metrics()
    assert metrics["rolter_semantic_cache_stores_total"] == 0  # nothing was stored without a vector


def test_embedding_provider_is_down(rig, new_upstream, new_gateway):
    held, port = dead_port()
    with held:
        up = Both(new_upstream)
        gateway = new_gateway(semantic(up, f"http://127.0.0.1:{port}"), rows=True)
        for i in range(8):
            assert kind(ask(gateway, f"text {i}")) == MISS
        assert up.count == 8
        # After five failures in a row nobody is asked any more for a while.
        assert gateway.metrics()[metric("rolter_semantic_embeddings_total", provider="emb", outcome="error")] == 5
        reasons = [r["cache_reason"] for r in gateway.wait_rows(13)]
        assert reasons.count("not_found, semantic: connect") == 5 and reasons.count("not_found, semantic: breaker") == 3


def test_dimension_changes(rig):
    dims = [3]
    gateway, up, vectors = rig(vector=lambda text: [1.0] * dims[0])
    assert kind(ask(gateway, "one")) == MISS
    dims[0] = 4
    assert kind(ask(gateway, "two")) == MISS  # another model's vectors start an index of their own
    assert kind(ask(gateway, "three")) == HIT
    assert up.count == 2


def test_equal_texts_at_a_time_make_one_call(rig):
    gate = threading.Event()

    def answer(call):
        gate.wait(10)
        vectors.give(call, SAME)
    gateway, up, vectors = rig(answer=answer, more="[server]\nport = 0\nworkers = 2\n")
    replies = []
    threads = [threading.Thread(target=lambda i=i: replies.append(ask(gateway, "one", user=f"u{i}"))) for i in range(6)]
    for thread in threads:
        thread.start()
    vectors.upstream.wait_calls(1)
    wait_until(lambda: gateway.metrics()["rolter_inflight_requests"] == 6, "six requests")
    gate.set()
    for thread in threads:
        thread.join()
    assert (vectors.count, up.count) == (1, 1)
    assert sorted(kind(r)[0] for r in replies) == ["hit"] * 5 + ["miss"]


def test_client_leaves_while_the_embedding_is_awaited(rig):
    gate = threading.Event()

    def answer(call):
        gate.wait(10)
        vectors.give(call, SAME)
    gateway, up, vectors = rig(answer=answer)
    body = json.dumps(chat("one")).encode()
    with socket.create_connection(("127.0.0.1", gateway.port)) as client:
        client.sendall(b"POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" %
                       (PATH.encode(), len(body), body))
        vectors.upstream.wait_calls(1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: gateway.metrics()["rolter_client_disconnects_total"] == 1, "the client's leaving")
    gate.set()
    wait_idle(gateway)
    assert up.count == 0  # nothing was sent before the embedding was there
    assert kind(ask(gateway, "one")) == MISS and vectors.count == 1  # and what was paid for is known


# --- race ---

def test_race_a_match_before_the_reply_wins(rig, new_upstream):
    held = threading.Event()

    class Held(Both):
        def answer(self, call):
            if call.json()["messages"][-1]["content"] == "two":
                call.wait_gone()  # the gateway gives the call up
                return
            super().answer(call)
    up = Held(new_upstream)
    gateway, up, vectors = rig('lookup = "race"', upstream=up)
    first = ask(gateway, "one")
    assert kind(first) == MISS
    wait_until(lambda: gateway.metrics()["rolter_semantic_cache_stores_total"] == 1, "the vector")
    second = ask(gateway, "two")
    assert kind(second) == HIT and second.body == first.body
    wait_idle(gateway)
    row = row_of(gateway, second)
    assert (row["cache_hit"], row["cost_usd"], row["error"]) == (1, 0, "")
    assert not held.is_set()


def test_race_the_reply_does_not_wait(rig):
    gate = threading.Event()

    def answer(call):
        gate.wait(10)
        vectors.give(call, SAME)
    gateway, up, vectors = rig('lookup = "race"', answer=answer)
    first = ask(gateway, "one")  # while the embedding hangs
    assert kind(first) == MISS and up.count == 1
    assert gateway.metrics()["rolter_semantic_cache_stores_total"] == 0
    gate.set()  # the vector comes after its request is over, and is stored with the reply all the same
    wait_until(lambda: gateway.metrics()["rolter_semantic_cache_stores_total"] == 1, "the late vector")
    hit = wait_until(lambda: (r := ask(gateway, "one")) and r, "a reply")
    assert kind(hit) == ("hit", "exact")


# --- shadow ---

def test_shadow_measures_and_serves_fresh(rig, new_upstream):
    class Talk(Both):
        def answer(self, call):
            text = call.json()["messages"][-1]["content"]
            said = "The capital of France is Paris." if "capital" in text else "I would not know that at all, sorry."
            call.reply(200, chat_reply(said))
    gateway, up, vectors = rig("shadow_ratio = 1.0", upstream=Talk(new_upstream))
    assert kind(ask(gateway, "the capital of France")) == MISS
    shadow = ask(gateway, "France, its capital")
    assert kind(shadow) == MISS and up.count == 2  # the fresh answer
    assert row_of(gateway, shadow)["cache_reason"] == "not_found, semantic: shadow"
    assert kind(ask(gateway, "something else")) == MISS
    metrics = gateway.metrics()

    def count(verdict):
        return metrics[metric("rolter_semantic_cache_shadow_total", model="m", band="0.98-1.00", verdict=verdict)]
    assert (count("agrees"), count("differs"), count("unknown")) == (1, 1, 0)
    assert metrics["rolter_semantic_cache_hits_total"] == 0


# --- reload, limits, policy ---

def test_entries_survive_a_reload_and_a_new_model_starts_anew(rig, new_upstream):
    gateway, up, vectors = rig()
    assert kind(ask(gateway, "one")) == MISS
    gateway.reload_and_wait(rig.config("max_candidates = 99"))
    assert kind(ask(gateway, "two")) == HIT
    text = rig.config("").replace('model = "embed"\n\n', 'model = "other"\n\n')
    assert text != rig.config("")
    vectors.own = lambda call: call.reply(200, {"data": [{"embedding": SAME}]})
    gateway.reload_and_wait(text)
    assert kind(ask(gateway, "three")) == MISS


@pytest.mark.parametrize("how", ["renewal", "no-cache"])
def test_what_is_fetched_anew_is_found_again(rig, how):
    """The vector of an entry expires with it; the reply that took its place has the same one."""
    gateway, up, vectors = rig(route="ttl_secs = 2\nstale_while_revalidate_secs = 60\n")
    assert kind(ask(gateway, "one")) == MISS
    stored = gateway.metrics()["rolter_semantic_cache_stores_total"]
    time.sleep(2.1)
    if how == "renewal":
        assert kind(ask(gateway, "one")) == ("hit", "exact")
    else:
        assert kind(ask(gateway, "one", {"cache-control": "no-cache"})) == MISS
    wait_until(lambda: gateway.metrics()["rolter_semantic_cache_stores_total"] == stored + 1, "the new one")
    other = ask(gateway, "two")
    assert kind(other) == HIT and "number 2" in other.body.decode()
    assert (up.count, vectors.texts) == (2, ["user one", "user two"])  # a known text is not paid for again


def test_explain(rig, request):
    """Which entry of the partition was near, and what the guard had against it; of what was asked, and of what was not."""
    def vector(text):
        return [1.0, 0.2] if "pounds" in text else [1.0, -1.0] if "weather" in text else [1.0, 0.0]
    gateway, up, vectors = rig('guard = "lexical"\nthreshold = 0.9', vector, more="[admin]\nport = 0\n")
    admin = admin_of(gateway)

    def told(reply):
        row_of(gateway, reply)  # what becomes of a request is known when it is over
        return harness.request("GET", f"{admin}/cache/explain?request_id={reply.headers['x-request-id']}").json()

    def preview(text, **more):
        return harness.request("POST", admin + "/cache/explain", json.dumps({"body": chat(text), **more}).encode()).json()

    first = told(ask(gateway, "how much are 5 kilos of apples"))
    assert (first["result"], first["semantic"]["reason"]) == ("miss", "not_similar")
    guarded = told(ask(gateway, "how much are 7 kilos of apples"))
    assert (guarded["result"], guarded["semantic"]["reason"]) == ("miss", "number")
    assert guarded["semantic"]["partition"] == first["semantic"]["partition"] and len(first["semantic"]["partition"]) == 64
    hit = ask(gateway, "How much are 5 kilos of apples?")
    assert kind(hit) == HIT
    assert (told(hit)["result"], told(hit)["layer"], told(hit)["semantic"]["similarity"]) == ("hit", "semantic", 1)
    same = told(ask(gateway, "how much are 5 kilos of apples"))
    assert (same["layer"], same["entry"]["key"]) == ("exact", told(hit)["entry"]["key"])
    known = preview("How much are 5 kilos of apples?")
    if "memory" in request.node.name:
        assert (known["result"], known["layer"], known["entry"]["key"]) == ("hit", "semantic", same["entry"]["key"])
    else:  # bodies are in Redis alone, which is not asked
        assert (known["result"], known["redis"]) == ("miss", "not asked")
        assert known["semantic"]["nearest"][0]["reply"] == "gone"
    calls = (up.count, vectors.count)

    # A text whose vector nobody has: nothing is asked.
    new = preview("how much are 9 kilos of apples")
    assert (new["result"], new["semantic"]["bypass"], new["semantic"]["vector"]) == ("miss", None, "unknown")
    assert "nearest" not in new["semantic"] and new["semantic"]["threshold"] == 0.9
    assert new["semantic"]["partition"] == first["semantic"]["partition"] and (up.count, vectors.count) == calls
    # Unless one wants to: then it is known a moment later, and nothing went to the upstream.
    assert preview("how much are 9 kilos of apples", embed=True)["semantic"]["vector"] == "asked"
    new = wait_until(lambda: (t := preview("how much are 9 kilos of apples"))["semantic"]["vector"] == "known" and t, "the vector")
    assert (up.count, vectors.count) == (calls[0], calls[1] + 1)
    nearest = {n["entry"]["key"]: n for n in new["semantic"]["nearest"]}
    assert len(nearest) >= 2 and new["result"] == "miss"
    for n in nearest.values():
        assert (n["similarity"], n["near_enough"], n["guard"], n["terms"]) == (1, True, "number", ["9"])
        assert 0 <= n["entry"]["age_secs"] < 30 and n["entry"]["scope"] == new["scope"]
    # Too far, as a number.
    preview("the weather", embed=True)
    far = wait_until(lambda: (t := preview("the weather"))["semantic"]["vector"] == "known" and t, "the vector")
    assert {n["near_enough"] for n in far["semantic"]["nearest"]} == {False} and far["result"] == "miss"
    assert {n["similarity"] for n in far["semantic"]["nearest"]} == {0.7071}
    # What is never looked up by meaning.
    image = {"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}
    told_image = harness.request("POST", admin + "/cache/explain", json.dumps({"body": image, "embed": True}).encode()).json()
    assert (told_image["semantic"]["bypass"], told_image["result"]) == ("part", "miss")
    assert told(gateway.post(PATH, image))["semantic"] == {"reason": "part"}
    assert vectors.count == calls[1] + 2
    rows = [row for row in gateway.rows() if row["request_id"] == "preview"]
    assert len(rows) == 2 and {row["cache_reason"] for row in rows} == {"embedding"}  # what it cost is on the bill


def test_another_address_of_the_embeddings_starts_anew(rig, new_upstream):
    """Vectors belong to where they came from; what stands behind the same name elsewhere may be another model."""
    gateway, up, vectors = rig()
    assert kind(ask(gateway, "one")) == MISS and kind(ask(gateway, "two")) == HIT
    moved = Vectors(new_upstream)
    text = rig.config("")
    assert text.count(vectors.upstream.url) == 1
    gateway.reload_and_wait(text.replace(vectors.upstream.url, moved.upstream.url))
    # Neither a vector nor an entry of before: a known text is asked for anew.
    assert kind(ask(gateway, "two")) == MISS and moved.texts == ["user two"]
    assert kind(ask(gateway, "three")) == HIT and (vectors.count, moved.count, up.count) == (2, 2, 2)


def test_a_blocked_prompt_gets_no_hit(rig):
    rules = '[guardrails]\nenabled = true\n[[guardrails.rules]]\nname = "x"\npattern = "forbidden"\nstage = "pre_call"\naction = "block"\n'
    gateway, up, vectors = rig(more=rules)
    assert kind(ask(gateway, "one")) == MISS
    assert ask(gateway, "forbidden").status == 400
    assert vectors.count == 1


def test_embedding_spend_counts_for_the_budget(rig):
    budget = KEYS.format("ann") + '[[budgets]]\nscope = "key"\nid = "ann"\nlimit_usd = 3.0\nperiod = "total"\n'
    gateway, up, vectors = rig(more=budget)
    ann = {"authorization": "Bearer sk-ann"}
    assert kind(ask(gateway, "one", ann)) == MISS  # 7 for the reply; the embedding alone would be 3.5
    assert ask(gateway, "two", ann).status == 402
