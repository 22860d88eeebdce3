# SPDX-License-Identifier: Apache-2.0
"""cache_aware, seen from outside: conversations stay, nobody is crowded, failures and restarts are not remembered as
warmth, a reload is."""

import collections
import threading

from harness import DEADLINE, chat, wait_until
from upstream import chat_reply, fleet, metric

CHAT = "/v1/chat/completions"
NO_COOLDOWN = "[cooldown]\nbase_secs = 0\n\n[breaker]\nenabled = false\n"
# A reply that stays below the threshold of the next turn's text would be a new prompt; these do not.
LONG = "Tell me about the history of tea, from its beginnings to the present day, in as much detail as you like. "


def who(gateway, body):
    """The provider that answered, and why it was picked."""
    reply = gateway.post(CHAT, body)
    return reply.headers["x-rolter-provider"], gateway.row_of(reply)["pick_reason"]


def test_conversation_stays(new_upstream, new_gateway):
    gateway = new_gateway(fleet([new_upstream() for _ in range(3)], strategy="cache_aware"), rows=True)
    homes = {}
    for name in ("tea", "coffee", "milk"):
        turns = [("user", f"{name}: {LONG}{name}")]
        first, reason = who(gateway, chat(turns))
        assert reason == "least_load"
        for n in range(5):
            turns += [("assistant", f"Reply {n}."), ("user", f"Go on {n}.")]
            assert who(gateway, chat(turns)) == (first, "affinity")
        homes[name] = first
    assert sorted(homes.values()) == ["p0", "p1", "p2"]


