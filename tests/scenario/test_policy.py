# SPDX-License-Identifier: Apache-2.0
"""Guardrails, webhook, plugins and PII sanitizer as a user sees them, without a cache."""

import json
import threading
import time

import pytest

from certificates import Authority, server_context
from harness import chat, messages
from services import Sanitizer, Service
from upstream import chat_reply, dead_port, fleet, metric

CHAT, COMPLETIONS, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"


def guardrails(*rules, **more):
    text = "[guardrails]\nenabled = true\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in more.items())
    for rule in rules:
        text += "[[guardrails.rules]]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in rule.items())
    return text


def rule(name, stage, action, **more):
    return {"name": name, "stage": stage, "action": action, **more}


def webhook(service, **more):
    url = service if isinstance(service, str) else service.url + "/hook"
    return f'[guardrail_webhook]\nenabled = true\nurl = "{url}"\n' + \
        "".join(f"{k} = {json.dumps(v)}\n" for k, v in more.items())


def plugin(service, slug, stage, **more):
    url = service if isinstance(service, str) else service.url + "/" + slug
    return f'[[plugins.instances]]\nslug = "{slug}"\nstage = "{stage}"\nendpoint = "{url}"\n' + \
        "".join(f"{k} = {json.dumps(v)}\n" for k, v in more.items())


def pii(service, **more):
    url = service if isinstance(service, str) else service.url
    return f'[pii_sanitizer]\nenabled = true\nurl = "{url}/sanitize"\nrestore_url = "{url}/restore"\n' + \
        "".join(f"{k} = {json.dumps(v)}\n" for k, v in more.items())


@pytest.fixture
def new_service():
    made = []

    def make(judge=None):
        made.append(Service(judge))
        return made[-1]
    yield make
    for one in made:
        one.close()
    assert not [error for one in made for error in one.errors]


@pytest.fixture
def sanitizer():
    with Sanitizer() as one:
        yield one


