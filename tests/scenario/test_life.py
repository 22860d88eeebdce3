# SPDX-License-Identifier: Apache-2.0
"""How the process starts and ends: drains, signals, exit codes, ports in use, bad configurations."""

import json
import signal
import socket
import subprocess
import threading
import time

import pytest

from harness import BUILD, DEADLINE, Gateway, chat, wait_until
from upstream import chat_reply, fleet

CHAT = "/v1/chat/completions"


def ended(gateway, code=0):
    assert gateway.wait() == code, gateway.stderr


def streaming(go):
    def answer(call):
        if not call.json().get("stream"):
            call.reply(200, chat_reply("x"))
            return
        call.begin_events()
        call.event({"choices": []})
        assert go.wait(DEADLINE)
        call.event("[DONE]")
        call.end()
    return answer


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_drain(new_upstream, new_gateway, number, tmp_path):
    go = threading.Event()
    upstream = new_upstream(streaming(go))
    gateway = new_gateway(fleet([upstream]), rows=True, folder=tmp_path)
    kept = [gateway.client() for _ in range(3)]
    for client in kept:
        assert client.get("/readyz").status == 200
    with gateway.stream(CHAT, chat("x", stream=True)) as stream:
        stream.next()
        gateway.signal(number)
        gateway.wait_stderr("draining for at most 30 s")
        wait_until(lambda: gateway.get("/readyz").status == 503)
        reply = gateway.get("/readyz")
        assert reply.status == 503 and reply.text() == "draining"
        assert gateway.get("/healthz").status == 200 and gateway.metrics()["rolter_inflight_requests"] == 1
        reply = gateway.post(CHAT, chat("x"))
        assert reply.status == 503 and reply.json()["error"]["code"] == "draining"
        assert reply.headers["connection"] == "close"
        reply = gateway.post("/v1/messages", chat("x", max_tokens=1))
        assert reply.status == 503 and reply.json()["type"] == "error"
        for client in kept:  # idle connections are closed
            assert client.connection.sock.recv(1) == b""
            client.close()
        assert gateway.is_running()
        go.set()
        assert [e.data for e in stream] == ["[DONE]"] and stream.complete
    ended(gateway)
    assert len(upstream.calls) == 1
    rows = gateway.rows()
    assert sorted(r["status"] for r in rows) == [200, 503, 503]
    assert {r["error"] for r in rows if r["status"] == 503} == {"draining"}


def test_drain_ends_at_its_limit(new_upstream, new_gateway, tmp_path):
    go = threading.Event()

    def answer(call):
        call.begin_events()
        call.event({"choices": []})
        call.wait_gone()
        go.set()

    gateway = new_gateway(fleet([new_upstream(answer)]), server="drain_secs = 1", rows=True, folder=tmp_path)
    with gateway.stream(CHAT, chat("x", stream=True)) as stream:
        stream.next()
        begun = time.monotonic()
        gateway.signal(signal.SIGTERM)
        ended(gateway)
        assert 0.9 < time.monotonic() - begun < 8
        assert stream.all() == [] and not stream.complete
    assert go.wait(DEADLINE)
    assert len(gateway.rows()) == 1


def test_second_signal_ends_at_once(new_upstream, new_gateway, tmp_path):
    def answer(call):
        call.begin_events()
        call.event({"choices": []})
        call.wait_gone()

    gateway = new_gateway(fleet([new_upstream(answer)]), rows=True, folder=tmp_path)
    with gateway.stream(CHAT, chat("x", stream=True)) as stream:
        stream.next()
        gateway.signal(signal.SIGTERM)
        gateway.wait_stderr("draining")
        gateway.signal(signal.SIGTERM)
        ended(gateway)
        assert stream.all() == [] and not stream.complete
    assert len(gateway.rows()) == 1


def test_requests_that_wait_in_the_queue_are_served_while_draining(new_upstream, new_gateway, tmp_path):
    go = threading.Event()

    def answer(call):
        assert go.wait(DEADLINE)
        call.reply(200, chat_reply("x"))

    gateway = new_gateway(fleet([new_upstream(answer)], more="[queue]\nworkers = 1\ncapacity = 10"))
    replies = []
    threads = [threading.Thread(target=lambda: replies.append(gateway.post(CHAT, chat("x")).status))
               for _ in range(5)]
    for t in threads:
        t.start()
    gateway.wait_metric("rolter_inflight_requests", 5)
    gateway.signal(signal.SIGTERM)
    gateway.wait_stderr("draining")
    go.set()
    for t in threads:
        t.join()
    assert replies == [200] * 5
    ended(gateway)


def test_no_row_is_lost(new_sim, new_gateway, tmp_path):
    gateway = new_gateway(fleet([new_sim()]), rows=True, folder=tmp_path)

    def work():
        with gateway.client() as client:
            for _ in range(100):
                assert client.post(CHAT, chat("x")).status == 200

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    gateway.signal(signal.SIGTERM)
    ended(gateway)
    rows = gateway.rows()
    assert len(rows) == 400 and len({r["request_id"] for r in rows}) == 400


def test_stop_while_idle_is_quick(new_upstream, new_gateway):
    gateway = new_gateway(fleet([new_upstream()]))
    with gateway.client() as client:
        client.get("/healthz")
        begun = time.monotonic()
        gateway.signal(signal.SIGTERM)
        ended(gateway)
        assert time.monotonic() - begun < 5


def run(*arguments, cwd=None, env=None):
    return subprocess.run([str(BUILD / "rolter"), *map(str, arguments)], capture_output=True, text=True, timeout=DEADLINE,
                          cwd=cwd, env=env)


