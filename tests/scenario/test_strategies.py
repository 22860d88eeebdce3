# SPDX-License-Identifier: Apache-2.0
"""Strategies that score targets, in front of simulated replicas; and who is told why a target was picked."""

import re

from harness import chat
from upstream import fleet, metric, wait_idle

CHAT = "/v1/chat/completions"
EXPLAIN = {"x-rolter-explain": "1"}


def by(reply):
    assert reply.status == 200, reply
    return reply.headers["x-rolter-provider"]


def picks(gateway, n, text="x", **headers):
    return [by(gateway.post(CHAT, chat(text), headers)) for _ in range(n)]


class Held:
    """Requests that stay under way until the block ends: streams of a replica that takes its time."""

    def __init__(self, gateway, n, provider):
        self.gateway, self.n, self.provider = gateway, n, provider

    def __enter__(self):
        self.streams = [self.gateway.stream(CHAT, chat("hold", stream=True)) for _ in range(self.n)]
        for stream in self.streams:
            assert stream.headers["x-rolter-provider"] == self.provider
        self.gateway.wait_metric(metric("rolter_inflight", provider=self.provider), self.n)
        return self

    def __exit__(self, *_):
        for stream in self.streams:
            stream.close()


def test_fastest_prefers_the_fast_one(new_sim, new_gateway):
    slow, fast = new_sim(head_delay_ms=150), new_sim(head_delay_ms=5)
    gateway = new_gateway(fleet([slow, fast], "fastest"), rows=True)
    picks(gateway, 4)  # both have been asked by then
    assert picks(gateway, 20) == ["p1"] * 20
    assert slow.stats()["requests"] <= 4
    row = gateway.row_of(gateway.post(CHAT, chat("x")))
    assert row["pick_reason"] == "score"
    assert row["pick_detail"] == "load=0 least=0 score=1.250 runner_up=p0/m runner_up_score=0.250"


def test_the_whole_reply_counts(new_sim, new_gateway):
    """A replica whose head is quick and whose stream is slow is slow."""
    quick_head, quick_all = new_sim(decode_tps=40, tokens=12), new_sim(head_delay_ms=60)
    gateway = new_gateway(fleet([quick_head, quick_all], "fastest"))
    for _ in range(4):
        gateway.stream(CHAT, chat("x", stream=True)).all()
    for _ in range(6):
        stream = gateway.stream(CHAT, chat("x", stream=True))
        stream.all()
        assert stream.headers["x-rolter-provider"] == "p1"


def test_predicted_latency_learns_the_length(new_sim, new_gateway):
    """One replica begins at once and reads slowly, the other the other way round. Other routes over the same targets
    teach, so that each target has seen both lengths."""
    slow_reader, late_starter = new_sim(prefill_tps=80000), new_sim(head_delay_ms=80)
    teachers = "".join(f'[[routes]]\nmodel = "teach{i}"\nstrategy = "consistent_hash"\n'
                       f'targets = [{{ provider = "p{i}", model = "m" }}]\n\n' for i in range(2))
    gateway = new_gateway(fleet([slow_reader, late_starter], "predicted_latency", teachers))
    short, long = "hello", "word " * 16000
    number = iter(range(1000))

    def ask(text, model="m"):  # never the same beginning twice: the replicas cache, the predictor does not know
        return by(gateway.post(CHAT, chat(f"{next(number)} {text}", model)))

    for _ in range(16):
        for i in range(2):
            for text in (short, long):
                assert ask(text, f"teach{i}") == f"p{i}"
    # One hiccup of a busy machine may mislead it once.
    assert [ask(short) for _ in range(8)].count("p0") >= 7
    assert [ask(long) for _ in range(4)].count("p1") >= 3


PRICES = """
[[model_prices]]
model = "cheap"
input_per_mtok = 0.5
output_per_mtok = 1.5

[[model_prices]]
model = "medium"
input_per_mtok = 0.6
output_per_mtok = 1.8

[[model_prices]]
model = "dear"
input_per_mtok = 4
output_per_mtok = 16
"""


def test_cheapest_until_loaded(new_sim, new_gateway):
    sims = [new_sim(decode_tps=2, tokens=400, max_running=64) for _ in range(3)]
    text = fleet(sims, "cheapest", PRICES)
    text = re.sub(r"targets = .*", 'targets = [{ provider = "p0", model = "dear" }, { provider = "p1", model = "cheap" }, '
                                   '{ provider = "p2", model = "medium" }]', text)
    gateway = new_gateway(text, rows=True)
    with Held(gateway, 1, "p1"):
        # Loads 0, 1, 0: 0 + 0.25, 1 + 0, 0.98 + 0.25.
        with gateway.stream(CHAT, chat("x", stream=True)) as second:
            assert second.headers["x-rolter-provider"] == "p2"
            # Loads 0, 1, 1: the price decides again.
            with gateway.stream(CHAT, chat("x", stream=True)) as third:
                assert third.headers["x-rolter-provider"] == "p1"
    wait_idle(gateway, ("p0", "p1", "p2"))
    with gateway.stream(CHAT, chat("x", stream=True)) as again:
        assert again.headers["x-rolter-provider"] == "p1"
    assert sims[0].stats()["requests"] == 0