def echo(call):
    """Says what it was asked, in the dialect that it was asked in."""
    body = call.json()
    if call.target.startswith(MESSAGES):
        text = body["messages"][-1]["content"]
        call.reply(200, {"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
                         "content": [{"type": "text", "text": text}], "stop_reason": "end_turn",
                         "usage": {"input_tokens": 7, "output_tokens": 5}})
    elif call.target.startswith(COMPLETIONS):
        call.reply(200, {"id": "cmpl-1", "object": "text_completion", "model": "m",
                         "choices": [{"index": 0, "text": body["prompt"], "finish_reason": "stop"}],
                         "usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}})
    else:
        call.reply(200, chat_reply(body["messages"][-1]["content"], prompt=7, completion=5))


def ask(path, text, **more):
    if path == MESSAGES:
        return messages(text, **more)
    return {"model": "m", "prompt": text, **more} if path == COMPLETIONS else chat(text, **more)


def said(path, reply):
    body = reply.json()
    if path == MESSAGES:
        return body["content"][0]["text"]
    choice = body["choices"][0]
    return choice["text"] if path == COMPLETIONS else choice["message"]["content"]


PATHS = pytest.mark.parametrize("path", [CHAT, COMPLETIONS, MESSAGES])


# ---- guardrails

@PATHS
def test_requests_are_masked_in_place(new_upstream, new_gateway, path):
    upstream = new_upstream(echo)
    gateway = new_gateway(fleet([upstream], more=guardrails(
        rule("mail", "pre_call", "redact", builtin="email"),
        rule("id", "pre_call", "redact", pattern="ACME-[0-9]{4}", replacement="ACME-####"))), rows=True)
    body = json.dumps(ask(path, "I am joe@example.com, ACME-1234 \u00fc", user="u", temperature=1.50), indent=1)
    reply = gateway.post(path, body.encode())
    assert reply.status == 200
    want = body.replace("joe@example.com", "[REDACTED:EMAIL]").replace("ACME-1234", "ACME-####")
    assert upstream.calls[0].body.decode() == want.replace("\\u00fc", "\u00fc")
    notes = json.loads(gateway.row_of(reply)["annotations"])
    assert notes == [{"rule": "mail", "in": "request"}, {"rule": "id", "in": "request"}]
    assert gateway.metrics()["rolter_guardrail_redactions_total"] == 2


@PATHS
def test_a_blocked_request_goes_nowhere(new_upstream, new_gateway, path):
    upstream = new_upstream(echo)
    gateway = new_gateway(fleet([upstream], more=guardrails(
        rule("cards", "pre_call", "block", builtin="payment_card"))), rows=True)
    reply = gateway.post(path, ask(path, "pay with 4111 1111 1111 1111"))
    assert reply.status == 400 and "cards" in reply.json()["error"]["message"]
    if path != MESSAGES:
        assert reply.json()["error"]["code"] == "guardrail_blocked"
    assert gateway.post(path, ask(path, "pay with 4111")).status == 200
    row = gateway.row_of(reply)
    assert row["status"] == 400 and row["error"] == "guardrail_blocked: cards" and not row["withheld"]
    assert len(upstream.calls) == 1 and gateway.metrics()["rolter_guardrail_blocks_total"] == 1


def test_system_texts_only_on_demand(new_upstream, new_gateway):
    upstream = new_upstream(echo)
    gateway = new_gateway(fleet([upstream], more=guardrails(
        rule("a", "pre_call", "redact", pattern="AAA"),
        rule("b", "pre_call", "redact", pattern="BBB", include_system=True))))
    gateway.post(CHAT, chat([("system", "AAA BBB"), ("developer", "AAA BBB"), ("user", "AAA BBB")]))
    assert [m["content"] for m in upstream.calls[0].json()["messages"]] == \
        ["AAA [REDACTED]", "AAA [REDACTED]", "[REDACTED] [REDACTED]"]
    gateway.post(MESSAGES, messages("AAA BBB", system="AAA BBB"))
    assert upstream.calls[1].json()["system"] == "AAA [REDACTED]"


@PATHS
def test_a_blocked_reply_is_billed_and_withheld(new_upstream, new_gateway, path):
    upstream = new_upstream(echo)
    prices = '[[model_prices]]\nmodel = "m"\ninput_per_mtok = 1000000.0\noutput_per_mtok = 1000000.0\n'
    gateway = new_gateway(fleet([upstream], more=prices + guardrails(
        rule("no-mail", "post_call", "block", builtin="email"))), rows=True)
    reply = gateway.post(path, ask(path, "joe@example.com"))
    assert reply.status == 403 and b"joe@" not in reply.body
    row = gateway.row_of(reply)
    assert (row["status"], row["withheld"], row["error"]) == (403, 1, "guardrail_blocked: no-mail")
    assert (row["prompt_tokens"], row["completion_tokens"], row["cost_usd"]) == (7, 5, 12)
    now = gateway.metrics()
    assert now["rolter_withheld_responses_total"] == 1 and now["rolter_guardrail_output_blocks_total"] == 1


def test_tool_arguments_of_replies(new_upstream, new_gateway):
    arguments = json.dumps({"to": "joe@example.com", "n": 1, "list": ["a\nb@c.de"]}, separators=(",", ":"))

    def answer(call):
        body = chat_reply(None)
        body["choices"][0]["message"]["tool_calls"] = [
            {"id": "call_joe@example.com", "type": "function", "function": {"name": "f", "arguments": arguments}}]
        call.reply(200, body)
    gateway = new_gateway(fleet([new_upstream(answer)], more=guardrails(
        rule("mail", "post_call", "redact", builtin="email"))))
    call = gateway.post(CHAT, chat("x")).json()["choices"][0]["message"]["tool_calls"][0]
    assert call["id"] == "call_joe@example.com"
    assert call["function"]["arguments"] == \
        arguments.replace("joe@example.com", "[REDACTED:EMAIL]").replace("b@c.de", "[REDACTED:EMAIL]")


def test_rules_of_a_route(new_upstream, new_gateway):
    upstream = new_upstream(echo)
    gateway = new_gateway(fleet([upstream], more=guardrails(
        rule("a", "pre_call", "block", pattern="AAA"), rule("b", "pre_call", "block", pattern="BBB"),
        rule("c", "post_call", "block", pattern="CCC"))).replace(
            'model = "m"\n', 'model = "m"\nadvanced = { guardrails = { disable = ["a", "b", "c"], enable = ["b"] } }\n'))
    assert gateway.post(CHAT, chat("AAA")).status == 200
    assert gateway.post(CHAT, chat("BBB")).status == 400
    assert gateway.post(CHAT, chat("CCC")).status == 200
    assert gateway.post(CHAT, chat("CCC", model="p0/m")).status == 403


@pytest.mark.parametrize("mode", ["block", "pass"])
def test_budget_is_never_a_silent_skip(new_upstream, new_gateway, mode):
    upstream = new_upstream(echo)
    gateway = new_gateway(fleet([upstream], more=guardrails(
        rule("a", "pre_call", "redact", pattern="AAA"), max_scan_bytes=1000, on_budget=mode)), rows=True)
    reply = gateway.post(CHAT, chat("AAA" + "x" * 5000 + "AAA"))
    if mode == "block":
        assert reply.status == 400 and gateway.row_of(reply)["error"] == "guardrail_blocked: max_scan_bytes"
        return
    assert upstream.calls[0].json()["messages"][0]["content"] == "[REDACTED]" + "x" * 5000 + "AAA"
    assert {"fail_open": "scan_budget", "detail": {"name": "request"}} in \
        json.loads(gateway.row_of(reply)["annotations"])
    assert gateway.metrics()[metric("rolter_fail_open_total", control="scan_budget")] == 1


@pytest.mark.parametrize("path,param", [(CHAT, "stream"), (MESSAGES, None)])
def test_streams_are_refused(new_upstream, new_gateway, path, param):
    upstream = new_upstream(echo)
    gateway = new_gateway(fleet([upstream], more=guardrails(rule("a", "post_call", "redact", pattern="AAA"))))
    reply = gateway.post(path, ask(path, "x", stream=True))
    assert reply.status == 400 and reply.json()["error"].get("param") == param
    assert gateway.metrics()["rolter_guardrail_stream_rejections_total"] == 1 and not upstream.calls


def test_what_refuses_streams(sim, new_gateway, new_service, sanitizer):
    """R66: annotating rules, plugins that fail open and sanitizers of requests refuse nothing."""
    service = new_service()
    cases = [
        (guardrails(rule("a", "post_call", "annotate", pattern="A")), None),
        (guardrails(rule("a", "post_call", "block", pattern="A"), streaming_post_call="passthrough"), None),
        (guardrails(rule("a", "pre_call", "block", pattern="AAA")), None),
        (plugin(service, "p", "post_response"), None),
        (plugin(service, "p", "pre_upstream", failure_mode="fail_closed"), None),
        (plugin(service, "p", "post_response", failure_mode="fail_closed"), "plugin_streaming_unsupported"),
        (webhook(service, stage="post_call"), None),
        (webhook(service, stage="post_call", failure_mode="fail_closed"), "guardrail_streaming_unsupported"),
        (pii(sanitizer), None),
        (pii(sanitizer, direction="response"), "pii_streaming_unsupported"),
        (pii(sanitizer, direction="response", streaming="passthrough"), None),
        (pii(sanitizer, restoration="trusted_downstream"), "pii_streaming_unsupported"),
        (pii(sanitizer, restoration="caller_authorized"), None),
    ]
    gateway = new_gateway(fleet([sim], more=cases[0][0]))
    for i, (more, code) in enumerate(cases):
        if i:
            gateway.reload_and_wait(fleet([sim], more=more))
        with gateway.stream(CHAT, chat("hello", stream=True)) as stream:
            whole = stream.read()
            if code:
                assert stream.status == 400 and json.loads(whole)["error"]["code"] == code, more
            else:
                assert stream.status == 200 and stream.complete and b"[DONE]" in whole, more
    reply = gateway.post(CHAT, chat("hello", stream=True), {"x-rolter-pii-restore": "Yes"})
    assert reply.status == 400 and reply.json()["error"]["code"] == "pii_streaming_unsupported"


# ---- webhook and plugins

def test_webhook_sees_and_judges_requests(new_upstream, new_gateway, new_service, monkeypatch):
    def judge(asked):
        text = asked["content"]["messages"][0]["content"]
        if text == "block":
            return {"action": "block", "reason": "not today"}
        if text == "transform":
            return {"action": "transform", "content": {"messages": [{"role": "user", "content": "other"}],
                                                       "model": "evil", "stream": True}}
        return {"action": text} if text == "allow" else {"action": "annotate", "annotations": {"score": 0.5}}
    service, upstream = new_service(judge), new_upstream(echo)
    gateway = new_gateway(fleet([upstream], more=webhook(service, auth={}).replace(
        "auth = {}", 'auth = { shared_secret = { secret_env = "HOOK_SECRET" } }')), rows=True,
        env={"HOOK_SECRET": "s3cret"})
    body = b'{ "model": "m",  "messages": [{"role":"user","content":"allow"}] }'
    assert gateway.post(CHAT, body, {"x-request-id": "r-9"}).status == 200
    assert upstream.calls[0].body == body
    asked, call = service.asked[0], service.calls[0]
    assert asked == {"direction": "request", "model": "m", "route": "m", "trace_id": "r-9", "tenant": {},
                     "content": json.loads(body)}
    assert call.headers["x-rolter-guardrail-secret"] == "s3cret" and call.headers["x-rolter-trace-id"] == "r-9"
    reply = gateway.post(CHAT, chat("block"))
    assert reply.status == 400 and reply.json()["error"] == {
        "message": "not today", "type": "invalid_request_error", "param": None, "code": "guardrail_blocked"}
    assert gateway.row_of(reply)["error"] == "guardrail_blocked: not today"
    reply = gateway.post(CHAT, chat("transform"))
    assert reply.status == 200
    sent = upstream.calls[1].json()
    assert sent == {"messages": [{"role": "user", "content": "other"}], "model": "m", "stream": False}
    reply = gateway.post(CHAT, chat("annotate"))
    assert json.loads(gateway.row_of(reply)["annotations"]) == \
        [{"webhook": "annotate", "annotations": {"score": 0.5}}]
    assert "s3cret" not in gateway.stderr


GARBAGE = [b"", b"ok", b"[]", b"{}", b'{"action":1}', b'{"action":"maybe"}', b'{"action":"block","action":"allow"}',
           b'{"action":"transform"}', b'{"action":"transform","content":"text"}', b'{"action":"allow"', 500, 302,
           b'{"action":"allow","x":"' + b"x" * 400000 + b'"}']


@pytest.mark.parametrize("where", ["webhook", "pre_route", "pre_upstream", "post_response", "webhook_reply"])
@pytest.mark.parametrize("mode", ["fail_open", "fail_closed"])
def test_nothing_but_an_answer_is_an_assent(new_upstream, new_gateway, new_service, where, mode):
    answers = list(GARBAGE)
    service, upstream = new_service(lambda asked: answers.pop(0)), new_upstream(echo)
    if where == "webhook":
        more = webhook(service, failure_mode=mode)
    elif where == "webhook_reply":
        more = webhook(service, failure_mode=mode, stage="post_call")
    else:
        more = plugin(service, "guard", where, failure_mode=mode)
    gateway = new_gateway(fleet([upstream], more=more), rows=True)
    code = "guardrail_blocked" if "webhook" in where else "plugin_blocked"
    status = 200 if mode == "fail_open" else 403 if where in ("post_response", "webhook_reply") else 400
    for one in GARBAGE:
        reply = gateway.post(CHAT, chat("hello"))
        assert reply.status == status, one
        row = gateway.row_of(reply)
        if mode == "fail_closed":
            assert reply.json()["error"]["code"] == code
            assert row["error"].startswith(code + ": ") and row["withheld"] == (status == 403)
        else:
            assert "fail_open" in row["annotations"]
    assert not answers
    control = "guardrail_webhook" if "webhook" in where else "plugin"
    assert gateway.metrics()[metric("rolter_fail_open_total", control=control)] == \
        (len(GARBAGE) if mode == "fail_open" else 0)


@pytest.mark.parametrize("mode", ["fail_open", "fail_closed"])
def test_unreachable_slow_and_too_large(new_upstream, new_gateway, new_service, mode):
    upstream, silent = new_upstream(echo), new_service(lambda asked: None)
    held, port = dead_port()
    status = 200 if mode == "fail_open" else 400
    gateway = new_gateway(fleet([upstream], more=plugin(f"http://127.0.0.1:{port}", "p", "pre_upstream",
                                                        failure_mode=mode)))
    assert gateway.post(CHAT, chat("x")).status == status
    gateway.reload_and_wait(fleet([upstream], more=plugin(silent, "p", "pre_upstream", failure_mode=mode,
                                                          timeout_ms=200)))
    begun = time.monotonic()
    assert gateway.post(CHAT, chat("x")).status == status
    assert 0.19 < time.monotonic() - begun < 5
    asked = len(silent.asked)
    gateway.reload_and_wait(fleet([upstream], more=plugin(silent, "p", "pre_upstream", failure_mode=mode,
                                                          max_body_bytes=100)))
    assert gateway.post(CHAT, chat("x" * 200)).status == status
    assert len(silent.asked) == asked          # not even a part of it is sent
    held.close()


def test_plugins_go_by_position_and_see_each_others_work(new_upstream, new_gateway, new_service):
    def adder(letter):
        def judge(asked):
            body = asked["content"]
            turn = body["messages"][0] if "messages" in body else body["choices"][0]["message"]
            turn["content"] += letter
            return {"action": "transform", "content": body}
        return new_service(judge)
    a, b, c, d = (adder(letter) for letter in "abcd")
    upstream = new_upstream(echo)
    gateway = new_gateway(fleet([upstream], more=plugin(b, "b", "pre_upstream", position=2) +
                                plugin(a, "a", "pre_upstream", position=-1) + plugin(c, "c", "pre_upstream", position=2) +
                                plugin(d, "d", "pre_route", position=9) +
                                plugin(a, "z", "post_response") +
                                plugin(b, "never", "pre_upstream", org_id="other")), rows=True)
    reply = gateway.post(CHAT, chat("-"))
    assert reply.json()["choices"][0]["message"]["content"] == "-dabca"
    assert [asked["plugin"] for asked in a.asked] == ["a", "z"] and len(b.asked) == 1
    assert (d.asked[0]["stage"], d.asked[0]["route"]) == ("pre_route", "")
    assert (a.asked[1]["stage"], a.asked[1]["route"]) == ("post_response", "m")
    assert gateway.metrics()[metric("rolter_plugin_transforms_total", plugin="z")] == 1


@PATHS
def test_a_plugin_blocks_and_alters_replies(new_upstream, new_gateway, new_service, path):
    def judge(asked):
        text = json.dumps(asked["content"])
        if "bad" in text:
            return {"action": "block"}
        if "usage" in text and "cheap" in text:
            asked["content"]["usage"] = {"prompt_tokens": 0, "completion_tokens": 0}
            return {"action": "transform", "content": asked["content"]}
        return {"action": "allow"}
    service, upstream = new_service(judge), new_upstream(echo)
    gateway = new_gateway(fleet([upstream], more=plugin(service, "p", "post_response")), rows=True)
    reply = gateway.post(path, ask(path, "bad"))
    assert reply.status == 403
    row = gateway.row_of(reply)
    assert (row["status"], row["withheld"], row["error"], row["prompt_tokens"]) == (403, 1, "plugin_blocked: p", 7)
    reply = gateway.post(path, ask(path, "cheap"))
    assert reply.json()["usage"]["prompt_tokens"] == 0
    assert gateway.row_of(reply)["prompt_tokens"] == 7       # the bill is the upstream's own
    plain = gateway.post(path, ask(path, "fine"))
    assert said(path, plain) == "fine"


def test_a_reply_that_is_no_json(new_upstream, new_gateway, new_service):
    service = new_service()
    upstream = new_upstream(lambda call: call.reply(200, "plain AAA text", [("content-type", "text/plain")]))
    gateway = new_gateway(fleet([upstream], more=plugin(service, "p", "post_response", failure_mode="fail_closed")))
    assert gateway.post(CHAT, chat("x")).status == 403
    gateway.reload_and_wait(fleet([upstream], more=plugin(service, "p", "post_response") +
                                  guardrails(rule("a", "post_call", "redact", pattern="A+"))))
    reply = gateway.post(CHAT, chat("x"))
    assert reply.text() == "plain [REDACTED] text" and reply.headers["content-type"] == "text/plain"
    assert not service.asked


def test_errors_of_the_upstream_pass_untouched(new_upstream, new_gateway, new_service):
    service = new_service(lambda asked: {"action": "block"})
    upstream = new_upstream(lambda call: call.reply(400, {"error": {"message": "AAA"}}))
    gateway = new_gateway(fleet([upstream], more=plugin(service, "p", "post_response", failure_mode="fail_closed") +
                                guardrails(rule("a", "post_call", "block", pattern="A+"))))
    reply = gateway.post(CHAT, chat("x"))
    assert reply.status == 400 and reply.json() == {"error": {"message": "AAA"}} and not service.asked


def test_egress_rules_hold_for_services(new_upstream, new_gateway, new_service):
    service, upstream = new_service(), new_upstream(echo)
    more = plugin(f"http://localhost:{service.port}/x", "p", "pre_upstream", failure_mode="fail_closed") + \
        '[egress]\nblock_loopback = true\n'
    gateway = new_gateway(fleet([f"http://localhost:{upstream.port}"], more=more), rows=True)
    reply = gateway.post(CHAT, chat("x"))
    assert reply.status == 400 and "egress_blocked" in gateway.row_of(reply)["error"] and not service.accepted


def test_a_client_that_leaves_ends_the_calls(new_upstream, new_gateway, new_service):
    silent, upstream = new_service(lambda asked: None), new_upstream(echo)
    gateway = new_gateway(fleet([upstream], more=plugin(silent, "p", "post_response", timeout_ms=60000)), rows=True)
    with gateway.client() as client:
        client.connection.request("POST", CHAT, json.dumps(chat("x")), {"content-type": "application/json"})
        silent.wait_calls(1)
    row = gateway.wait_rows(1)[0]
    assert row["status"] == 499 and row["prompt_tokens"] == 7


# ---- PII

SECRET = "alice@example.com"


@PATHS
def test_pii_goes_and_comes_back(new_upstream, new_gateway, sanitizer, path):
    upstream = new_upstream(echo)
    gateway = new_gateway(fleet([upstream], more=pii(sanitizer, restoration="caller_authorized",
                                                     entities=["EMAIL"])), rows=True)
    body = ask(path, f"mail {SECRET}")
    reply = gateway.post(path, body)
    assert said(path, reply) == "mail <EMAIL_1>" and not sanitizer.restores
    assert SECRET.encode() not in upstream.calls[0].body
    asked = sanitizer.asked[0]
    assert asked["direction"] == "request" and asked["entities"] == ["EMAIL"] and asked["reversible"] is False
    assert asked["content"] == body
    reply = gateway.post(path, body, {"x-rolter-pii-restore": "1"})
    assert said(path, reply) == f"mail {SECRET}" and sanitizer.asked[1]["reversible"] is True
    restore = sanitizer.restores[0]
    assert set(restore) == {"trace_id", "tenant", "restoration_token", "content"}
    now = gateway.metrics()
    assert now["rolter_pii_entities_redacted_total"] == 2 and now["rolter_pii_restorations_total"] == 1
    # Nothing of it in rows, log or metrics.
    gateway.wait_rows(2)
    assert SECRET not in gateway.rows_path.read_text() + gateway.stderr + gateway.get("/metrics").text()
    assert not [token for token in sanitizer.tokens if token in gateway.rows_path.read_text()]


def test_pii_of_replies(new_upstream, new_gateway, sanitizer):
    upstream = new_upstream(lambda call: call.reply(200, chat_reply("write to bob@example.com")))
    gateway = new_gateway(fleet([upstream], more=pii(sanitizer, direction="response")))
    assert gateway.post(CHAT, chat("x")).json()["choices"][0]["message"]["content"] == "write to <EMAIL_1>"
    assert [asked["direction"] for asked in sanitizer.asked] == ["response"]


@pytest.mark.parametrize("mode", ["fail_open", "fail_closed"])
def test_pii_failures(new_upstream, new_gateway, sanitizer, mode):
    upstream = new_upstream(echo)
    gateway = new_gateway(fleet([upstream], more=pii(sanitizer, restoration="trusted_downstream", direction="both",
                                                     failure_mode=mode, max_body_bytes=1000)), rows=True)
    closed = mode == "fail_closed"

    def expect(reply, text, withheld):
        assert reply.status == (502 if closed else 200)
        row = gateway.row_of(reply)
        if closed:
            assert reply.json()["error"]["code"] == "pii_sanitizer_unavailable"
            assert row["error"].startswith("pii_sanitizer_unavailable") and row["withheld"] == withheld
        else:
            assert said(CHAT, reply) == text
    sanitizer.fail = {"restore"}
    expect(gateway.post(CHAT, chat(f"mail {SECRET}")), "mail <EMAIL_1>", 1)
    sanitizer.fail = {"sanitize"}
    expect(gateway.post(CHAT, chat(f"mail {SECRET}")), f"mail {SECRET}", 0)
    sanitizer.fail = set()
    large = "x" * 2000
    expect(gateway.post(CHAT, chat(large)), large, 0)     # refused or whole, never a preview
    assert not [a for a in sanitizer.asked if len(json.dumps(a["content"])) > 1000]


def test_retries_of_a_service(new_upstream, new_gateway, new_service):
    answers = [500, 500, {"action": "block", "reason": "third time"}]
    service = new_service(lambda asked: answers.pop(0))
    gateway = new_gateway(fleet([new_upstream(echo)], more=webhook(service, max_retries=2)))
    reply = gateway.post(CHAT, chat("x"))
    assert reply.status == 400 and reply.json()["error"]["message"] == "third time"


# ---- reload

def test_a_rule_installed_while_running(new_upstream, new_gateway):
    upstream = new_upstream(echo)
    gateway = new_gateway(fleet([upstream]))
    assert gateway.post(CHAT, chat("AAA")).status == 200
    gateway.reload_and_wait(fleet([upstream], more=guardrails(rule("a", "pre_call", "block", pattern="AAA"))))
    assert gateway.post(CHAT, chat("AAA")).status == 400
    gateway.reload_and_wait(fleet([upstream]))
    assert gateway.post(CHAT, chat("AAA")).status == 200


# ---- streams with apply

def delta(path, text, **more):
    if path == MESSAGES:
        return ("event: content_block_delta\ndata: " + json.dumps(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}) + "\n\n")
    choice = {"index": 0, "text": text} if path == COMPLETIONS else {"index": 0, "delta": {"content": text}}
    return "data: " + json.dumps({"id": "c", "choices": [{**choice, "finish_reason": None}], **more}) + "\n\n"


def stream_of(path, pieces):
    """The events of a whole stream with usage 7 and 5."""
    if path == MESSAGES:
        start = {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": [],
                                                      "usage": {"input_tokens": 7, "output_tokens": 1}}}
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        last = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}
        tail = [{"type": "content_block_stop", "index": 0}, last, {"type": "message_stop"}]
        return [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in (start, block)] + \
            [delta(path, p) for p in pieces] + [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in tail]
    end = {"index": 0, "finish_reason": "stop", **({"text": ""} if path == COMPLETIONS else {"delta": {}})}
    usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    return [delta(path, p) for p in pieces] + [
        f"data: {json.dumps({'id': 'c', 'choices': [end]})}\n\n",
        f"data: {json.dumps({'id': 'c', 'choices': [], 'usage': usage})}\n\n", "data: [DONE]\n\n"]


