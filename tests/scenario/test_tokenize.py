# SPDX-License-Identifier: Apache-2.0
"""tokenize = "engine": token ids from an engine's /tokenize, in time or not at all."""

import json
import threading
import time

import pytest

from harness import chat, messages, wait_until
from upstream import chat_reply, fleet, metric

CHAT = "/v1/chat/completions"
ENGINE = 'tokenize = "engine"\ntokenize_timeout_ms = 5000\n'
# pick_detail says so when there were ids and nobody's events to compare them with.
HAD_IDS = "resident=no_index"


def config(upstreams, route=ENGINE, **more):
    """A route over them; one alone stands there twice, because with a single target nothing is chosen."""
    return fleet(upstreams if len(upstreams) > 1 else upstreams * 2, "precise_cache_aware", route=route, **more)


def outcomes(gateway):
    names = ("cached", "beginning", "engine", "timeout", "failed", "unavailable", "unsupported")
    now = gateway.metrics()
    values = {name: now[metric("rolter_tokenize_requests_total", outcome=name)] for name in names}
    return {name: value for name, value in values.items() if value}


def questions(sims):
    return [json.loads(request["body"]) for sim in sims for request in sim.requests()
            if request["target"] == "/tokenize"]


def detail(gateway, body, path=CHAT, headers=None):
    reply = gateway.post(path, body, headers)
    assert reply.status == 200, reply
    return gateway.row_of(reply)["pick_detail"]


class Engine:
    """An upstream whose /tokenize does what a test wants: .answer(call); .asked counts its questions."""

    def __init__(self, new_upstream):
        self.asked = 0
        self.answer = lambda call: call.reply(200, {"count": 3, "max_model_len": 100, "tokens": [1, 2, 3]})
        self.upstream = new_upstream(self._serve)
        self.url = self.upstream.url

    def _serve(self, call):
        if call.target == "/tokenize":
            self.asked += 1
            self.answer(call)
        else:
            call.reply(200, chat_reply("fine"))


@pytest.fixture
def engine(new_upstream):
    return Engine(new_upstream)


def test_an_engine_is_asked_once_per_turn(new_sim, new_gateway):
    sims = [new_sim(), new_sim()]
    gateway = new_gateway(config(sims), rows=True, server="workers = 2")
    turns = [("system", "You are terse."), ("user", "What is a lighthouse? " * 20)]
    assert HAD_IDS in detail(gateway, chat(turns, temperature=0))
    [question] = questions(sims)
    assert question == {"model": "m", "messages": chat(turns)["messages"]}
    assert outcomes(gateway) == {"engine": 1}
    # The same conversation again, other parameters: known.
    assert HAD_IDS in detail(gateway, chat(turns, temperature=1, max_tokens=3))
    assert outcomes(gateway) == {"engine": 1, "cached": 1}
    # The next turn: the ids of this one will do, and the engine is asked meanwhile.
    turns += [("assistant", "A tower."), ("user", "And?")]
    assert HAD_IDS in detail(gateway, chat(turns))
    wait_until(lambda: len(questions(sims)) == 2, "the question in the background")
    wait_until(lambda: HAD_IDS in detail(gateway, chat(turns)) and outcomes(gateway).get("cached") == 2,
               "its answer in the cache")
    assert outcomes(gateway)["beginning"] >= 1 and len(questions(sims)) == 2
    # A turn that is mostly new is worth the wait.
    turns += [("assistant", "Yes."), ("user", "Read this. " * 200)]
    detail(gateway, chat(turns))
    assert outcomes(gateway)["engine"] == 2


def test_what_the_template_reads_goes_along(new_sim, new_gateway):
    sim = new_sim()
    route = ENGINE + 'params = { chat_template_kwargs = { thinking = false } }\n'
    gateway = new_gateway(config([sim], route), rows=True)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    detail(gateway, chat("x", tools=tools, add_generation_prompt=False, user="somebody"))
    [question] = questions([sim])
    assert question == {"model": "m", "messages": chat("x")["messages"], "tools": tools,
                        "add_generation_prompt": False, "chat_template_kwargs": {"thinking": False}}
    detail(gateway, chat("x"))
    assert len(questions([sim])) == 2  # without tools it is another prompt