def test_pipeline_keeps_a_session(new_sim, new_gateway):
    sims = [new_sim() for _ in range(3)]
    gateway = new_gateway(fleet(sims, "pipeline", "[server]\nhost = \"127.0.0.1\"\nport = 0\nworkers = 2"))
    homes = {}
    for turn in range(5):
        for session in range(12):
            reply = gateway.post(CHAT, chat(f"{session:02} " * 50 + f"turn {turn}"), {"x-session-id": f"s{session}"})
            assert homes.setdefault(session, by(reply)) == by(reply)
    assert {list(homes.values()).count(f"p{i}") for i in range(3)} == {4}
    # Another order of the same targets is the same targets.
    text = fleet(sims, "pipeline", "[server]\nhost = \"127.0.0.1\"\nport = 0\nworkers = 2")
    gateway.reload_and_wait(re.sub(r"targets = .*", 'targets = [{ provider = "p2" }, { provider = "p0" }, '
                                                    '{ provider = "p1" }]', text))
    for session, home in homes.items():
        assert by(gateway.post(CHAT, chat("again"), {"x-session-id": f"s{session}"})) == home


def test_a_failed_attempt_is_not_a_sessions_home(new_sim, new_gateway):
    bad, good = new_sim(fail_rate=1, fail_status=500), new_sim()
    gateway = new_gateway(fleet([bad, good], "pipeline", "[cooldown]\nbase_secs = 0\n"))
    for session in range(6):
        headers = {"x-session-id": f"s{session}"}
        assert picks(gateway, 3, **headers) == ["p1"] * 3
    assert bad.stats()["requests"] <= 6


KEYS = """
[[virtual_keys]]
key = "may-ask"
name = "curious"
explain = true

[[virtual_keys]]
key = "may-not"
name = "plain"
"""


def test_who_is_told(new_sim, new_gateway):
    sims = [new_sim(), new_sim()]
    gateway = new_gateway(fleet(sims, "least_load", KEYS), rows=True)

    def ask(key, **more):
        reply = gateway.post(CHAT, chat("x"), {"authorization": f"Bearer {key}", **more})
        assert reply.status == 200
        return reply.headers.get("x-rolter-pick")

    assert ask("may-ask", **EXPLAIN) == "strategy=least_load reason=least_load load=0 least=0"
    assert ask("may-ask") is None
    assert ask("may-ask", **{"x-rolter-explain": "0"}) is None
    assert ask("may-not", **EXPLAIN) is None
    assert ask("may-not") is None
    for sim in sims:
        for request in sim.requests():
            assert not [k for k, _ in request["headers"] if k.lower() == "x-rolter-explain"]
    assert [row["pick_detail"] for row in gateway.wait_rows(5)] == ["load=0 least=0"] * 5


def test_an_open_gateway_tells_its_own_machine(new_sim, new_gateway):
    gateway = new_gateway(fleet([new_sim(), new_sim()], "pipeline"))
    reply = gateway.post(CHAT, chat("x"), EXPLAIN)
    pick = reply.headers["x-rolter-pick"]
    assert pick.startswith("strategy=pipeline reason=score ")
    other = {"p0": "p1", "p1": "p0"}[by(reply)]
    assert f"runner_up={other}/m" in pick and "load=0 least=0" in pick
    assert "x-rolter-pick" not in gateway.post(CHAT, chat("x")).headers


def test_the_last_reply_says_why_it_was_asked(new_sim, new_gateway):
    """With every target failing, the reply that is passed on is explained by its own pick."""
    sims = [new_sim(fail_rate=1, fail_status=500), new_sim(fail_rate=1, fail_status=500)]
    gateway = new_gateway(fleet(sims, "power_of_two", "[cooldown]\nbase_secs = 0\n"), rows=True)
    reply = gateway.post(CHAT, chat("x"), EXPLAIN)
    assert reply.status == 500
    assert reply.headers["x-rolter-pick"] == "strategy=power_of_two reason=only"
    row = gateway.row_of(reply)
    assert row["attempts"] == 2 and row["pick_reason"] == "only" and row["pick_detail"] == ""
    assert row["provider"] == reply.headers["x-rolter-provider"]
