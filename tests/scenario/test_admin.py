# SPDX-License-Identifier: Apache-2.0
"""The admin listener: who may ask, what it says, draining through it."""

import re
import signal
import threading

import pytest

from harness import DEADLINE, chat, request, wait_until
from upstream import chat_reply, fleet


def admin_of(gateway):
    gateway.wait_stderr("admin listener on http://")
    return re.search(r"admin listener on (http://\S+)", gateway.stderr).group(1)


@pytest.fixture
def upstream(new_upstream):
    return new_upstream(lambda call: call.reply(200, chat_reply("x")))


def test_status_counts_what_was_served(new_gateway, upstream):
    gateway = new_gateway(fleet([upstream]) + "\n[admin]\nport = 0\n")
    admin = admin_of(gateway)
    for _ in range(3):
        assert gateway.post("/v1/chat/completions", chat("x")).status == 200
    # A request ends a moment after its reply.
    wait_until(lambda: request("GET", admin + "/status").json()["requests_in_flight"] == 0)
    reply = request("GET", admin + "/status")
    assert reply.status == 200 and reply.headers["content-type"] == "application/json"
    status = reply.json()
    assert status["config_version"] == 1 and status["requests_in_flight"] == 0 and not status["draining"]
    (provider,) = status["providers"]
    assert provider["healthy"] and provider["in_flight"] == 0
    (target,) = status["routes"][0]["targets"]
    assert target["served"] == 3 and target["state"] == "usable"
    assert "rolter_requests_total 3" in request("GET", admin + "/metrics").text()
    assert request("GET", admin + "/nothing").status == 404
    assert request("POST", admin + "/status", b"{}").status == 405
    # The public listener knows none of it.
    assert gateway.get("/status").status == 404


def test_drain_through_the_listener_ends_the_process(new_gateway, upstream):
    gateway = new_gateway(fleet([upstream]) + "\n[admin]\nport = 0\n")
    assert request("POST", admin_of(gateway) + "/drain", b"").json() == {"draining": True}
    assert gateway.wait() == 0


def test_a_token_is_asked_for(new_gateway, upstream):
    config = fleet([upstream]) + '\n[admin]\nport = 0\ntoken_env = "ADMIN_TOKEN"\n'
    gateway = new_gateway(config, env={"ADMIN_TOKEN": "s3cret"})
    admin = admin_of(gateway)
    assert request("GET", admin + "/status").status == 401
    assert request("GET", admin + "/status", headers={"authorization": "Bearer s3cre"}).status == 401
    reply = request("GET", admin + "/status", headers={"authorization": "bearer s3cret"})
    assert reply.status == 200
    assert "s3cret" not in gateway.stderr and "s3cret" not in reply.text()


def test_a_signal_after_a_drain_waits_too(new_gateway, new_upstream):
    go = threading.Event()

    def answer(call):
        call.begin_events()
        call.event({"choices": []})
        assert go.wait(DEADLINE)
        call.event("[DONE]")
        call.end()

    gateway = new_gateway(fleet([new_upstream(answer)]) + "\n[admin]\nport = 0\n")
    with gateway.stream("/v1/chat/completions", chat("x", stream=True)) as stream:
        stream.next()
        assert request("POST", admin_of(gateway) + "/drain", b"").status == 200
        gateway.signal(signal.SIGTERM)
        with pytest.raises(AssertionError):
            wait_until(lambda: not gateway.is_running(), deadline=0.3)
        go.set()
        assert [e.data for e in stream] == ["[DONE]"] and stream.complete
    assert gateway.wait() == 0


def test_pages_of_others_may_not_ask(new_gateway, upstream):
    """A browser on this machine sends a form wherever a page wants it to."""
    gateway = new_gateway(fleet([upstream]) + "\n[admin]\nport = 0\n")
    admin = admin_of(gateway)
    for origin in ("https://evil.example", "http://evil.example", "null"):
        headers = {"origin": origin, "content-type": "text/plain"}
        assert request("POST", admin + "/drain", b"", headers=headers).status == 403
    assert request("GET", admin + "/status", headers={"origin": admin}).status == 200
    # A name of theirs that points to this machine.
    for host in ("evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example"):
        assert request("GET", admin + "/status", headers={"host": host}).status == 403, host
    for host in ("localhost", "LOCALHOST:4001", "127.0.0.1:1", "[::1]:4001"):
        assert request("GET", admin + "/status", headers={"host": host}).status == 200, host
    assert gateway.get("/readyz").status == 200