def test_other_dialects(new_sim, new_gateway):
    """What is asked gives the ids of what the engine then computes."""
    sim = new_sim(record=100)
    gateway = new_gateway(config([sim]), rows=True)
    asks = [("/v1/completions", {"model": "m", "prompt": "Once upon a time"}, lambda u: u["prompt_tokens"]),
            (CHAT, chat([("system", "Be terse."), ("user", "hello")]), lambda u: u["prompt_tokens"]),
            ("/v1/messages", {**messages("hello there"), "system": "Be terse."}, lambda u: u["input_tokens"]),
            ("/v1/responses", {"model": "m", "instructions": "Be brief.", "input": "hello"},
             lambda u: u["input_tokens"])]
    for path, body, tokens in asks:
        before = len(questions([sim]))
        usage = gateway.post(path, body).json()["usage"]
        question = questions([sim])[before]
        assert len(sim.post("/tokenize", question).json()["tokens"]) == tokens(usage), path
    assert outcomes(gateway) == {"engine": 4}
    # Ids in the body itself: nobody is asked.
    n = len(questions([sim]))
    assert HAD_IDS in detail(gateway, {"model": "m", "prompt": [5, 6, 7]}, "/v1/completions")
    assert "resident=tokenize_unsupported" in detail(gateway, {"model": "m", "prompt": ["a", "b"]}, "/v1/completions")
    assert len(questions([sim])) == n and outcomes(gateway) == {"engine": 4, "unsupported": 1}


def test_the_header_wins(engine, new_gateway):
    gateway = new_gateway(config([engine]), rows=True)
    assert HAD_IDS in detail(gateway, chat("x"), headers={"x-rolter-vllm-token-ids": "1, 2"})
    assert engine.asked == 0
    assert HAD_IDS in detail(gateway, chat("x"), headers={"x-rolter-vllm-token-ids": "1, x"})
    assert engine.asked == 1


def test_nobody_is_asked_where_nothing_is_chosen(engine, new_gateway):
    gateway = new_gateway(fleet([engine], "precise_cache_aware", route=ENGINE), rows=True)
    assert detail(gateway, chat("x")) == ""
    assert engine.asked == 0 and outcomes(gateway) == {}


def test_header_alone_is_the_default(engine, new_gateway):
    gateway = new_gateway(config([engine], ""), rows=True)
    assert "resident=no_ids" in detail(gateway, chat("x"))
    assert engine.asked == 0 and outcomes(gateway) == {}


def test_the_path_stands_beside_v1(engine, new_gateway):
    text = config([engine]).replace(f'api_base = "{engine.url}"', f'api_base = "{engine.url}/v1/"\napi_key = "k"')
    gateway = new_gateway(text, rows=True)
    assert HAD_IDS in detail(gateway, chat("x"))
    call = next(call for call in engine.upstream.calls if call.target == "/tokenize")
    assert call.method == "POST" and call.headers["authorization"] == "Bearer k"


def test_too_slow_is_neutral(engine, new_gateway):
    gateway = new_gateway(config([engine], 'tokenize = "engine"\ntokenize_timeout_ms = 100\n'), rows=True,
                          server="workers = 1")
    release = threading.Event()
    answer = engine.answer

    def slowly(call):
        release.wait(10)
        answer(call)
    engine.answer = slowly
    started = time.monotonic()
    assert "resident=tokenize_timeout" in detail(gateway, chat("x"))
    assert 0.1 <= time.monotonic() - started < 3
    assert "resident=tokenize_timeout" in detail(gateway, chat("y"))
    # Both replicas rest: the next ones do not wait at all.
    assert "resident=tokenize_unavailable" in detail(gateway, chat("z"))
    assert outcomes(gateway) == {"timeout": 2, "unavailable": 1} and engine.asked == 2
    # The late answer is not lost.
    release.set()
    wait_until(lambda: HAD_IDS in detail(gateway, chat("x")) and outcomes(gateway).get("cached"), "the late answer")
    # After its rest it is asked again.
    engine.answer = answer
    numbers = iter(range(10**6))
    wait_until(lambda: HAD_IDS in detail(gateway, chat(f"z {next(numbers)}")), "another question")


