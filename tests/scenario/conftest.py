# SPDX-License-Identifier: Apache-2.0
import pytest

from harness import Gateway, Sim
from redis_server import RedisServer
from upstream import Upstream


@pytest.fixture
def start():
    """start(process): begins it, waits until it is ready, and ends it with the test. All must end with 0."""
    processes = []

    def begin(process):
        processes.append(process)
        process.start()
        return process.wait_ready()

    yield begin
    for process in reversed(processes):
        print(f"--- stderr of {process.command[0]}\n{process.stderr}")
    try:
        for process in reversed(processes):
            process.stop()
    finally:
        for process in processes:
            process.kill()


@pytest.fixture
def new_sim(start):
    return lambda *args, **options: start(Sim(*args, **options))


@pytest.fixture
def new_gateway(start):
    return lambda config, *args, **options: start(Gateway(config, *args, **options))


@pytest.fixture
def sim(new_sim):
    """A rolter-sim that is infinitely fast."""
    return new_sim()


@pytest.fixture
def new_upstream():
    """new_upstream(answer): a scripted upstream, see upstream.py. Errors of its script fail the test."""
    made = []

    def make(answer=None, name=None, context=None):
        made.append(Upstream(answer, name or f"u{len(made)}", context))
        return made[-1]

    yield make
    for one in made:
        one.close()
    assert not [error for one in made for error in one.errors]


@pytest.fixture
def new_redis():
    """new_redis(*options): a real redis-server."""
    made = []

    def make(*options):
        made.append(RedisServer(*options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: not run under the thread sanitizer")
