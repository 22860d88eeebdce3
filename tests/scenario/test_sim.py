# SPDX-License-Identifier: Apache-2.0
"""rolter-sim: every endpoint and shape, streams, faults, aborted requests, restart."""

import base64
import json
import math
import signal
import socket
import struct
import threading
import time

import pytest

from harness import Process, chat, chat_text, messages

LONG = "Tell me a long story about a lighthouse keeper who counts the ships that pass. " * 12
CHAT = "/v1/chat/completions"
WEATHER = {"name": "get_weather", "description": "Weather of a city",
           "parameters": {"type": "object", "required": ["city"], "properties": {
               "city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["°C", "°F"]},
               "place": {"type": "object", "properties": {"exact": {"type": "boolean"}}}}}}
ARGUMENTS = {"city": "Paris", "days": 7, "unit": "°C", "place": {"exact": True}}


def ok(reply):
    assert reply.status == 200, reply
    assert reply.headers["content-type"] == "application/json"
    return reply.json()


# ---- replies of all dialects

def test_chat_reply(new_sim):
    sim = new_sim(name="one")
    reply = sim.post(CHAT, chat("hello there"), {"x-request-id": "abc-1"})
    body = ok(reply)
    assert reply.headers["x-sim-name"] == "one"
    assert reply.headers["x-request-id"] == "abc-1"
    assert body["object"] == "chat.completion" and body["id"].startswith("chatcmpl-") and body["model"] == "m"
    assert body["system_fingerprint"] == "sim-one"
    assert abs(body["created"] - time.time()) < 60
    [choice] = body["choices"]
    assert choice["index"] == 0 and choice["finish_reason"] == "stop"
    assert choice["message"]["role"] == "assistant" and len(choice["message"]["content"]) == 16 * 4
    usage = body["usage"]
    assert usage["completion_tokens"] == 16
    assert usage["total_tokens"] == usage["prompt_tokens"] + 16
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
    again = ok(sim.post(CHAT, chat("hello there")))
    assert again["choices"] == body["choices"] and again["id"] != body["id"]
    assert ok(sim.post(CHAT, chat("hello you")))["choices"] != body["choices"]


@pytest.mark.parametrize("maximum, tokens, finish", [(5, 5, "length"), (16, 16, "stop"), (50, 16, "stop")])
def test_max_tokens_and_finish_reason(sim, maximum, tokens, finish):
    for name in ("max_tokens", "max_completion_tokens"):
        body = ok(sim.post(CHAT, chat("hello", **{name: maximum})))
        assert body["usage"]["completion_tokens"] == tokens
        assert body["choices"][0]["finish_reason"] == finish
    body = ok(sim.post("/v1/messages", messages("hello", max_tokens=maximum)))
    assert body["stop_reason"] == {"length": "max_tokens", "stop": "end_turn"}[finish]
    body = ok(sim.post("/v1/responses", {"model": "m", "input": "hello", "max_output_tokens": maximum}))
    assert body["status"] == {"length": "incomplete", "stop": "completed"}[finish]
    body = ok(sim.post(CHAT, chat("hello", max_tokens=50, ignore_eos=True)))
    assert body["usage"]["completion_tokens"] == 50


def test_stop_sequences(sim):
    text = ok(sim.post(CHAT, chat("hello")))["choices"][0]["message"]["content"]
    word = text.split(" ")[3]
    before = text[:text.index(word)]
    for stop in (word, ["never in it", word]):
        [choice] = ok(sim.post(CHAT, chat("hello", stop=stop)))["choices"]
        assert choice["message"]["content"] == before and choice["finish_reason"] == "stop"
    with sim.stream(CHAT, chat("hello", stop=word, stream=True)) as stream:
        assert chat_text(stream.all()) == before
    body = ok(sim.post("/v1/messages", messages("hello", stop_sequences=[word])))
    assert body["stop_reason"] == "stop_sequence" and body["stop_sequence"] == word
    assert body["content"] == [{"type": "text", "text": before}]


def test_several_choices(sim):
    body = ok(sim.post(CHAT, chat("hello", n=3)))
    assert [c["index"] for c in body["choices"]] == [0, 1, 2]
    texts = [c["message"]["content"] for c in body["choices"]]
    assert len(set(texts)) == 3
    assert body["usage"]["completion_tokens"] == 48
    with sim.stream(CHAT, chat("hello", n=3, stream=True)) as stream:
        parts = [e.json() for e in stream.all() if e.data != "[DONE]"]
    for i, text in enumerate(texts):
        mine = [c for p in parts for c in p["choices"] if c["index"] == i]
        assert "".join(c["delta"].get("content") or "" for c in mine) == text
        assert [c["finish_reason"] for c in mine if c["finish_reason"]] == ["stop"]


