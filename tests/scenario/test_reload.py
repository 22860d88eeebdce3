# SPDX-License-Identifier: Apache-2.0
"""Configurations that change while the gateway serves: by signal, by file, bad ones, under traffic."""

import collections
import signal
import threading

import pytest

from harness import DEADLINE, chat, wait_until
from upstream import chat_reply, dead_port, fleet, metric, wait_idle

CHAT = "/v1/chat/completions"


def provider(name, upstream):
    url = upstream if isinstance(upstream, str) else upstream.url
    return f'[[providers]]\nname = "{name}"\nkind = "openai_compatible"\napi_base = "{url}"\n\n'


def route(*targets, model="m", more=""):
    return f'[[routes]]\nmodel = "{model}"\n{more}\ntargets = [' + ", ".join(
        f'{{ provider = "{t}" }}' for t in targets) + "]\n\n"


def who(gateway, model="m", headers=None):
    reply = gateway.post(CHAT, chat("x", model=model), headers)
    assert reply.status == 200, reply
    return reply.headers["x-rolter-provider"]


def test_signal(new_upstream, new_gateway):
    a, b = new_upstream(), new_upstream()
    gateway = new_gateway(provider("a", a) + route("a"))
    assert who(gateway) == "a" and gateway.config_version() == 1
    assert gateway.metrics()["rolter_config_reloads_total"] == 0
    gateway.reload(provider("b", b) + route("b"))
    gateway.wait_stderr(r"reload \((signal|file changed)\): configuration 2 is running")
    wait_until(lambda: who(gateway) == "b")
    assert gateway.metrics()["rolter_config_reloads_total"] >= 1


def test_signal_without_a_change(new_upstream, new_gateway):
    gateway = new_gateway(provider("a", new_upstream()) + route("a"))
    gateway.signal(signal.SIGHUP)
    gateway.wait_version(2)
    assert who(gateway) == "a"


@pytest.mark.parametrize("how", ["replaced", "written in place", "removed and made again", "linked anew"])
def test_change_of_the_file(new_upstream, new_gateway, how):
    a, b = new_upstream(), new_upstream()
    gateway = new_gateway(provider("a", a) + route("a"))
    server = gateway.config_path.read_text()[:60].split("[[")[0]
    text = server + provider("b", b) + route("b")
    path = gateway.config_path
    if how == "replaced":
        gateway.write_config(text)
    elif how == "written in place":
        path.write_text(text)
    elif how == "removed and made again":
        path.unlink()
        path.write_text(text)
    else:
        real = path.with_name("elsewhere.toml")
        real.write_text(text)
        path.unlink()
        path.symlink_to(real)
    gateway.wait_stderr(r"reload \(file changed\): configuration 2 is running")
    wait_until(lambda: who(gateway) == "b")


BAD = [
    ("syntax", "[[providers]\n", r"rolter\.toml:\d+:\d+: "),
    ("unknown key", '\n[retry]\nmax_retrys = 2\n', r"rolter\.toml:\d+:\d+: .*max_retrys.*max_retries"),
    ("wrong type", '\n[retry]\nmax_retries = "two"\n', r"rolter\.toml:\d+:\d+: .*max_retries"),
    ("out of range", '\n[retry]\nmax_retries = -1\n', r"rolter\.toml:\d+:\d+: .*max_retries"),
    ("no such provider", '\n[[routes]]\nmodel = "z"\ntargets = [{ provider = "nobody" }]\n',
     r"rolter\.toml:\d+:\d+: .*nobody"),
]


