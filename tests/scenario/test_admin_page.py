# SPDX-License-Identifier: Apache-2.0
"""The page of the admin listener, and what it is made of: /decisions and /status."""

import base64
import hashlib
import json
import re
import shutil
import subprocess

import pytest

from cache_rig import PATH, Counting, ask
from harness import ROOT, chat, request, wait_until
from semantic_rig import Vectors, semantic
from test_admin import admin_of
from upstream import chat_reply, dead_port, fleet

CHROMIUM = shutil.which("chromium")
NODE = shutil.which("node")
ADMIN = "\n[admin]\nport = 0\n"
LONG = " ".join(f"word{i} of the conversation" for i in range(200))


def ended(admin, n):
    """The decisions, once <n> requests have ended: that is a moment after their replies."""
    def look():
        got = request("GET", admin + "/decisions").json()
        return got if len(got) >= n else None
    return wait_until(look, f"{n} decisions")


def status_of(admin):
    return request("GET", admin + "/status").json()


# ---- the page itself

def test_the_page_needs_nothing_from_elsewhere(new_gateway, new_upstream):
    admin = admin_of(new_gateway(fleet([new_upstream()]) + ADMIN))
    reply = request("GET", admin + "/")
    html = reply.text()
    assert reply.status == 200 and reply.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.strip().split(" ", 1) for part in reply.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert policy["connect-src"] == "'self'"
    for tag in ("script", "style"):
        [inside] = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.S)
        assert len(re.findall(rf"<{tag}[ >]", html)) == 1
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert policy[f"{tag}-src"] == f"'sha256-{digest}'"
    assert reply.headers["x-content-type-options"] == "nosniff" and reply.headers["cache-control"] == "no-store"
    # No address of anybody else but the name of SVG's elements, no handler and no style in an attribute, no text as elements.
    assert set(re.findall(r"https?://[^\s\"'<>\\]+", html)) == {"http://www.w3.org/2000/svg"}
    assert set(re.findall(r"(?:src|href)=\"([^\"]*)", html)) == {"data:,"}
    assert not re.search(r"<[^>]+\s(on\w+|style)=|@import|url\(|innerHTML|insertAdjacent|document\.write|eval\(", html)


def test_methods(new_gateway, new_upstream):
    admin = admin_of(new_gateway(fleet([new_upstream()]) + ADMIN))
    for path in ("/", "/status", "/decisions", "/metrics"):
        got, head = request("GET", admin + path), request("HEAD", admin + path)
        assert got.status == head.status == 200 and head.body == b""
        assert head.headers["content-type"] == got.headers["content-type"] and int(head.headers["content-length"]) > 0
        refused = request("POST", admin + path, b"{}")
        assert refused.status == 405 and refused.headers["allow"] == "GET, HEAD"
    for path in ("/drain", "/cache/purge"):
        for method in ("GET", "HEAD"):
            refused = request(method, admin + path)
            assert refused.status == 405 and refused.headers["allow"] == "POST"
    refused = request("PUT", admin + "/cache/explain", b"{}")
    assert refused.status == 405 and refused.headers["allow"] == "GET, HEAD, POST"
    assert request("GET", admin + "/index.html").status == 404
    assert request("GET", admin + "/", headers={"host": "evil.example"}).status == 403


def test_with_a_token_the_page_alone_is_open(new_gateway, new_upstream):
    config = fleet([new_upstream()]) + ADMIN + 'token_env = "ADMIN_TOKEN"\n'
    admin = admin_of(new_gateway(config, env={"ADMIN_TOKEN": "s3cret"}))
    page = request("GET", admin + "/")
    assert page.status == 200 and "p0" not in page.text()
    assert request("HEAD", admin + "/").status == 200
    for path in ("/status", "/decisions", "/metrics", "/cache/stats", "/nothing"):
        assert request("GET", admin + path).status == 401
    assert request("GET", admin + "/decisions", headers={"authorization": "Bearer s3cret"}).json() == []
    if NODE:
        seen = look(admin, "s3cret", "p0 / m")
        assert seen["tables"]["fleet"][0][1] == "usable"


# ---- decisions