def test_completions(sim):
    body = ok(sim.post("/v1/completions", {"model": "m", "prompt": "once upon a time"}))
    assert body["object"] == "text_completion" and body["id"].startswith("cmpl-")
    assert body["choices"][0]["text"] and body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["prompt_tokens"] == 4
    ids = sim.post("/tokenize", {"prompt": "once upon a time"}).json()["tokens"]
    by_ids = ok(sim.post("/v1/completions", {"model": "m", "prompt": ids}))
    assert by_ids["choices"] == body["choices"]
    assert len(ok(sim.post("/v1/completions", {"model": "m", "prompt": ["a", "b"], "n": 2}))["choices"]) == 4
    with sim.stream("/v1/completions", {"model": "m", "prompt": "once upon a time", "stream": True}) as stream:
        events = stream.all()
    assert events[-1].data == "[DONE]" and stream.complete
    parts = [e.json() for e in events[:-1]]
    assert "".join(p["choices"][0]["text"] for p in parts) == body["choices"][0]["text"]
    assert [p["choices"][0]["finish_reason"] for p in parts] == [None] * 16 + ["stop"]


def test_messages(sim):
    body = ok(sim.post("/v1/messages", messages("hello there", system="be brief")))
    assert body["type"] == "message" and body["role"] == "assistant" and body["id"].startswith("msg_")
    assert body["content"][0]["type"] == "text" and body["content"][0]["text"]
    assert body["stop_reason"] == "end_turn" and body["stop_sequence"] is None
    assert body["usage"]["output_tokens"] == 16 and body["usage"]["cache_read_input_tokens"] == 0
    blocks = messages([("user", [{"type": "text", "text": "hello there"}])],
                      system=[{"type": "text", "text": "be brief"}])
    assert ok(sim.post("/v1/messages", blocks))["content"] == body["content"]
    count = sim.post("/v1/messages/count_tokens", messages("hello there", system="be brief")).json()
    assert count == {"input_tokens": body["usage"]["input_tokens"]}


def test_responses(sim):
    body = ok(sim.post("/v1/responses", {"model": "m", "input": "hello there", "instructions": "be brief"}))
    assert body["object"] == "response" and body["status"] == "completed" and body["id"].startswith("resp_")
    [item] = body["output"]
    assert item["type"] == "message" and item["role"] == "assistant" and item["status"] == "completed"
    assert item["content"][0]["type"] == "output_text" and item["content"][0]["text"]
    assert body["usage"]["total_tokens"] == body["usage"]["input_tokens"] + 16
    items = [{"role": "user", "content": [{"type": "input_text", "text": "hello there"}]}]
    same = ok(sim.post("/v1/responses", {"model": "m", "input": items, "instructions": "be brief"}))
    assert same["output"][0]["content"] == item["content"]


# ---- streams

def test_chat_stream(sim):
    whole = ok(sim.post(CHAT, chat("hello")))
    with sim.stream(CHAT, chat("hello", stream=True, stream_options={"include_usage": True})) as stream:
        events = stream.all()
    assert stream.complete and stream.headers["content-type"].startswith("text/event-stream")
    assert all(e.type == "" for e in events) and events[-1].data == "[DONE]"
    parts = [e.json() for e in events[:-1]]
    assert len(parts) == 1 + 16 + 1 + 1
    assert {(p["id"], p["created"], p["object"]) for p in parts} == {
        (parts[0]["id"], parts[0]["created"], "chat.completion.chunk")}
    assert parts[0]["choices"][0]["delta"]["role"] == "assistant"
    assert [p["choices"][0]["finish_reason"] for p in parts[:-1]] == [None] * 17 + ["stop"]
    assert parts[-2]["choices"][0]["delta"] == {}
    assert all(p["usage"] is None for p in parts[:-1])
    assert parts[-1]["choices"] == [] and parts[-1]["usage"]["completion_tokens"] == 16
    assert chat_text(events) == whole["choices"][0]["message"]["content"]
    with sim.stream(CHAT, chat("hello", stream=True)) as stream:
        assert not any("usage" in e.json() for e in stream.all() if e.data != "[DONE]")