@pytest.mark.parametrize("text, line", [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_file_changes_nothing(new_upstream, new_gateway, text, line):
    a = new_upstream()
    good = provider("a", a) + route("a")
    gateway = new_gateway(good)
    gateway.reload(good + text)
    match = gateway.wait_stderr(line)
    # Line and column are those of the fault.
    place = match[0].split("rolter.toml:")[1].split(":")
    wrong = gateway.config_path.read_text().split("\n")[int(place[0]) - 1]
    assert wrong.strip() and int(place[1]) <= len(wrong) + 1
    gateway.wait_stderr(r"reload .*the running configuration stays")
    assert gateway.metrics()["rolter_config_reload_failures_total"] >= 1
    assert gateway.config_version() == 1 and who(gateway) == "a"
    gateway.reload(good.replace('"m"', '"n"'))
    wait_until(lambda: gateway.post(CHAT, chat("x", model="n")).status == 200, "the repaired file")


def test_every_fault_in_one_go(new_upstream, new_gateway):
    good = provider("a", new_upstream()) + route("a")
    gateway = new_gateway(good)
    gateway.reload(good + '\n[retry]\nmax_retrys = 2\n[breaker]\nopen_secs = "x"\n[queue]\nworkers = 0\n')
    gateway.wait_stderr(r"3 faults, the running configuration stays")
    for word in ("max_retrys", "open_secs", "workers"):
        gateway.wait_stderr(rf"rolter\.toml:\d+:\d+: .*{word}")


def test_file_that_is_gone_changes_nothing(new_upstream, new_gateway):
    gateway = new_gateway(provider("a", new_upstream()) + route("a"))
    gateway.config_path.unlink()
    gateway.signal(signal.SIGHUP)
    wait_until(lambda: gateway.metrics()["rolter_config_reload_failures_total"] >= 1)
    assert who(gateway) == "a"


def test_requests_in_flight_keep_their_configuration(new_upstream, new_gateway):
    """The next attempt of a request that began before the change goes where the old configuration says, too."""
    begun, go = threading.Event(), threading.Event()

    def fail_later(call):
        begun.set()
        assert go.wait(DEADLINE)
        call.reply(500)

    a, b, c = new_upstream(fail_later), new_upstream(), new_upstream()
    old = provider("a", a) + provider("b", b) + route("a", "b", more='params = { temperature = 0.5 }')
    gateway = new_gateway(old)
    replies = []
    thread = threading.Thread(target=lambda: replies.append(gateway.post(CHAT, chat("x"))))
    thread.start()
    assert begun.wait(DEADLINE)
    gateway.reload_and_wait(provider("c", c) + route("c"))
    wait_until(lambda: who(gateway) == "c")
    go.set()
    thread.join()
    assert replies[0].status == 200 and replies[0].headers["x-rolter-provider"] == "b"
    assert b.calls[0].json()["temperature"] == 0.5
    # A removed provider's charges are gone with its last request.
    wait_until(lambda: gateway.metrics()["rolter_inflight_requests"] == 0)


def test_stream_over_several_reloads(new_upstream, new_gateway):
    go = [threading.Event() for _ in range(4)]

    def answer(call):
        call.begin_events()
        for event in go:
            assert event.wait(DEADLINE)
            call.event({"choices": []})
        call.end()

    a = new_upstream(answer)
    gateway = new_gateway(provider("a", a) + route("a"))
    with gateway.stream(CHAT, chat("x", stream=True)) as stream:
        for i, event in enumerate(go):
            event.set()
            stream.next()
            gateway.reload_and_wait(provider(f"b{i}", a) + route(f"b{i}"))
        assert stream.all() == [] and stream.complete


def test_two_hundred_reloads_under_traffic(new_upstream, new_gateway):
    """Targets come, go, change places and parameters; not one request fails or goes where no configuration says."""
    ups = [new_upstream() for _ in range(3)]
    names = "abc"

    def text(i):
        rotated = [(i + k) % 3 for k in range(3)]
        used = rotated[:2 + i % 2]
        order = used if i % 4 < 2 else used[::-1]
        strategy = ["round_robin", "weighted", "power_of_two", "least_load", "random"][i % 5]
        return ("".join(provider(names[k], ups[k]) for k in order)
                + route(*(names[k] for k in order), more=f'strategy = "{strategy}"\nparams = {{ seed = {i} }}')
                + route(names[order[0]], model=f"only-{i}"))

    gateway = new_gateway(text(0))
    stop, wrong, done = threading.Event(), [], collections.Counter()

    def traffic(number):
        with gateway.client() as client:
            n = 0
            while not stop.is_set():
                n += 1
                try:
                    reply = client.post(CHAT, chat(f"{number}-{n}"), {"x-request-id": f"r-{number}-{n}"})
                except OSError as error:
                    wrong.append(error)
                    return
                provider_name = reply.headers.get("x-rolter-provider")
                if reply.status != 200 or reply.headers["x-request-id"] != f"r-{number}-{n}":
                    wrong.append(reply)
                    return
                if reply.json()["choices"][0]["message"]["content"] != f"u{names.index(provider_name)}":
                    wrong.append(reply)
                    return
                done[provider_name] += 1

    threads = [threading.Thread(target=traffic, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    try:
        for i in range(1, 201):
            gateway.reload(text(i))
            wait_until(lambda: f"configuration {i + 1} is running" in gateway.stderr or wrong, f"reload {i}")
            assert not wrong
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert not wrong and sum(done.values()) > 200 and set(done) == set(names)
    assert gateway.metrics()["rolter_config_reload_failures_total"] == 0
    wait_until(lambda: gateway.post(CHAT, chat("x", model="only-200")).status == 200)
    for up in ups:
        for call in up.calls:
            assert call.json()["model"] == "m" or call.json()["model"].startswith("only-")
    wait_until(lambda: gateway.metrics()["rolter_inflight_requests"] == 0)


def test_removed_target_gets_nothing_more(new_upstream, new_gateway):
    a, b = new_upstream(), new_upstream()
    both = provider("a", a) + provider("b", b)
    gateway = new_gateway(both + route("a", "b"))
    assert {who(gateway) for _ in range(4)} == {"a", "b"}
    gateway.reload_and_wait(both + route("b"))
    wait_until(lambda: [who(gateway) for _ in range(4)] == ["b"] * 4)
    n = len(a.calls)
    for _ in range(10):
        assert who(gateway) == "b"
    assert len(a.calls) == n
    assert gateway.post(CHAT, chat("x", model="a/direct")).status == 200  # still there by its own name


def test_rotation_goes_on(new_upstream, new_gateway):
    """A reload does not send everything to the first target again."""
    ups = [new_upstream() for _ in range(4)]
    text = "".join(provider(f"p{i}", u) for i, u in enumerate(ups)) + route(*(f"p{i}" for i in range(4)))
    gateway = new_gateway(text)
    order = []
    for i in range(12):
        order.append(who(gateway))
        gateway.reload_and_wait(text + f"# {i}\n")
    first = int(order[0][1:])
    assert order == [f"p{(first + i) % 4}" for i in range(12)]


def test_rotation_goes_on_when_targets_change_places(new_upstream, new_gateway):
    ups = [new_upstream() for _ in range(3)]
    ps = "".join(provider(f"p{i}", u) for i, u in enumerate(ups))
    gateway = new_gateway(ps + route("p0", "p1", "p2"))
    assert who(gateway) == "p0"
    gateway.reload_and_wait(ps + route("p2", "p0", "p1"))
    assert who(gateway) == "p1"


def test_cooldown_survives(new_upstream, new_gateway):
    def bad(call):
        call.reply(500)

    a, b = new_upstream(bad), new_upstream()
    ps = provider("a", a) + provider("b", b)
    more = "[cooldown]\nbase_secs = 300\n"
    gateway = new_gateway(ps + route("a", "b") + more)
    while not a.calls:
        assert who(gateway) == "b"
    for text in (ps + route("b", "a"), provider("b", b) + provider("a", a) + route("a", "b"),
                 ps + route("a", "b", more="params = { seed = 1 }")):
        gateway.reload_and_wait(text + more)
        for _ in range(6):
            assert who(gateway) == "b"
    assert len(a.calls) == 1
    # Another upstream model, another address: another target, without a past (R22).
    gateway.reload_and_wait(ps + '[[routes]]\nmodel = "m"\ntargets = [{ provider = "a", model = "other" }, '
                            '{ provider = "b" }]\n' + more)
    wait_until(lambda: who(gateway) == "b" and len(a.calls) == 2)


def test_breaker_survives(new_upstream, new_gateway):
    def bad(call):
        call.reply(500)

    a, b = new_upstream(bad), new_upstream()
    ps = provider("a", a) + provider("b", b)
    more = ("[cooldown]\nbase_secs = 0\n[breaker]\nenabled = true\nfailure_threshold = 2\nopen_secs = 300\n")
    gateway = new_gateway(ps + route("a", "b") + more)
    wait_until(lambda: who(gateway) == "b" and gateway.metrics()["rolter_breaker_opened_total"] == 1)
    gateway.reload_and_wait(ps + route("b", "a") + more)
    for _ in range(6):
        assert who(gateway) == "b"
    assert len(a.calls) == 2
    # Switched off by a reload, it lets everything through at once.
    gateway.reload_and_wait(ps + route("a", "b") + "[cooldown]\nbase_secs = 0\n")
    wait_until(lambda: who(gateway) == "b" and len(a.calls) > 2)


def test_loads_survive(new_upstream, new_gateway):
    """A stream that began before the reload still counts for its provider."""
    go = threading.Event()

    def answer(call):
        if call.json().get("stream"):
            call.begin_events()
            call.event({"choices": []})
            assert go.wait(DEADLINE)
            call.end()
        else:
            call.reply(200, chat_reply("x"))

    a, b = new_upstream(answer), new_upstream(answer)
    ps = provider("a", a) + provider("b", b)
    gateway = new_gateway(ps + route("a", "b", more='strategy = "least_load"'))
    with gateway.stream(CHAT, chat("x", stream=True)) as stream:
        stream.next()
        busy = stream.headers["x-rolter-provider"]
        gateway.reload_and_wait(ps + route("b", "a", more='strategy = "least_load"'))
        assert gateway.metrics()[metric("rolter_inflight", provider=busy)] == 1
        for _ in range(6):
            assert who(gateway) != busy
        go.set()
        assert stream.all() == [] and stream.complete
    wait_idle(gateway, ("a", "b"))


def test_queue_limits_change(new_upstream, new_gateway):
    """A new limit counts for who waits already."""
    go, lock = threading.Event(), threading.Lock()
    running = [0]

    def answer(call):
        with lock:
            running[0] += 1
        assert go.wait(DEADLINE)
        call.reply(200, chat_reply("x"))

    a = new_upstream(answer)
    text = provider("a", a) + route("a")
    gateway = new_gateway(text + "[queue]\nworkers = 1\ncapacity = 10\n")
    replies = []
    threads = [threading.Thread(target=lambda: replies.append(gateway.post(CHAT, chat("x")).status))
               for _ in range(4)]
    for t in threads:
        t.start()
    gateway.wait_metric(metric("rolter_provider_queue_depth", provider="a"), 3)
    gateway.reload_and_wait(text + "[queue]\nworkers = 3\ncapacity = 10\n")
    wait_until(lambda: running[0] == 3, "two more at work")
    assert gateway.metrics()[metric("rolter_provider_queue_depth", provider="a")] == 1
    go.set()
    for t in threads:
        t.join()
    assert replies == [200] * 4
    wait_idle(gateway, ("a",))


@pytest.mark.parametrize("change", ["port", "workers", "host"])
def test_what_needs_a_restart_is_said(new_upstream, new_gateway, change):
    text = provider("a", new_upstream()) + route("a")
    gateway = new_gateway(text)
    held, port = dead_port()
    with held:
        server = {"host": '"127.0.0.1"', "port": 0, "workers": 0}
        server[change] = {"host": '"0.0.0.0"', "port": port, "workers": 7}[change]
        table = "[server]\n" + "".join(f"{k} = {v}\n" for k, v in server.items())
        gateway.reload(table + text.replace('"m"', '"n"'))
        gateway.wait_stderr(rf"takes effect at the next start only: .*{change}")
    wait_until(lambda: gateway.post(CHAT, chat("x", model="n")).status == 200, "the rest of the change")


def test_limits_of_the_listener_change(new_upstream, new_gateway):
    text = provider("a", new_upstream()) + route("a")
    gateway = new_gateway(text)
    assert gateway.post(CHAT, chat("x" * 1000)).status == 200
    gateway.server = "max_body_bytes = 500"
    gateway.reload_and_wait(text)
    wait_until(lambda: gateway.post(CHAT, chat("x" * 1000)).status == 413)
    assert gateway.post(CHAT, chat("x")).status == 200


def test_keys_change(new_upstream, new_gateway):
    text = provider("a", new_upstream()) + route("a")
    gateway = new_gateway(text + '[[virtual_keys]]\nkey = "one"\n')

    def status(key):
        return gateway.post(CHAT, chat("x"), {"Authorization": f"Bearer {key}"}).status
    assert (status("one"), status("two")) == (200, 401)
    gateway.reload_and_wait(text + '[[virtual_keys]]\nkey = "two"\n')
    wait_until(lambda: (status("one"), status("two")) == (401, 200))