def stream_text(path, events):
    text = ""
    for event in events:
        if event.data == "[DONE]":
            continue
        body = event.json()
        if path == MESSAGES:
            text += body.get("delta", {}).get("text", "")
        else:
            for choice in body.get("choices", []):
                text += choice.get("text", "") if path == COMPLETIONS else choice["delta"].get("content", "")
    return text


def streamer(path, pieces):
    def answer(call):
        call.begin_events()
        for event in stream_of(path, pieces):
            call.chunk(event.encode())
        call.end()
    return answer


APPLY = {"streaming_post_call": "apply"}


@PATHS
def test_streams_are_masked_while_they_flow(new_upstream, new_gateway, path):
    text = "mail joe@example.com or +49 170 1234567 now"
    upstream = new_upstream(streamer(path, [text[n:n + 3] for n in range(0, len(text), 3)]))
    gateway = new_gateway(fleet([upstream], more=guardrails(
        rule("mail", "post_call", "redact", builtin="email"), rule("phone", "post_call", "redact", builtin="phone"),
        **APPLY)), rows=True)
    with gateway.stream(path, ask(path, "x", stream=True)) as stream:
        events = stream.all()
        assert stream.complete and stream_text(path, events) == "mail [REDACTED:EMAIL] or [REDACTED:PHONE] now"
        assert b"joe@" not in stream.raw and events[-1].data == ("[DONE]" if path != MESSAGES else events[-1].data)
    row = gateway.row_of(stream)
    assert (row["prompt_tokens"], row["completion_tokens"], row["status"], row["withheld"]) == (7, 5, 200, 0)
    assert json.loads(row["annotations"]) == [{"rule": "mail", "in": "reply"}, {"rule": "phone", "in": "reply"}]
    assert gateway.metrics()["rolter_guardrail_output_redactions_total"] == 2


