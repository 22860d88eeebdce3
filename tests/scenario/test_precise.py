# SPDX-License-Identifier: Apache-2.0
"""precise_cache_aware end to end: simulated engines publish their events and tokenize; clients send plain chats."""

import random

import pytest

from harness import chat, wait_until

CHAT = "/v1/chat/completions"
PORT = "tcp://127.0.0.1:*"
FORMATS = ["vllm-map", "vllm-array", "sglang-map", "sglang-array"]


def events(sim):
    return sim.stats()["events"]


def config(sims, provider="", events_on=True):
    text = ""
    for i, sim in enumerate(sims):
        text += f'[[providers]]\nname = "p{i}"\nkind = "openai_compatible"\napi_base = "{sim.url}"\n\n'
        if events_on:
            told = events(sim)
            text += (f'[providers.kv_events]\nendpoint = "{told["endpoint"]}"\ntopic = ""\n'
                     f'replay_endpoint = "{told["replay_endpoint"]}"\n{provider}\n')
    targets = ", ".join(f'{{ provider = "p{i}" }}' for i in range(len(sims)))
    return text + ('[[routes]]\nmodel = "m"\nstrategy = "precise_cache_aware"\ntokenize = "engine"\n'
                   f'tokenize_timeout_ms = 5000\ntargets = [{targets}]\n')


@pytest.fixture
def fleet(new_sim, new_gateway):
    """fleet(n, formats, options): engines with events, and a gateway that listens to all of them."""
    def make(n=3, formats=("vllm-map",), provider="", **options):
        sims = [new_sim(events=PORT, events_replay=PORT, model="m", tokens=32, events_format=formats[i % len(formats)],
                        **options) for i in range(n)]
        gateway = new_gateway(config(sims, provider=provider), rows=True)
        wait_until(lambda: all(events(sim)["subscriptions"] == 1 for sim in sims), "the gateway's subscriptions")
        return sims, gateway
    return make


def settled(gateway, sims):
    """Until the gateway has applied all that was published."""
    def look():
        return gateway.metrics()["rolter_kv_events_total"] == sum(events(sim)["events"] for sim in sims)
    wait_until(look, "all events")


def replays(gateway):
    return sum(value for name, value in gateway.metrics().items() if name.startswith("rolter_kv_event_replays_total"))