def test_messages_stream(sim):
    whole = ok(sim.post("/v1/messages", messages("hello")))
    with sim.stream("/v1/messages", messages("hello", stream=True)) as stream:
        events = stream.all()
    assert stream.complete
    assert [e.type for e in events] == ["message_start", "content_block_start", "ping"] + [
        "content_block_delta"] * 16 + ["content_block_stop", "message_delta", "message_stop"]
    assert all(e.json()["type"] == e.type for e in events)
    start = events[0].json()["message"]
    assert start["content"] == [] and start["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
    text = "".join(e.json()["delta"]["text"] for e in events if e.type == "content_block_delta")
    assert text == whole["content"][0]["text"]
    assert events[-2].json()["delta"]["stop_reason"] == "end_turn"
    assert events[-2].json()["usage"] == {"output_tokens": 16}


def test_responses_stream(sim):
    whole = ok(sim.post("/v1/responses", {"model": "m", "input": "hello"}))
    with sim.stream("/v1/responses", {"model": "m", "input": "hello", "stream": True}) as stream:
        events = stream.all()
    assert stream.complete
    kinds = [e.type.removeprefix("response.") for e in events]
    assert kinds == ["created", "in_progress", "output_item.added", "content_part.added"] + [
        "output_text.delta"] * 16 + ["output_text.done", "content_part.done", "output_item.done", "completed"]
    assert [e.json()["sequence_number"] for e in events] == list(range(len(events)))
    assert all(e.json()["type"] == e.type for e in events)
    text = "".join(e.json()["delta"] for e in events if e.type.endswith("text.delta"))
    assert text == whole["output"][0]["content"][0]["text"] == events[-1].json()["response"]["output"][0][
        "content"][0]["text"]
    assert events[-1].json()["response"]["usage"]["output_tokens"] == 16


def test_tokens_arrive_one_after_the_other(new_sim):
    sim = new_sim(decode_tps=50, prefill_tps=8000)
    with sim.stream(CHAT, chat("hello", stream=True, max_tokens=6)) as stream:
        at = [e.at for e in stream if e.data != "[DONE]" and e.json()["choices"][0]["delta"].get("content")]
    assert len(at) == 6
    assert at[-1] - at[0] >= 0.06  # five times 20 ms, less what the reader was late for the first
    with sim.stream(CHAT, chat(LONG * 8, stream=True, max_tokens=1)) as stream:
        assert stream.head_at - stream.begun >= 0.2  # about 1900 tokens of prefill


def test_http_10_client_gets_a_plain_stream(sim):
    body = b'{"model":"m","stream":true,"max_tokens":2,"messages":[{"role":"user","content":"hi"}]}'
    got = sim.raw(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    head, _, rest = got.partition(b"\r\n\r\n")
    assert b"chunked" not in head.lower()
    assert rest.startswith(b"data: {") and rest.endswith(b"data: [DONE]\n\n")


def test_pipelined_requests_are_answered_in_order(sim):
    def one(text, close=""):
        body = b'{"model":"m","prompt":"%s"}' % text
        return b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s" % (
            close.encode(), len(body), body)
    texts = [b"one two", b"three four", b"five six"]
    got = sim.raw(one(texts[0]) + one(texts[1]) + one(texts[2], "Connection: close\r\n"))
    said = [sim.post("/v1/completions", {"model": "m", "prompt": t.decode()}).json()["choices"][0]["text"]
            for t in texts]
    places = [got.index(s.encode()) for s in said]
    assert got.count(b"HTTP/1.1 200 OK") == 3 and places == sorted(places)


# ---- tools

@pytest.mark.parametrize("how", ["words", "required", "named"])
@pytest.mark.parametrize("stream", [False, True])
def test_chat_tool_call(sim, how, stream):
    tools = [{"type": "function", "function": {"name": "other"}}] if how == "named" else []
    tools.append({"type": "function", "function": WEATHER})
    text = "please use the tool" if how == "words" else "hello"
    choice = {"required": "required", "named": {"type": "function", "function": {"name": "get_weather"}}}.get(how)
    body = chat(text, tools=tools, **({"tool_choice": choice} if choice else {}))
    if not stream:
        [reply] = ok(sim.post(CHAT, body))["choices"]
        assert reply["finish_reason"] == "tool_calls" and reply["message"]["content"] is None
        [call] = reply["message"]["tool_calls"]
        assert call["type"] == "function" and call["id"].startswith("call_")
        name, arguments = call["function"]["name"], call["function"]["arguments"]
    else:
        with sim.stream(CHAT, {**body, "stream": True}) as s:
            parts = [e.json()["choices"][0] for e in s.all() if e.data != "[DONE]"]
        calls = [p["delta"]["tool_calls"][0] for p in parts if "tool_calls" in p["delta"]]
        assert "id" in calls[0] and not any("id" in c for c in calls[1:]) and len(calls) > 5
        name, arguments = calls[0]["function"]["name"], "".join(c["function"]["arguments"] for c in calls)
        assert parts[-1]["finish_reason"] == "tool_calls"
    assert name == "get_weather"
    assert json.loads(arguments) == ARGUMENTS


def test_no_tool_call_unless_asked(sim):
    tools = [{"type": "function", "function": WEATHER}]
    for body in (chat("hello", tools=tools), chat("please use the tool"),
                 chat("please use the tool", tools=tools, tool_choice="none"),
                 chat([("user", "please use the tool"), ("assistant", "yes"), ("tool", "12 degrees")], tools=tools)):
        [choice] = ok(sim.post(CHAT, body))["choices"]
        assert choice["message"]["content"] and "tool_calls" not in choice["message"]


def test_messages_tool_call(sim):
    tool = {"name": "get_weather", "input_schema": WEATHER["parameters"]}
    body = ok(sim.post("/v1/messages", messages("hello", tools=[tool], tool_choice={"type": "any"})))
    [block] = body["content"]
    assert body["stop_reason"] == "tool_use"
    assert (block["type"], block["name"], block["input"]) == ("tool_use", "get_weather", ARGUMENTS)
    with sim.stream("/v1/messages", messages("use the tool", tools=[tool], stream=True)) as stream:
        events = stream.all()
    assert events[1].json()["content_block"]["name"] == "get_weather"
    assert json.loads("".join(e.json()["delta"]["partial_json"] for e in events
                              if e.type == "content_block_delta")) == ARGUMENTS
    done = [("user", "use the tool"), ("assistant", [block]),
            ("user", [{"type": "tool_result", "tool_use_id": block["id"], "content": "use the tool: 12 degrees"}])]
    assert ok(sim.post("/v1/messages", messages(done, tools=[tool])))["stop_reason"] == "end_turn"


def test_responses_tool_call(sim):
    tool = {"type": "function", **WEATHER}
    body = {"model": "m", "input": "use the tool", "tools": [tool]}
    [item] = ok(sim.post("/v1/responses", body))["output"]
    assert item["type"] == "function_call" and json.loads(item["arguments"]) == ARGUMENTS
    with sim.stream("/v1/responses", {**body, "stream": True}) as stream:
        events = stream.all()
    pieces = [e.json()["delta"] for e in events if e.type == "response.function_call_arguments.delta"]
    assert json.loads("".join(pieces)) == ARGUMENTS and events[-1].type == "response.completed"
    done = [{"role": "user", "content": "use the tool"}, item,
            {"type": "function_call_output", "call_id": item["call_id"], "output": "12 degrees"}]
    assert ok(sim.post("/v1/responses", {**body, "input": done}))["output"][0]["type"] == "message"


# ---- cache

def test_cached_tokens_of_a_conversation(sim):
    turns = [("system", "You are terse."), ("user", LONG)]
    first = ok(sim.post(CHAT, chat(turns)))
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    turns += [("assistant", first["choices"][0]["message"]["content"]), ("user", "go on")]
    second = ok(sim.post(CHAT, chat(turns)))
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    # All full blocks of the first prompt, and of the reply what was computed.
    computed = first["usage"]["prompt_tokens"] + 15
    assert cached == computed // 16 * 16
    assert second["usage"]["prompt_tokens"] == first["usage"]["prompt_tokens"] + 16 + 1 + 1 + 2 + 1 + 1
    other = ok(sim.post(CHAT, chat([("system", "You are wordy."), ("user", LONG)])))
    assert other["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    for apart in ({"model": "other"}, {"cache_salt": "tenant"}):
        body = {**chat(turns), **apart}
        assert ok(sim.post(CHAT, body))["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    stats = sim.stats()
    assert stats["cached_tokens"] == cached and stats["blocks_pinned"] == 0
    assert stats["blocks_resident"] > computed // 16


def test_cached_tokens_in_each_dialect(sim):
    first = ok(sim.post("/v1/messages", messages(LONG)))["usage"]
    second = ok(sim.post("/v1/messages", messages(LONG)))["usage"]
    assert second["cache_read_input_tokens"] >= 200
    assert second["input_tokens"] + second["cache_read_input_tokens"] == first["input_tokens"]
    body = {"model": "m2", "input": LONG}
    ok(sim.post("/v1/responses", body))
    assert ok(sim.post("/v1/responses", body))["usage"]["input_tokens_details"]["cached_tokens"] >= 200
    body = {"model": "m3", "prompt": LONG}
    ok(sim.post("/v1/completions", body))
    usage = ok(sim.post("/v1/completions", body))["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == (usage["prompt_tokens"] - 1) // 16 * 16


def test_old_conversations_are_evicted(new_sim):
    sim = new_sim(blocks=40, block_size=16)  # LONG has about 15 blocks
    def cached(model):
        return ok(sim.post(CHAT, chat(LONG, model)))["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert [cached(m) for m in "ab"] == [0, 0]
    assert cached("a") > 200
    assert cached("c") == 0  # evicts b, which was used longest ago
    assert cached("a") > 200
    assert cached("b") < 200
    assert sim.stats()["blocks_resident"] <= 40


def test_reset_prefix_cache(sim):
    ok(sim.post(CHAT, chat(LONG)))
    assert sim.stats()["blocks_resident"] > 0
    assert sim.post("/reset_prefix_cache", {}).status == 200
    assert sim.stats()["blocks_resident"] == 0


def test_tokenize(sim):
    reply = sim.post("/tokenize", {"model": "m", "prompt": "hello world!"}).json()
    assert reply["count"] == len(reply["tokens"]) == 3 and reply["max_model_len"] == 4096 * 16
    turns = [("user", LONG)]
    body = chat(turns)
    tokens = sim.post("/tokenize", body).json()["tokens"]
    usage = ok(sim.post(CHAT, body))["usage"]
    assert usage["prompt_tokens"] == len(tokens)
    longer = sim.post("/tokenize", chat(turns + [("assistant", "fine"), ("user", "and?")])).json()["tokens"]
    assert longer[:len(tokens)] == tokens
    without = sim.post("/tokenize", {**body, "add_generation_prompt": False}).json()["tokens"]
    assert without == tokens[:-1]
    tools = sim.post("/tokenize", chat(turns, tools=[{"type": "function", "function": WEATHER}])).json()["tokens"]
    assert tools[-len(tokens):] == tokens and len(tools) > len(tokens)
    assert sim.post("/tokenize", {"model": "m"}).status == 400


# ---- embeddings, rerank

def cosine(a, b):
    return sum(x * y for x, y in zip(a, b))


def test_embeddings(sim):
    texts = ["How do I reset my password?", "how can I reset the password", "Exchange rates of the euro"]
    body = ok(sim.post("/v1/embeddings", {"model": "m", "input": texts}))
    assert [d["index"] for d in body["data"]] == [0, 1, 2] and body["object"] == "list"
    assert all(d["object"] == "embedding" for d in body["data"])
    vectors = [d["embedding"] for d in body["data"]]
    assert all(len(v) == 64 and math.isclose(cosine(v, v), 1, abs_tol=1e-5) for v in vectors)
    assert cosine(vectors[0], vectors[1]) > 0.75 > 0.4 > cosine(vectors[0], vectors[2])
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] == sum(math.ceil(len(t) / 4) for t in texts)
    alone = ok(sim.post("/v1/embeddings", {"model": "m", "input": texts[0]}))["data"][0]["embedding"]
    assert alone == vectors[0]
    packed = ok(sim.post("/v1/embeddings", {"model": "m", "input": texts[0], "encoding_format": "base64"}))
    raw = base64.b64decode(packed["data"][0]["embedding"])
    assert all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip(struct.unpack("<64f", raw), vectors[0]))
    wide = ok(sim.post("/v1/embeddings", {"model": "m", "input": texts[0], "dimensions": 1000}))
    assert len(wide["data"][0]["embedding"]) == 1000
    ids = ok(sim.post("/v1/embeddings", {"model": "m", "input": [[1, 2, 3], [1, 2, 4], [9, 8]]}))["data"]
    assert cosine(ids[0]["embedding"], ids[1]["embedding"]) > cosine(ids[0]["embedding"], ids[2]["embedding"])
    one = ok(sim.post("/v1/embeddings", {"model": "m", "input": [1, 2, 3]}))["data"]
    assert [d["embedding"] for d in one] == [ids[0]["embedding"]]


def test_rerank(sim):
    documents = ["green pears", {"text": "red apples are good"}, "red cars"]
    body = ok(sim.post("/v1/rerank", {"model": "m", "query": "red apples", "documents": documents}))
    assert [r["index"] for r in body["results"]] == [1, 2, 0]
    assert body["results"][0]["document"]["text"] == "red apples are good"
    scores = [r["relevance_score"] for r in body["results"]]
    assert scores[0] == 1 and 0 < scores[1] < 1 and scores[2] == 0
    assert body["usage"]["total_tokens"] > 0
    top = ok(sim.post("/v1/rerank", {"model": "m", "query": "red apples", "documents": documents, "top_n": 1,
                                     "return_documents": False}))
    assert top["results"] == [{"index": 1, "relevance_score": 1}]


# ---- pages

def test_models_and_health(new_sim):
    sim = new_sim(model=["llama", "qwen"])
    assert [m["id"] for m in sim.get("/v1/models").json()["data"]] == ["llama", "qwen"]
    assert sim.get("/health").status == 200
    ok(sim.post(CHAT, chat("hello", "qwen")))
    reply = sim.post(CHAT, chat("hello", "gpt"))
    assert reply.status == 404 and reply.json()["error"]["code"] == "model_not_found"


def test_metrics(new_sim):
    sim = new_sim(model="llama", blocks=512, decode_tps=20)
    body = chat(LONG, "llama", max_tokens=2)
    prompt = ok(sim.post(CHAT, body))["usage"]["prompt_tokens"]
    cached = ok(sim.post(CHAT, body))["usage"]["prompt_tokens_details"]["cached_tokens"]
    label = '{engine="0",model_name="llama"}'
    now = sim.metrics()
    assert now["vllm:prompt_tokens_total" + label] == 2 * prompt == now["vllm:prefix_cache_queries_total" + label]
    assert now["vllm:prefix_cache_hits_total" + label] == cached > 0
    assert now["vllm:generation_tokens_total" + label] == 4
    assert now["vllm:num_requests_running" + label] == now["vllm:num_requests_waiting" + label] == 0
    assert now["vllm:kv_cache_usage_perc" + label] == now["vllm:gpu_cache_usage_perc" + label] == 0
    assert now['vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="512"}'] == 1
    assert abs(now["process_start_time_seconds"] - time.time()) < 60
    with sim.stream(CHAT, chat(LONG, "llama", stream=True, max_tokens=500, ignore_eos=True)) as stream:
        stream.next()
        now = sim.metrics()
        assert now["vllm:num_requests_running" + label] == 1
        assert 0 < now["vllm:kv_cache_usage_perc" + label] < 1


def test_errors(new_sim):
    sim = new_sim()
    bad = [b"{", b"[]", b'{"messages":[]}', chat([]), chat("x", model=""), chat("x", n=0), chat("x", max_tokens=0),
           chat("x", max_tokens="many"), {"model": "m", "messages": "x"}, {"model": "m", "messages": [{"content": "x"}]}]
    for body in bad:
        reply = sim.post(CHAT, body)
        assert reply.status == 400, (body, reply)
        error = reply.json()["error"]
        assert error["type"] == "invalid_request_error" and error["message"]
        assert set(error) == {"message", "type", "param", "code"}
    without = messages("x")
    del without["max_tokens"]
    for body in (b"{", without):
        reply = sim.post("/v1/messages", body)
        assert reply.status == 400
        assert reply.json()["type"] == "error" and reply.json()["error"]["type"] == "invalid_request_error"
    for path, body in (("/v1/embeddings", {"model": "m"}), ("/v1/embeddings", {"model": "m", "input": [{}]}),
                       ("/v1/embeddings", {"model": "m", "input": "x", "dimensions": 5000}),
                       ("/v1/rerank", {"model": "m", "query": "x", "documents": []}),
                       ("/v1/responses", {"model": "m"}), ("/v1/completions", {"model": "m", "prompt": 3})):
        assert sim.post(path, body).status == 400
    assert sim.get("/nothing").status == 404
    assert sim.get(CHAT).status == 405
    reply = sim.post(CHAT, chat("word " * 70000))
    assert reply.status == 400 and reply.json()["error"]["code"] == "context_length_exceeded"
    assert sim.raw(b"GET / HTTP/9.9\r\n\r\n").startswith(b"HTTP/1.1 505 ")


def test_api_key(new_sim):
    sim = new_sim(api_key="secret")
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"x-api-key": "secre"}):
        reply = sim.post(CHAT, chat("x"), headers)
        assert reply.status == 401 and reply.json()["error"]["code"] == "invalid_api_key"
        reply = sim.post("/v1/messages", messages("x"), headers)
        assert reply.status == 401 and reply.json()["error"]["type"] == "authentication_error"
    assert sim.get("/v1/models").status == 401
    assert sim.get("/health").status == 200
    for headers in ({"Authorization": "Bearer secret"}, {"x-api-key": "secret"}):
        assert sim.post(CHAT, chat("x"), headers).status == 200


def test_recorded_requests(sim):
    body = b'{"model" : "m", "messages":[{"role":"user","content":"h\xc3\xa4"}]}'
    sim.post(CHAT + "?a=b", body, {"X-Mine": "1"})
    [seen] = sim.requests()
    assert seen["method"] == "POST" and seen["target"] == CHAT + "?a=b"
    assert seen["body"].encode() == body and ["X-Mine", "1"] in seen["headers"]


# ---- queue, faults

def test_waiting_queue_and_503(new_sim):
    sim = new_sim(decode_tps=50, max_running=1, max_waiting=1)
    sim.faults(retry_after=7)
    with sim.stream(CHAT, chat("a", stream=True, max_tokens=5000, ignore_eos=True)) as running:
        running.next()
        waiting = threading.Thread(target=sim.post, args=(CHAT, chat("b")))
        waiting.start()
        sim.wait_stats(running=1, waiting=1)
        reply = sim.post(CHAT, chat("c"))
        assert reply.status == 503 and reply.headers["retry-after"] == "7"
        assert reply.json()["error"]["code"] == "queue_full"
    waiting.join()  # the first one left, so its place was free
    stats = sim.wait_stats(running=0, waiting=0)
    assert stats["aborted"] == 1 and stats["refused"] == 1 and stats["answered"] == 1


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_aborts_its_request(new_sim, reset, stream):
    sim = new_sim(decode_tps=20)
    endless = chat(LONG, stream=True, max_tokens=20000, ignore_eos=True)
    if stream:
        client = sim.stream(CHAT, endless)
        client.next()
        assert sim.stats()["running"] == 1
        client.close(reset)
    else:
        body = json.dumps({**endless, "stream": False}).encode()
        s = socket.create_connection(("127.0.0.1", sim.port))
        s.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (CHAT.encode(), len(body), body))
        sim.wait_stats(running=1)
        if reset:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
    stats = sim.wait_stats(running=0, aborted=1)
    assert stats["blocks_pinned"] == 0 and stats["answered"] == 0