@PATHS
def test_a_stream_without_a_match_is_untouched(new_upstream, new_gateway, path):
    upstream = new_upstream(streamer(path, ["The", " answer", " is", " 42", ".\n"]))
    gateway = new_gateway(fleet([upstream], more=guardrails(
        rule("mail", "post_call", "redact", builtin="email"), rule("b", "post_call", "block", pattern="secret"), **APPLY)))
    with gateway.stream(path, ask(path, "x", stream=True)) as stream:
        stream.all()
        assert stream.complete
        assert bytes(stream.raw).decode() == "".join(stream_of(path, ["The", " answer", " is", " 42", ".\n"]))


@PATHS
def test_a_block_ends_the_stream(new_upstream, new_gateway, path):
    upstream = new_upstream(streamer(path, ["the ", "sec", "ret", " word", " is"]))
    gateway = new_gateway(fleet([upstream], more=guardrails(
        rule("no", "post_call", "block", pattern="secret word"), **APPLY)), rows=True)
    with gateway.client() as client:
        reply = client.post(path, ask(path, "x", stream=True))
        assert reply.complete and reply.status == 200 and b"sec" not in reply.body
        last = reply.events()[-1]
        assert "no" in last.json()["error"]["message"]
        if path == MESSAGES:
            assert last.type == "error" and last.json()["type"] == "error"
        else:
            assert last.json()["error"]["code"] == "guardrail_blocked"
        assert client.get("/healthz").status == 200      # the connection goes on
    row = gateway.row_of(reply)
    assert (row["status"], row["withheld"], row["error"]) == (403, 1, "guardrail_blocked: no")
    assert (row["prompt_tokens"], row["completion_tokens"]) == (7, 5)     # billed like any other