BAD = {
    "status": lambda call: call.reply(500, {}),
    "no json": lambda call: call.reply(200, b"{"),
    "no tokens": lambda call: call.reply(200, {"count": 0}),
    "signed": lambda call: call.reply(200, {"tokens": [1, -2]}),
    "too large": lambda call: call.reply(200, {"tokens": [2**32]}),
    "reset": lambda call: call.reset(),
    "cut": lambda call: (call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"tok"), call.close()),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_answer_is_neutral(engine, new_gateway, bad):
    gateway = new_gateway(config([engine]), rows=True)
    engine.answer = BAD[bad]
    assert "resident=tokenize_failed" in detail(gateway, chat("x"))
    assert outcomes(gateway) == {"failed": 1}


def test_an_engine_without_the_path_is_left_alone(new_upstream, new_gateway):
    """The other replica is asked instead, and the first one not again for a while."""
    without, engine = Engine(new_upstream), Engine(new_upstream)
    without.answer = lambda call: call.reply(404, {"detail": "Not Found"})
    gateway = new_gateway(config([without, engine]), rows=True, server="workers = 1")
    for i in range(40):
        detail(gateway, chat(f"question {i}"))
    assert without.asked == 1 and engine.asked == 39


def test_a_refused_question_is_no_fault_of_the_engine(engine, new_gateway):
    gateway = new_gateway(config([engine]), rows=True)
    good = engine.answer
    engine.answer = lambda call: call.reply(400, {"error": "no"})
    assert "resident=tokenize_failed" in detail(gateway, chat("x"))
    engine.answer = good
    assert HAD_IDS in detail(gateway, chat("y"))


def test_equal_questions_share_one_answer(engine, new_gateway):
    gateway = new_gateway(config([engine]), rows=True, server="workers = 1")
    release, good = threading.Event(), engine.answer
    engine.answer = lambda call: (release.wait(10), good(call))
    details = []
    threads = [threading.Thread(target=lambda: details.append(detail(gateway, chat("the same")))) for _ in range(6)]
    for thread in threads:
        thread.start()
    wait_until(lambda: gateway.metrics()["rolter_inflight_requests"] == 6, "six requests")
    release.set()
    for thread in threads:
        thread.join()
    assert len(details) == 6 and all(HAD_IDS in one for one in details)
    assert engine.asked == 1 and outcomes(gateway) == {"engine": 6}


def test_waiting_holds_nobody_up(engine, new_gateway):
    """One worker: while a request waits for its ids, others are served, and a client may leave."""
    gateway = new_gateway(config([engine], more='[[routes]]\nmodel = "plain"\ntargets = [{ provider = "p0", model = "m" }]\n'),
                          rows=True, server="workers = 1")
    release, good = threading.Event(), engine.answer
    engine.answer = lambda call: (release.wait(10), good(call))
    waits = threading.Thread(target=detail, args=(gateway, chat("waits")))
    waits.start()
    wait_until(lambda: engine.asked == 1, "the question")
    for _ in range(20):
        assert gateway.post(CHAT, chat("x", "plain")).status == 200
    leaver = gateway.client(0.2)
    with pytest.raises(TimeoutError):
        leaver.request("POST", CHAT, chat("leaves"))
    leaver.close()
    wait_until(lambda: [row for row in gateway.rows() if row["status"] == 499], "the one that left")
    assert waits.is_alive()
    release.set()
    waits.join()
    # Its answer comes all the same, and is kept.
    wait_until(lambda: engine.asked == 2, "its question")
    assert HAD_IDS in detail(gateway, chat("leaves"))
    assert outcomes(gateway)["cached"] == 1


def test_it_ends_while_engines_are_asked(engine, new_gateway):
    gateway = new_gateway(config([engine], 'tokenize = "engine"\ntokenize_timeout_ms = 50\n'), rows=True)
    release, good = threading.Event(), engine.answer
    engine.answer = lambda call: (release.wait(10), good(call))
    detail(gateway, chat("x"))
    gateway.stop()  # with 0 and without a word of a sanitizer
    release.set()


def test_a_reload_while_engines_are_asked(engine, new_gateway):
    text = config([engine])
    gateway = new_gateway(text, rows=True)
    release, good = threading.Event(), engine.answer
    engine.answer = lambda call: (release.wait(10), good(call))
    details = []
    waits = threading.Thread(target=lambda: details.append(detail(gateway, chat("waits"))))
    waits.start()
    wait_until(lambda: engine.asked == 1, "the question")
    for i in range(3):
        gateway.reload_and_wait(text + f"# {i}\n")
    release.set()
    waits.join()
    assert HAD_IDS in details[0]