def test_failures_by_header_and_by_rate(sim):
    reply = sim.post(CHAT, chat("x"), {"x-sim-fail": "429"})
    assert reply.status == 429 and reply.json()["error"]["code"] == "rate_limit_exceeded"
    assert "retry-after" not in reply.headers
    sim.faults(retry_after=3)
    for status in ("429", "503"):
        assert sim.post(CHAT, chat("x"), {"x-sim-fail": status}).headers["retry-after"] == "3"
    assert sim.post("/v1/messages", messages("x"), {"x-sim-fail": "529"}).json()["error"]["type"] == "overloaded_error"
    sim.faults(fail_rate=1, fail_status=502, error_body="<html>bad gateway</html>")
    reply = sim.post(CHAT, chat("x"))
    assert reply.status == 502 and reply.text() == "<html>bad gateway</html>"
    sim.faults(fail_rate=0.5, error_body=None)
    statuses = [sim.post(CHAT, chat("x")).status for _ in range(60)]
    assert set(statuses) == {200, 502} and 10 < statuses.count(502) < 50
    sim.faults(fail_rate=0)
    assert sim.post(CHAT, chat("x")).status == 200


def test_faults_are_checked(sim):
    for bad in ({"fail_rate": 2}, {"fail_rate": "x"}, {"nothing": 1}, {"block_size": 5}, {"fail_rate": 0.5, "x": 1}, []):
        assert sim.post("/sim/faults", bad).status == 400
    assert all(sim.post(CHAT, chat("x")).status == 200 for _ in range(20))  # nothing was changed