class Conversation:
    """Turns with a growing history; where each was served, and how much of it the engine had cached."""

    def __init__(self, gateway, number):
        self.gateway, self.turns = gateway, []
        self.words = random.Random(number)
        self.served, self.cached, self.rows = [], [], []

    def say(self, words=120, **more):
        self.turns.append(("user", " ".join(self.words.choice("alpha beta gamma delta epsilon zeta eta".split())
                                            for _ in range(words))))
        reply = self.gateway.post(CHAT, chat(self.turns, **more))
        assert reply.status == 200, reply
        body = reply.json()
        usage = body["usage"]
        self.turns.append(("assistant", body["choices"][0]["message"]["content"]))
        self.served.append(reply.headers["x-rolter-provider"])
        self.cached.append(usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"])
        self.rows.append(self.gateway.row_of(reply))


@pytest.mark.parametrize("formats", [[one] for one in FORMATS] + [FORMATS], ids=FORMATS + ["mixed"])
def test_conversations_stay_with_their_blocks(fleet, formats):
    """Clients send text and nothing else. Every follow-up goes where its history is, in every dialect of events."""
    sims, gateway = fleet(4, formats)
    talks = [Conversation(gateway, number) for number in range(8)]
    for turn in range(4):
        for talk in talks:
            settled(gateway, sims)
            talk.say()
    for talk in talks:
        assert len(set(talk.served)) == 1, talk.served
        assert all(share > 0.4 for share in talk.cached[1:]), talk.cached
        assert {row["pick_reason"] for row in talk.rows[1:]} == {"score"}
    used = [talk.served[0] for talk in talks]
    assert {used.count(f"p{i}") for i in range(4)} == {2}  # and new ones are spread


def test_the_prediction_is_what_the_engine_reports(fleet):
    """The resident share of the pick's own replica, against its usage."""
    sims, gateway = fleet(2)
    talk = Conversation(gateway, 1)
    for turn in range(6):
        settled(gateway, sims)
        talk.say()
        resident = float(talk.rows[-1]["pick_detail"].split("resident=")[1].split()[0])
        if turn == 0:
            assert resident == 0
        else:
            # The ids are those of the turn before when the new one is asked for in the background.
            assert abs(resident - talk.cached[-1]) < 0.1 or resident > talk.cached[-1]


def test_a_replica_that_lost_its_cache_is_cold(fleet):
    sims, gateway = fleet(2)
    talk = Conversation(gateway, 2)
    for _ in range(3):
        talk.say()
        settled(gateway, sims)
    home = int(talk.served[0][1])
    assert set(talk.served) == {f"p{home}"}
    # Another replica is given the same history while its engine's cache is cleared: the blocks are there now.
    assert sims[1 - home].post(CHAT, chat(talk.turns)).status == 200
    sims[home].post("/reset_prefix_cache", {})
    settled(gateway, sims)
    talk.say()
    assert talk.served[-1] == f"p{1 - home}" and talk.cached[-1] > 0.4


def test_a_restarted_engine_is_cold_and_learns_again(fleet):
    sims, gateway = fleet(2)
    talk = Conversation(gateway, 3)
    for _ in range(3):
        talk.say()
        settled(gateway, sims)
    home = int(talk.served[0][1])
    before = replays(gateway)
    sims[home].restart()
    wait_until(lambda: replays(gateway) > before and events(sims[home])["subscriptions"] == 1, "the new connection")

    def is_cold():
        """A short prompt of its own, whose beginning the old engine held."""
        row = gateway.row_of(gateway.post(CHAT, chat(talk.turns[:1], max_tokens=1)))
        return "resident=0.00" in row["pick_detail"]
    wait_until(is_cold, "the restart being seen")
    again = Conversation(gateway, 4)
    again.say()
    wait_until(lambda: (again.say(20), again.cached[-1] > 0.4)[1], "the conversation finding its blocks")
    assert len(set(again.served)) == 1


def test_evicted_conversations_are_not_believed_in(fleet):
    """Small caches: what the engines have put out, the gateway has forgotten too, so a share is never promised in vain."""
    sims, gateway = fleet(2, blocks=120)
    talks = [Conversation(gateway, number) for number in range(10, 22)]
    for turn in range(3):
        for talk in talks:
            settled(gateway, sims)
            talk.say(100)
            detail = talk.rows[-1]["pick_detail"]
            resident = float(detail.split("resident=")[1].split()[0])
            # Never more than the engine then found, but for the ids of the turn before and the block at the end.
            assert resident <= talk.cached[-1] * 2 + 0.1, (detail, talk.cached[-1])
    assert sum(events(sim)["events"] for sim in sims) > 300
    held = sum(sim.stats()["blocks_resident"] for sim in sims)
    assert held <= 240


@pytest.mark.parametrize("faults", [{"events_drop_every": 4}, {"events_malformed_every": 5}, {"events_duplicate_every": 2}])
def test_faults_of_the_stream_cost_recall_at_most(fleet, faults):
    """Gaps, broken batches, doubled ones: replies go on, and conversations find their blocks all the same in the end."""
    sims, gateway = fleet(3, provider='on_gap = "resume"\n')
    for sim in sims:
        sim.faults(**faults)
    talks = [Conversation(gateway, number) for number in range(30, 34)]
    for _ in range(5):
        for talk in talks:
            talk.say()
    for sim in sims:
        sim.faults(**{name: 0 for name in faults})
    wait_until(lambda: [talk.say(20) for talk in talks] and all(talk.cached[-1] > 0.5 for talk in talks),
               "all conversations at their blocks")


def test_without_events_the_load_decides(new_sim, new_gateway):
    sims = [new_sim(), new_sim()]
    gateway = new_gateway(config(sims, events_on=False), rows=True)
    rows = [gateway.row_of(gateway.post(CHAT, chat(f"hello {i}"))) for i in range(8)]
    assert {row["pick_reason"] for row in rows} == {"least_load"}
    assert all("resident=no_index" in row["pick_detail"] for row in rows)
    assert [row["provider"] for row in rows].count("p0") == 4
