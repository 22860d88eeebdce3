#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""precise_cache_aware live: simulated engines that publish KV events and tokenize, the gateway, and a trace.

    bench/precise.py --build build-release [--strategies precise_cache_aware,cache_aware]

For each strategy a fresh fleet gets the beginning of the conversation trace from rolter-replay; its table line stands
beside where the gateway had its token ids from. Prompts are scaled to 64 tokens for each block of the trace.
"""
import argparse
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "scenario"))
PORT = "tcp://127.0.0.1:*"


def configuration(sims, strategy):
    text = ""
    for i, sim in enumerate(sims):
        told = sim.stats()["events"]
        text += (f'[[providers]]\nname = "p{i}"\nkind = "openai_compatible"\napi_base = "{sim.url}"\n'
                 f'[providers.kv_events]\nendpoint = "{told["endpoint"]}"\ntopic = ""\n'
                 f'replay_endpoint = "{told["replay_endpoint"]}"\n')
    tokenize = 'tokenize = "engine"\n' if strategy == "precise_cache_aware" else ""
    targets = ", ".join(f'{{ provider = "p{i}" }}' for i in range(len(sims)))
    return text + f'[[routes]]\nmodel = "m"\nstrategy = "{strategy}"\n{tokenize}targets = [{targets}]\n'


def run(strategy, options):
    from harness import BUILD, Gateway, Sim, wait_until
    sims = [Sim(events=PORT, events_replay=PORT, model="m", blocks=options.blocks, prefill_tps=40000, decode_tps=400,
                record=0).start() for _ in range(options.replicas)]
    for sim in sims:
        sim.wait_ready()
    with Gateway(configuration(sims, strategy)) as gateway:
        wait_until(lambda: all(sim.stats()["events"]["subscriptions"] for sim in sims), "the subscriptions")
        replay = subprocess.run(
            [BUILD / "rolter-replay", "live", options.trace, "--limit", str(options.limit), "--url", gateway.url,
             "--model", "m", "--speed", str(options.speed), "--scale", "256", "--max-output", "8", "--gap-ms", "2"],
            capture_output=True, text=True)
        ids = {name.split('"')[1]: int(value) for name, value in gateway.metrics().items()
               if name.startswith("rolter_tokenize_requests_total") and value}
    for sim in sims:
        sim.stop()
    lines = replay.stdout.splitlines()
    if replay.returncode or not lines:
        sys.exit(f"{strategy}: {replay.stderr}")
    print(f"{strategy}\n{lines[-2]}\n{lines[-1]}\nids: {ids}\n", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--trace", default=str(ROOT / "tests/data/mooncake_conversation_trace.jsonl.gz"))
    parser.add_argument("--strategies", default="precise_cache_aware,cache_aware")
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=20000, help="of 16 tokens, of each replica")
    parser.add_argument("--limit", type=int, default=1500, help="requests")
    parser.add_argument("--speed", type=float, default=12)
    options = parser.parse_args()
    os.environ["ROLTER_BUILD"] = str(pathlib.Path(options.build).resolve())
    for strategy in options.strategies.split(","):
        run(strategy, options)


main()