def test_stall(sim):
    stalled = [sim.client(), sim.client()]
    stalled[0].connection.request("POST", CHAT, b"{}", {"x-sim-stall": "1"})
    sim.wait_stats(stalled=1)
    sim.faults(stall_rate=1)
    stalled[1].connection.request("POST", CHAT, b"{}")
    sim.wait_stats(stalled=2, in_flight=3)  # with the one that asks
    sim.faults(stall_rate=0)
    ok(sim.post(CHAT, chat("x")))
    for client in stalled:
        client.close()
    sim.wait_stats(aborted=2, in_flight=1)


@pytest.mark.parametrize("events", [0, 1, 5])
def test_cut_streams(sim, events):
    with sim.stream(CHAT, chat("x", stream=True), {"x-sim-cut": str(events)}) as stream:
        assert stream.status == 200
        assert len(stream.all()) == events
        assert not stream.complete and stream.error is not None
    sim.faults(cut_clean=True)
    for path in ("/v1/messages", CHAT):
        with sim.stream(path, messages("x", stream=True), {"x-sim-cut": str(events)}) as stream:
            assert len(stream.all()) == events
            assert stream.complete
    assert sim.stats()["cut"] == 3


def test_cut_rate_and_cut_replies(sim):
    reply = sim.post(CHAT, chat("x"), {"x-sim-cut": "0"})
    assert reply.status == 200 and not reply.complete
    sim.faults(cut_rate=1)
    for path in ("/v1/messages", CHAT):
        with sim.stream(path, messages("x", stream=True)) as stream:
            assert 1 <= len(stream.all()) <= 17 and not stream.complete