def test_text_waits_only_while_it_may_match(new_upstream, new_gateway):
    steps = []

    def answer(call):
        call.begin_events()
        for piece in ("Hello world, ask jo", "e@example.c", "om for", " more."):
            call.chunk(delta(CHAT, piece).encode())
            steps.pop(0).wait(15)
        call.chunk(b"data: [DONE]\n\n")
        call.end()
    steps += [threading.Event() for _ in range(4)]
    gates = list(steps)
    gateway = new_gateway(fleet([new_upstream(answer)], more=guardrails(
        rule("mail", "post_call", "redact", builtin="email"), **APPLY)))
    with gateway.stream(CHAT, chat("x", stream=True)) as stream:
        assert stream_text(CHAT, [stream.next()]) == "Hello world, ask "
        gates[0].set()
        gates[1].set()                         # the address is complete only with the third piece
        assert stream_text(CHAT, [stream.next(), stream.next()]) == "[REDACTED:EMAIL]"
        gates[2].set()
        gates[3].set()
        assert stream_text(CHAT, stream.all()) == " for more."
        assert stream.complete


def test_a_stream_that_nobody_asked_for_is_seen(new_upstream, new_gateway):
    upstream = new_upstream(streamer(CHAT, ["a sec", "ret and secret"]))
    gateway = new_gateway(fleet([upstream], more=guardrails(rule("no", "post_call", "block", pattern="secret"))),
                          rows=True)
    reply = gateway.post(CHAT, chat("x"))
    assert reply.status == 403 and gateway.row_of(reply)["prompt_tokens"] == 7