def test_decisions_tell_where_and_why(new_gateway, new_sim):
    sims = [new_sim(name=f"r{i}", block_size=16) for i in range(2)]
    gateway = new_gateway(fleet(sims, strategy="cache_aware") + ADMIN, rows=True)
    admin = admin_of(gateway)
    assert request("GET", admin + "/decisions").json() == []
    turns = [("system", "secret words " + LONG), ("user", "one")]
    for i in range(3):
        reply = gateway.post(PATH, chat(turns), {"x-request-id": f"turn-{i}"})
        assert reply.status == 200
        turns += [("assistant", "yes"), ("user", "more")]
        assert ended(admin, i + 1)[0]["request_id"] == f"turn-{i}"
    newest, middle, first = ended(admin, 3)
    assert first["reason"] == "least_load" and first["pick"]["share"] == 0
    for d in (newest, middle):
        assert d["route"] == "m" and d["strategy"] == "cache_aware" and d["reason"] == "affinity"
        assert d["pick"]["share"] > 0.9 and d["pick"]["guard"] == "ok" and d["pick"]["load"] == d["provider_load"] == 0
        assert d["provider"] == first["provider"] and d["pick"]["runner_up"] != d["provider"] + "/m"
        assert d["status"] == 200 and d["attempts"] == 1 and "cache" not in d and "error" not in d
        assert d["prompt_tokens"] > d["cached_tokens"] > 0 and 0 < d["ttft_ms"] <= d["latency_ms"]
    text = request("GET", admin + "/decisions").text()
    assert "secret" not in text and "word1" not in text
    # The same as the row says.
    row = gateway.row_of(reply)
    assert row["pick_reason"] == "affinity" and f"runner_up={newest['pick']['runner_up']}" in row["pick_detail"]
    assert row["ts"] == newest["ts"] and row["prompt_tokens"] == newest["prompt_tokens"]
    assert [d["request_id"] for d in request("GET", admin + "/decisions?limit=2").json()] == ["turn-2", "turn-1"]
    assert request("GET", admin + "/decisions?limit=0").json() == []
    for bad in ("x", "-1", "257", ""):
        assert request("GET", admin + f"/decisions?limit={bad}").status == (400 if bad else 200)


def test_the_last_ones_are_kept_over_all_workers(new_gateway, new_upstream):
    up = new_upstream(lambda call: call.reply(200, chat_reply("x")))
    gateway = new_gateway(fleet([up]) + ADMIN, server="workers = 3")
    admin = admin_of(gateway)
    for i in range(300):
        assert gateway.post(PATH, chat("x"), {"x-request-id": f"n-{i}"}).status == 200
    wait_until(lambda: request("GET", admin + "/decisions?limit=1").json()[0]["request_id"] == "n-299")
    wait_until(lambda: status_of(admin)["requests_in_flight"] == 0)
    got = [d["request_id"] for d in request("GET", admin + "/decisions").json()]
    assert len(got) == 256 and sorted(got, key=lambda i: -int(i[2:])) == [f"n-{i}" for i in range(299, 43, -1)]


def test_what_did_not_go_well(new_gateway, new_upstream):
    up = new_upstream(lambda call: call.reply(200, chat_reply("x")))
    held, port = dead_port()  # until the end of the test
    dead = f"http://127.0.0.1:{port}"
    guard = '[guardrails]\nenabled = true\n[[guardrails.rules]]\nname = "w"\npattern = "forbidden"\nstage = "pre_call"\naction = "block"\n'
    key = '[[virtual_keys]]\nkey = "sk-very-secret"\nname = "ann"\n'
    limits = '[[rate_limits]]\nscope = "key"\nid = "ann"\nrpm = 100\n'
    gateway = new_gateway(fleet([dead, up], more=guard + key + limits) + ADMIN, server="workers = 1")
    admin = admin_of(gateway)
    auth = {"authorization": "Bearer sk-very-secret"}
    assert gateway.post(PATH, chat("x"), {**auth, "x-request-id": "retried-" + "z" * 100}).status == 200
    assert gateway.post(PATH, chat("forbidden"), {**auth, "x-request-id": "blocked"}).status == 400
    assert gateway.post(PATH, chat("x"), {"x-request-id": "stranger"}).status == 401
    assert gateway.post(PATH, chat("x", model="nobody"), auth).status == 404
    blocked, retried = ended(admin, 2)
    assert retried["attempts"] == 2 and retried["provider"] == "p1" and retried["reason"] == "only"
    assert retried["request_id"] == ("retried-" + "z" * 100)[:71]
    assert blocked["status"] == 400 and blocked["error"].startswith("guardrail") and blocked["request_id"] == "blocked"
    assert "strategy" not in blocked and "provider" not in blocked and blocked["attempts"] == 0
    # Who has no key and asks for no route of ours takes nobody's place.
    assert len(request("GET", admin + "/decisions").json()) == 2
    status = status_of(admin)
    assert status["policy"]["guardrail_blocks"] == 1 and status["retries"] == 1
    assert status["providers"][0]["errors"] == {"connect": 1} and status["providers"][1]["errors"] == {}
    [rule] = status["limits"]["rules"]
    assert (rule["scope"], rule["name"], rule["rpm"]) == ("key", "ann", 100) and 1 <= rule["requests"] <= 3
    assert status["routes"][0]["responses"] == {"2xx": 1, "4xx": 1}
    for path in ("/status", "/decisions"):
        assert "very-secret" not in request("GET", admin + path).text()