def test_port_in_use(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "rolter.toml").write_text(f'[server]\nhost = "127.0.0.1"\nport = {port}\n')
        result = run("--config", tmp_path / "rolter.toml")
    assert result.returncode == 1 and result.stdout == ""
    assert "cannot start" in result.stderr and str(port) in result.stderr and "in use" in result.stderr


def test_port_of_a_running_gateway(new_gateway, tmp_path):
    """Two gateways must not share a port without knowing."""
    gateway = new_gateway("")
    (tmp_path / "rolter.toml").write_text(f'[server]\nhost = "127.0.0.1"\nport = {gateway.port}\n')
    child = subprocess.Popen([str(BUILD / "rolter"), "--config", str(tmp_path / "rolter.toml")],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = child.communicate(timeout=5)
        assert child.returncode == 1 and "in use" in err and out == ""
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("text, said", [
    ("[server\n", r"rolter.toml:1:"), ("[server]\nprot = 1\n", "port"),
    ('[server]\nhost = "no such host"\nport = 0\n', "no such host"),
    ('[server]\nport = 0\n[logging]\nfile = "/nowhere/at/all"\n', "/nowhere/at/all"),
    ('[server]\nport = 0\ntls_cert = "missing.pem"\ntls_key = "missing.pem"\n', "missing.pem"),
    ('[[routes]]\nmodel = "m"\ntargets = [{ provider = "x" }]\n', '"x"')])
def test_bad_start(tmp_path, text, said):
    (tmp_path / "rolter.toml").write_text(text)
    result = run("--config", "rolter.toml", cwd=tmp_path)
    assert result.returncode == 1 and said in result.stderr and result.stdout == "", result


def test_named_file_that_is_missing(tmp_path):
    result = run("--config", tmp_path / "none.toml")
    assert result.returncode == 1 and "none.toml" in result.stderr


def test_check(tmp_path, new_upstream):
    path = tmp_path / "rolter.toml"
    path.write_text(fleet([new_upstream()]))
    assert run("check", "--config", path).returncode == 0
    path.write_text("[retry]\nmax_retrys = 1\n[queue]\nworkers = 0\n")
    result = run("check", "--config", path)
    assert result.returncode == 1 and "max_retries" in result.stderr and "workers" in result.stderr
    path.write_text("[logging]\nui_events = true\n")  # a key of the original: a warning
    result = run("check", "--config", path)
    assert result.returncode == 0 and "ui_events" in result.stderr
    assert run("check", "--strict", "--config", path).returncode == 1


def test_secrets_are_not_shown(tmp_path, new_upstream):
    path = tmp_path / "rolter.toml"
    path.write_text(fleet([new_upstream()]) + '[[virtual_keys]]\nkey = "sk-very-secret"\nname = "n"\n')
    result = run("check", "--show", "--config", path)
    assert result.returncode == 0 and "sk-very-secret" not in result.stdout + result.stderr
    assert "virtual_keys" in result.stdout


def test_version_and_help():
    result = run("--version")
    assert result.returncode == 0 and result.stdout.startswith("rolter ")
    result = run("--help")
    assert result.returncode == 0 and "usage: rolter" in result.stdout
    for wrong in (["--no-such"], ["nonsense"], ["--port", "99999"]):
        result = run(*wrong)
        assert result.returncode == 2 and result.stdout == "" and result.stderr


def test_environment_and_options(new_upstream, tmp_path):
    (tmp_path / "rolter.toml").write_text('[server]\nhost = "nowhere.invalid"\nport = 1\n')
    with Gateway("", "--port", "0", env={"ROLTER_HOST": "127.0.0.1", "ROLTER_PORT": "1"}) as gateway:
        assert gateway.get("/healthz").status == 200


def test_open_gateway_is_warned_of(new_upstream, start):
    text = '[server]\nhost = "{}"\nport = 0\n'
    loud = start(Gateway(text.format("0.0.0.0")))
    loud.wait_stderr("NO KEYS ARE CONFIGURED")
    for quiet in (text.format("127.0.0.1"), text.format("0.0.0.0") + '[[virtual_keys]]\nkey = "k"\n'):
        assert "NO KEYS" not in start(Gateway(quiet)).stderr


def test_what_a_slow_client_has_not_taken_is_still_sent(new_upstream, new_gateway, tmp_path):
    """Replies of growing size to clients that do not read: the larger of those that the gateway is done with stand
    partly in its own memory when it is told to end."""
    path = tmp_path / "socket"  # the kernel's buffers of a Unix socket do not grow
    upstream = new_upstream(lambda call: call.reply(200, b"x" * call.json()["n"]))
    gateway = new_gateway(fleet([upstream]), server=f'unix = "{path}"')
    inflight = lambda: gateway.metrics()["rolter_inflight_requests"]
    clients = []
    for n in range(160 << 10, 2 << 20, 16 << 10):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(DEADLINE)
        s.connect(str(path))
        body = json.dumps(chat("x", n=n)).encode()
        s.sendall(b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(body)) + body)
        try:
            wait_until(lambda: len(upstream.calls) > len(clients) and inflight() == 0, deadline=1)
        except AssertionError:
            s.close()  # the gateway waits for this one before it reads on
            break
        clients.append((n, s))
    assert len(clients) > 3
    wait_until(lambda: inflight() == 0)
    gateway.signal(signal.SIGTERM)
    gateway.wait_stderr("draining")
    for n, s in clients:
        with s:
            data = b""
            while piece := s.recv(65536):
                data += piece
            assert len(data.split(b"\r\n\r\n", 1)[1]) == n
    ended(gateway)