def test_error_inside_a_stream(sim):
    with sim.stream(CHAT, chat("x", stream=True), {"x-sim-error": "3"}) as stream:
        events = stream.all()
    assert stream.complete and len(events) == 4 and "error" in events[-1].json()
    with sim.stream("/v1/messages", messages("x", stream=True), {"x-sim-error": "3"}) as stream:
        events = stream.all()
    assert events[-1].type == "error" and events[-1].json()["error"]["type"] == "api_error"


def test_usage_and_done_switches(sim):
    sim.faults(chunk_usage=True)
    with sim.stream(CHAT, chat("x", stream=True, max_tokens=3)) as stream:
        usages = [e.json()["usage"]["completion_tokens"] for e in stream.all() if e.data != "[DONE]"]
    assert usages == [0, 1, 2, 3, 3]
    sim.faults(chunk_usage=False, no_usage=True, no_done=True)
    assert "usage" not in ok(sim.post(CHAT, chat("x")))
    with sim.stream(CHAT, chat("x", stream=True, stream_options={"include_usage": True})) as stream:
        events = stream.all()
    assert stream.complete and not any("usage" in e.json() for e in events)


def test_tokens_and_delay_of_one_request(sim):
    body = ok(sim.post(CHAT, chat("x"), {"x-sim-tokens": "40"}))
    assert body["usage"]["completion_tokens"] == 40
    reply = sim.post(CHAT, chat("x"), {"x-sim-delay-ms": "150"})
    assert reply.status == 200 and reply.seconds >= 0.15
    sim.faults(head_delay_ms=100)
    with sim.stream(CHAT, chat("x", stream=True)) as stream:
        assert stream.head_at - stream.begun >= 0.1
    client = sim.client()
    client.connection.request("POST", CHAT, b'{"model":"m","messages":[{"role":"user","content":"x"}]}',
                              {"x-sim-delay-ms": "100000"})
    sim.wait_stats(in_flight=2)
    client.close()
    sim.wait_stats(aborted=1)