def test_shared_system_prompt_does_not_crowd(new_upstream, new_gateway):
    """24 requests at a time that share a long system prompt: each of three replicas gets 6 to 10."""
    everybody = threading.Barrier(24)

    def answer(call):
        everybody.wait(DEADLINE)
        call.reply(200, chat_reply(call.upstream.name))

    gateway = new_gateway(fleet([new_upstream(answer) for _ in range(3)], strategy="cache_aware"))
    counts, lock = collections.Counter(), threading.Lock()

    def work(n):
        reply = gateway.post(CHAT, chat([("system", "Be helpful. " * 300), ("user", f"Question {n}")]))
        with lock:
            counts[reply.headers["x-rolter-provider"]] += 1

    threads = [threading.Thread(target=work, args=(n,)) for n in range(24)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sum(counts.values()) == 24 and all(6 <= counts[f"p{i}"] <= 10 for i in range(3)), counts


def test_failed_attempt_leaves_no_warmth(new_upstream, new_gateway):
    """The target that failed is not the prompt's home, whatever it answers later."""
    broken = [True]

    def answer(call):
        call.reply(*(500, {"error": {"message": "not now"}}) if broken[0] else (200, chat_reply(call.upstream.name)))

    gateway = new_gateway(fleet([new_upstream(answer), new_upstream()], strategy="cache_aware", more=NO_COOLDOWN),
                          rows=True)
    prompts = [f"{n}: {LONG}" for n in range(8)]
    assert {who(gateway, chat(p))[0] for p in prompts} == {"p1"}
    broken[0] = False
    for p in prompts:
        assert who(gateway, chat(p)) == ("p1", "affinity")


def test_refused_request_leaves_no_warmth(new_upstream, new_gateway):
    def answer(call):
        call.reply(400, {"error": {"message": "no"}})

    gateway = new_gateway(fleet([new_upstream(answer)] * 2, strategy="cache_aware"), rows=True)
    assert [who(gateway, chat(LONG))[1] for _ in range(4)] == ["least_load"] * 4


def test_warmth_survives_a_reload(new_upstream, new_gateway):
    ups = [new_upstream() for _ in range(3)]

    def config(order):
        text = "".join(f'[[providers]]\nname = "p{i}"\nkind = "openai_compatible"\napi_base = "{u.url}"\n\n'
                       for i, u in enumerate(ups))
        targets = ", ".join(f'{{ provider = "p{i}" }}' for i in order)
        return text + f'[[routes]]\nmodel = "m"\nstrategy = "cache_aware"\ntargets = [{targets}]\n'

    gateway = new_gateway(config([0, 1]), rows=True)
    prompts = [f"{n}: {LONG}" for n in range(6)]
    homes = [who(gateway, chat(p))[0] for p in prompts]
    assert set(homes) == {"p0", "p1"}
    gateway.reload_and_wait(config([2, 1, 0]))
    assert [who(gateway, chat(p)) for p in prompts] == [(h, "affinity") for h in homes]
    # One is away for a while; what it knows is there when it is back.
    gateway.reload_and_wait(config([2, 1]))
    assert all(who(gateway, chat(p))[0] in ("p1", "p2") for p, h in zip(prompts, homes) if h == "p1")
    gateway.reload_and_wait(config([0, 1, 2]))
    assert [who(gateway, chat(p)) for p in prompts] == [(h, "affinity") for h in homes]


def test_caps_and_their_metric(new_upstream, new_gateway):
    """The prompt recorded least recently goes; the counter says so from the start."""
    gateway = new_gateway(fleet([new_upstream()] * 2, strategy="cache_aware",
                                route="affinity = { max_nodes = 1, threshold = 1.0 }"), rows=True)
    names = [metric("rolter_prefix_evictions_total", model="m", target=f"p{i}/m") for i in range(2)]
    assert [gateway.metrics()[n] for n in names] == [0, 0]
    prompts = [f"{n} {LONG}" for n in range(4)]
    homes = [who(gateway, chat(p))[0] for p in prompts]
    assert collections.Counter(homes) == {"p0": 2, "p1": 2}
    assert [gateway.metrics()[n] for n in names] == [1, 1]
    assert who(gateway, chat(prompts[3])) == (homes[3], "affinity")
    assert who(gateway, chat(prompts[0]))[1] == "least_load"


def test_tools_come_first_when_asked_for(new_upstream, new_gateway):
    upstreams = [new_upstream() for _ in range(2)]
    tools = [{"type": "function", "function": {"name": f"tool_{i}", "description": LONG}} for i in range(8)]
    reasons = {}
    for include in ("false", "true"):
        gateway = new_gateway(fleet(upstreams, strategy="cache_aware",
                                    route=f"affinity = {{ include_tools = {include} }}"), rows=True)
        for name in ("tea", "coffee"):
            reasons[include, name] = who(gateway, chat(name + LONG, tools=tools))[1]
    assert reasons == {("false", "tea"): "least_load", ("false", "coffee"): "least_load",
                       ("true", "tea"): "least_load", ("true", "coffee"): "affinity"}


def reasons(gateway, homes):
    return {provider: who(gateway, chat(prompt))[1] for provider, prompt in homes.items()}


def two_homes(gateway):
    """Makes each of two providers warm: provider -> its prompt."""
    homes = {}
    for n in range(2):
        prompt = f"{n}: {LONG}"
        homes[who(gateway, chat(prompt))[0]] = prompt
    assert sorted(homes) == ["p0", "p1"]
    assert {p: who(gateway, chat(prompt)) for p, prompt in homes.items()} == {p: (p, "affinity") for p in homes}
    return homes


def test_back_from_the_dead_is_cold(new_sim, new_gateway):
    sims = [new_sim(), new_sim()]
    gateway = new_gateway(fleet(sims, strategy="cache_aware", more=(
        '[health]\nenabled = true\ninterval_secs = 1\ntimeout_secs = 1\npath = "/health"\n'
        "consecutive_failure_threshold = 1\nrecovery_success_threshold = 1\n")), rows=True)
    homes = two_homes(gateway)
    sims[1].faults(health_status=503)
    gateway.wait_metric(metric("rolter_provider_healthy", provider="p1"), 0)
    sims[1].faults(health_status=200)
    gateway.wait_metric(metric("rolter_provider_healthy", provider="p1"), 1)
    assert reasons(gateway, homes) == {"p0": "affinity", "p1": "least_load"}


def test_restarted_engine_is_cold(new_sim, new_gateway):
    """Seen by the start time among its metrics, though it was never found unhealthy."""
    sims = [new_sim(), new_sim()]
    gateway = new_gateway(fleet(sims, strategy="cache_aware",
                                more="[metrics_scrape]\nenabled = true\ninterval_secs = 1\n"), rows=True)

    def wait_scrapes(more):
        goal = gateway.metrics()["rolter_metrics_scrapes_total"] + more
        wait_until(lambda: gateway.metrics()["rolter_metrics_scrapes_total"] >= goal, "scrapes")

    homes = two_homes(gateway)
    wait_scrapes(4)
    sims[1].restart()
    wait_scrapes(4)
    assert reasons(gateway, homes) == {"p0": "affinity", "p1": "least_load"}