def test_a_broken_stream_stays_broken(new_upstream, new_gateway):
    def answer(call):
        call.begin_events()
        call.chunk(delta(CHAT, "one two").encode())
        call.close()
    gateway = new_gateway(fleet([new_upstream(answer)], more=guardrails(
        rule("mail", "post_call", "redact", builtin="email"), **APPLY)), rows=True)
    with gateway.stream(CHAT, chat("x", stream=True)) as stream:
        assert stream_text(CHAT, stream.all()) == "one " and not stream.complete
    assert gateway.row_of(stream)["status"] == 502


# ---- services and connections

@pytest.mark.parametrize("trusted", [True, False])
def test_services_over_tls(new_upstream, new_gateway, tmp_path, trusted):
    authority = Authority(tmp_path)
    context = server_context(*authority.issue("service", "IP:127.0.0.1"))
    service = new_upstream(lambda call: call.reply(200, {"action": "block", "reason": "over TLS"}), context=context)
    more = plugin(service.url + "/x", "p", "pre_upstream", failure_mode="fail_closed")
    if trusted:
        more += f'[tls]\nca_bundles = ["{authority.path}"]\n'
    gateway = new_gateway(fleet([new_upstream(echo)], more=more), rows=True)
    reply = gateway.post(CHAT, chat("x"))
    assert reply.status == 400
    assert gateway.row_of(reply)["error"] == (
        "plugin_blocked: over TLS" if trusted else "plugin_blocked: plugin p is unavailable (tls)")