def test_slow_start_and_health(new_sim):
    sim = new_sim(slow_start_ms=60000)
    assert sim.get("/health").status == 503
    assert sim.post(CHAT, chat("x")).status == 503
    sim.faults(slow_start_ms=0)
    assert sim.get("/health").status == 200
    assert sim.post(CHAT, chat("x")).status == 200
    sim.faults(health_status=500)
    assert sim.get("/health").status == 500


def test_restart(new_sim):
    sim = new_sim(decode_tps=20)
    ok(sim.post(CHAT, chat(LONG, max_tokens=1)))
    started = sim.metrics()["process_start_time_seconds"]
    with sim.stream(CHAT, chat(LONG, stream=True, max_tokens=20000, ignore_eos=True)) as stream:
        stream.next()
        sim.restart()
        stream.all()
        assert not stream.complete
    stats = sim.stats()
    assert stats["requests"] == stats["blocks_resident"] == stats["prompt_tokens"] == stats["running"] == 0
    assert stats["models"] == {} and sim.metrics()["process_start_time_seconds"] > started
    body = ok(sim.post(CHAT, chat(LONG, max_tokens=1)))
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_slow_reader_does_not_grow_memory(new_sim):
    sim = new_sim(blocks=100000)
    def memory_kb():
        with open(f"/proc/{sim.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
    before = memory_kb()
    readers = [sim.stream(CHAT, chat("x", stream=True, max_tokens=90000, ignore_eos=True)) for _ in range(10)]
    for reader in readers:
        reader.next()
    assert memory_kb() - before < 60000  # each stream is about 20 MB
    text = chat_text(readers[0].all())
    assert readers[0].complete and len(text) == 360000
    for reader in readers:
        reader.close()


def test_many_streams_at_once(new_sim):
    sim = new_sim(decode_tps=20, max_running=1000)
    streams = [sim.stream(CHAT, chat(f"number {i}", stream=True, max_tokens=10)) for i in range(300)]
    for stream in streams:
        events = stream.all()
        assert stream.complete and len([e for e in events if e.data != "[DONE]"]) == 12
        stream.close()
    assert sim.wait_stats(in_flight=1)["answered"] == 300


# ---- the program

def test_command_line():
    help_text = Process("rolter-sim", "--help").start()
    assert help_text.wait() == 0 and "--prefill-tps" in help_text.stdout
    for bad in (["--nothing"], ["--blocks", "0"], ["--fail-rate", "1.5"], ["--blocks"], ["--listen", "here"]):
        wrong = Process("rolter-sim", *bad).start()
        assert wrong.wait() in (1, 2) and "rolter-sim: " in wrong.stderr


def test_port_file_and_signals(new_sim, tmp_path):
    for number in (signal.SIGTERM, signal.SIGINT):
        sim = new_sim(port_file=tmp_path / "port", decode_tps=20)
        assert int((tmp_path / "port").read_text()) == sim.port
        assert sim.stdout == f"listening on http://127.0.0.1:{sim.port}"
        with sim.stream(CHAT, chat("x", stream=True, max_tokens=2000, ignore_eos=True)) as stream:
            stream.next()
            sim.signal(number)
            assert sim.wait() == 0
            stream.all()
            assert not stream.complete