def test_direct_requests_and_variants(new_gateway, new_upstream):
    up = new_upstream(lambda call: call.reply(200, chat_reply("x")))
    variants = ('[[routes.variants]]\nname = "blue"\nweight = 1\ntargets = [{ provider = "p0" }]\n')
    config = fleet([up]).replace("targets = [{ provider = \"p0\" }]\n", variants) + ADMIN
    gateway = new_gateway(config)
    admin = admin_of(gateway)
    assert gateway.post(PATH, chat("x")).status == 200
    assert gateway.post(PATH, chat("x", model="p0/other")).status == 200
    direct, routed = ended(admin, 2)
    assert direct["route"] == "provider/*" and direct["target"] == "other" and routed["variant"] == "blue"
    status = status_of(admin)
    assert status["direct"]["responses"] == {"2xx": 1}
    [variant] = status["routes"][0]["variants"]
    assert variant["requests"] == 1 and variant["targets"][0]["served"] == 1
    if NODE:
        seen = look(admin, "", "provider/*", "blue")
        assert [row[0] for row in seen["tables"]["routes"]] == ["m", "provider/*"]


# ---- status

def test_predicted_and_reported_tokens(new_gateway, new_sim):
    sims = [new_sim(name=f"r{i}", block_size=16) for i in range(2)]
    gateway = new_gateway(fleet(sims, strategy="least_prefill") + ADMIN)
    admin = admin_of(gateway)
    turns = [("user", LONG)]
    for i in range(6):
        assert gateway.post(PATH, chat(turns)).status == 200
        ended(admin, i + 1)
        turns += [("assistant", "yes"), ("user", "more of it")]
    [route] = status_of(admin)["routes"]
    busy = max(route["targets"], key=lambda t: t["served"])
    tokens = busy["prefix_tokens"]
    assert busy["served"] == 6 and tokens["prompt"] == route["tokens"]["prompt"] and tokens["cached"] > 0.7 * tokens["prompt"]
    assert tokens["predicted"] == pytest.approx(tokens["cached"], rel=0.1)
    assert busy["prediction_error"]["count"] >= 4 and busy["prediction_error"]["sum"] < 0.5
    assert 0 < busy["mirror"]["blocks"] <= busy["mirror"]["size"]
    idle = min(route["targets"], key=lambda t: t["served"])
    assert idle["mirror"]["blocks"] == 0 and idle["prefix_tokens"]["prompt"] == 0
    metrics = gateway.metrics()
    name = f'rolter_prefix_tokens_total{{model="m",target="{busy["provider"]}/m",kind="predicted"}}'
    assert metrics[name] == tokens["predicted"]


def test_strategies_that_predict_nothing_claim_nothing(new_gateway, new_sim):
    gateway = new_gateway(fleet([new_sim(name="r", block_size=16)]) + ADMIN)
    admin = admin_of(gateway)
    for i in range(2):
        assert gateway.post(PATH, chat(LONG)).status == 200
    ended(admin, 2)
    [target] = status_of(admin)["routes"][0]["targets"]
    assert "predicted" not in target["prefix_tokens"] and target["prefix_tokens"]["cached"] > 0
    assert "mirror" not in target and "prediction_error" not in target


class Talk(Counting):
    """Says the same to all questions about France, and something else about the rest."""

    def answer(self, call):
        text = call.json()["messages"][-1]["content"]
        call.reply(200, chat_reply("Paris is the capital" if "France" in text else f"nobody knows {len(self.upstream.calls)}"))


@pytest.fixture
def cached(new_gateway, new_upstream):
    """Shadow mode over identical vectors: what was stored first is compared with every answer."""
    up, vectors = Talk(new_upstream), Vectors(new_upstream)
    gateway = new_gateway(semantic(up, vectors, 'shadow_ratio = 1.0\nguard = "none"') + ADMIN, rows=True)
    admin = admin_of(gateway)
    for i, text in enumerate(["capital of France", "France, its capital", "who won", "capital of France"]):
        assert ask(gateway, text).status == 200
        ended(admin, i + 1)
        wait_until(lambda: gateway.metrics()["rolter_semantic_cache_stores_total"] == min(i + 1, 3))
    assert ask(gateway, "x", {"cache-control": "no-store"}).status == 200
    ended(admin, 5)
    return gateway, admin


def test_precision_by_band_of_similarity(cached):
    gateway, admin = cached
    status = status_of(admin)
    semantic = status["routes"][0]["semantic"]
    assert semantic["shadow_ratio"] == 1 and semantic["guard"] == "none" and semantic["provider"] == "emb"
    [band] = semantic["shadow"]
    assert band == {"band": "0.98-1.00", "agrees": 1, "differs": 1, "unknown": 0, "precision": 0.5}
    assert status["semantic"]["vectors"] == 3 and status["semantic"]["embeddings"] == 3
    assert status["semantic"]["hits"] == 0 and status["semantic"]["misses"] == 1


