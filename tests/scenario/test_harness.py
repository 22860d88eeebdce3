# SPDX-License-Identifier: Apache-2.0
"""The harness itself: what it says about broken replies must be true, or the other scenarios prove nothing."""

import pytest

from harness import EventParser, Gateway, Process, Stream, request, wait_until
from stub import Close, Reset, Stub, reply

EVENTS = b": hello\r\nevent: a\rdata: one\ndata:two\r\n\r\nid: 7\ndata: three\n\nevent: empty\n\ndata: x\n\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_however_they_are_cut(size):
    parser, events = EventParser(), []
    for at in range(0, len(EVENTS), size):
        events += parser.feed(EVENTS[at:at + size], at)
    assert [(e.type, e.data, e.id) for e in events] == [("a", "one\ntwo", None), ("", "three", "7"), ("", "x", None)]
    assert parser.comments == ["hello"]


@pytest.mark.parametrize("framing, body, end, complete, count", [
    (b"Transfer-Encoding: chunked\r\n", b"9\r\ndata: a\n\n\r\n0\r\n\r\n", None, True, 1),
    (b"Transfer-Encoding: chunked\r\n", b"9\r\ndata: a\n\n\r\n", Close, False, 1),
    (b"Transfer-Encoding: chunked\r\n", b"9\r\ndata: a\n\n\r\n", Reset, False, 1),
    (b"Transfer-Encoding: chunked\r\n", b"9\r\ndata", Close, False, 0),
    (b"Content-Length: 9\r\n", b"data: a\n\n", None, True, 1),
    (b"Content-Length: 10\r\n", b"data: a\n\n", Close, False, 1),
    (b"Connection: close\r\n", b"data: a\n\n", Close, True, 1),
])
def test_streams_know_whether_they_are_complete(framing, body, end, complete, count):
    def handler(_):
        yield HEAD + framing + b"\r\n"
        yield body
        if end:
            raise end

    with Stub(handler) as stub:
        with Stream("POST", stub.url + "/x", {"a": 1}) as stream:
            assert len(stream.all()) == count
            assert stream.complete == complete
        assert stub.requests[0].json() == {"a": 1}


def test_whole_replies_know_whether_they_are_complete():
    def handler(seen):
        if seen.target == "/good?x=1":
            return reply(201, {"b": [1]}, [("X-Two", "1"), ("x-two", "2")])
        return broken()

    def broken():
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345"
        raise Close

    with Stub(handler) as stub:
        good = request("POST", stub.url + "/good?x=1", "text")
        assert (good.status, good.json(), good.complete) == (201, {"b": [1]}, True)
        assert good.headers.all("X-TWO") == ["1", "2"]
        bad = request("GET", stub.url + "/bad")
        assert (bad.body, bad.complete) == (b"12345", False)


def test_pieces_wait_for_the_gate():
    def handler(seen):
        yield HEAD + b"Connection: close\r\n\r\ndata: a\n\n"
        assert seen.gate.wait(10)
        yield b"data: b\n\n"
        raise Close

    with Stub(handler) as stub:
        with Stream("GET", stub.url + "/") as stream:
            assert stream.next().data == "a"
            stub.gate.set()
            assert stream.next().data == "b"


def test_waiting_has_an_end():
    with pytest.raises(AssertionError, match="the moon did not come true"):
        wait_until(lambda: False, "the moon", 0.02)


def test_a_program_that_ends_early_is_reported():
    program = Process("rolter-sim", "--nothing").start()
    with pytest.raises(AssertionError, match="unknown option"):
        program.wait_ready()


def test_gateway_configuration_gets_a_port():
    gateway = Gateway("[routes]\n")
    assert gateway.config_path.read_text().startswith('[server]\nhost = "127.0.0.1"\nport = 0\n')
    gateway.write_config("[server]\nport = 7\n")
    assert gateway.config_path.read_text() == "[server]\nport = 7\n"
    gateway.kill()