def test_a_client_that_leaves_while_its_request_is_judged(new_upstream, new_gateway, new_service):
    silent, upstream = new_service(lambda asked: None), new_upstream(echo)
    gateway = new_gateway(fleet([upstream], more=webhook(silent, timeout_ms=60000)), rows=True)
    with gateway.client() as client:
        client.connection.request("POST", CHAT, json.dumps(chat("x")), {"content-type": "application/json"})
        silent.wait_calls(1)
    row = gateway.wait_rows(1)[0]
    assert row["status"] == 499 and row["prompt_tokens"] == 0 and not upstream.calls


def test_many_at_once(new_upstream, new_gateway, new_service):
    """Calls of many requests do not get into each other's way."""
    def judge(asked):
        turn = asked["content"]["messages"][0]
        return {"action": "transform", "content": {**asked["content"], "messages": [{**turn, "content": turn["content"] * 2}]}}
    service, upstream = new_service(judge), new_upstream(echo)
    gateway = new_gateway(fleet([upstream], more=plugin(service, "p", "pre_upstream", timeout_ms=20000)))
    got = {}

    def run(i):
        with gateway.client() as client:
            for k in range(10):
                text = f"<{i}.{k}>"
                got[text] = said(CHAT, client.post(CHAT, chat(text)))
    threads = [threading.Thread(target=run, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 160 and all(value == text * 2 for text, value in got.items())