def test_caches_in_status_and_decisions(cached):
    gateway, admin = cached
    bypass, hit, *_, first = request("GET", admin + "/decisions").json()
    assert (bypass["cache"], bypass["cache_reason"]) == ("bypass", "no_store")
    assert (hit["cache"], hit["cache_kind"], hit["provider"]) == ("hit", "exact", "p0")
    assert "strategy" not in hit and hit["attempts"] == 0
    assert (first["cache"], first["cache_reason"]) == ("miss", "not_found")
    assert first["strategy"] == "round_robin"
    status = status_of(admin)
    counts = status["routes"][0]["cache"]
    assert counts["hits"] == {"exact": 1, "semantic": 0, "coalesced": 0}
    assert counts["misses"] == 3 and counts["bypassed"] == 1 and counts["scope"] == "key"
    assert status["cache"]["memory"]["entries"] == 3 and status["cache"]["stores"] == 3
    assert status["cache"]["memory"] == request("GET", admin + "/cache/stats").json()["memory"]


def test_without_a_cache_status_says_nothing_of_one(new_gateway, new_upstream):
    status = status_of(admin_of(new_gateway(fleet([new_upstream()]) + ADMIN)))
    assert "cache" not in status and "semantic" not in status and "cache" not in status["routes"][0]


# ---- the page's script

def look(admin, token="", *wanted):
    done = subprocess.run([NODE, ROOT / "tests" / "scenario" / "live_dom.js", admin, token, *wanted], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(not NODE, reason="no node")
def test_the_page_shows_it(cached):
    gateway, admin = cached
    seen = look(admin, "", "exact hit", "0.98-1.00")
    assert seen["asked"] == ["status", "decisions?limit=100"] and seen["title"] == "rolter"
    fleet_rows = {row[0]: row for row in seen["tables"]["fleet"]}
    assert fleet_rows["p0 / m"][1] == "usable" and fleet_rows["emb"][1] == "in no route"
    [route] = seen["tables"]["routes"]
    assert route[:2] == ["m", "round_robin"] and route[3] == "5" and "exact 1" in route[-1]
    assert seen["lists"]["cache"]["hit rate"] == "20 %" and seen["lists"]["cache"]["exact hits"] == "1"
    assert seen["lists"]["semantic"]["vectors"] == "3" and seen["lists"]["semantic"]["compared instead"] == "2"
    assert ["  0.98-1.00", "1", "1", "0", "50 %"] in seen["tables"]["shadow"]
    assert [row[8] for row in seen["tables"]["decisions"]][:2] == ["bypass no_store", "exact hit"]
    assert seen["tables"]["decisions"][1][4].startswith("answered from the cache")
    assert "rotation" in seen["tables"]["decisions"][-1][4] or "only" in seen["tables"]["decisions"][-1][4]
    assert seen["tiles"]["Answered by the cache"] == "20 %"


@pytest.mark.skipif(not NODE, reason="no node")
def test_names_are_text(new_gateway, new_upstream):
    up = new_upstream(lambda call: call.reply(200, chat_reply("x")))
    bad = "<img src=x onerror=alert(1)>"
    gateway = new_gateway(fleet([up], model=bad).replace('"p0"', f'"{bad}"') + ADMIN)
    admin = admin_of(gateway)
    assert gateway.post(PATH, chat("x", model=bad), {"x-request-id": "<b>id</b>"}).status == 200
    ended(admin, 1)
    seen = look(admin, "", "<b>id</b>")
    [row] = seen["tables"]["decisions"]
    assert row[2] == bad and row[3].startswith(bad) and seen["tables"]["routes"][0][0] == bad


@pytest.mark.skipif(not NODE, reason="no node")
def test_the_page_of_an_idle_gateway(new_gateway, new_upstream):
    seen = look(admin_of(new_gateway(fleet([new_upstream()]) + ADMIN)), "", "p0 / m")
    assert seen["tables"]["decisions"] == [] and {"cache-box", "semantic-box", "rules"} <= set(seen["hidden"])
    assert seen["lists"]["policy"] == {"nothing blocked, changed or withheld": ""}
    assert seen["tiles"]["In flight"] == "0"


@pytest.mark.skipif(not CHROMIUM, reason="no chromium")
def test_a_browser_runs_it(cached, tmp_path):
    """That the policy lets the page's own script and style sheet work, and the requests that it makes."""
    gateway, admin = cached
    done = subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}",
                           "--virtual-time-budget=5000", "--dump-dom", admin + "/"], capture_output=True, text=True, timeout=120)
    assert 'data-ready="1"' in done.stdout and "0.98-1.00" in done.stdout and "exact hit" in done.stdout
