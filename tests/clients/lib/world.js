// SPDX-License-Identifier: Apache-2.0
//
// Simulated engines, a gateway before them, and clients for both ways: straight to an engine and through
// rolter. An engine called NAME serves the model NAME; the gateway has a route of that name for it.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import http from 'node:http';
import https from 'node:https';
import { join } from 'node:path';
import { after, test } from 'node:test';
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { Program, until } from './program.js';
import { plain } from './plain.js';

/** What clients show the gateway, and what the engines want to see. */
export const CLIENT_KEY = 'sk-client-of-the-suite';
export const ENGINE_KEY = 'sk-engine-of-the-suite';

/** Replies come at once. */
export const FAST = ['--decode-tps', '0', '--prefill-tps', '0', '--blocks', '65536'];
/** <tps> tokens a second, so that a stream takes its time. */
export const slow = (tps) => ['--decode-tps', String(tps), '--prefill-tps', '0'];

const TEST_MS = 120000;
const TLS_FILES = process.env.ROLTER_TLS_FILES;
const SIM_HEADERS = ['fail', 'stall', 'cut', 'error', 'tokens', 'delay-ms'].map((name) => `x-sim-${name}`);

const toml = JSON.stringify; /* strings and arrays of strings are written alike */

class World {
    sims = {};
    gateway = null;

    async stats(sim) {
        return (await fetch(`${this.sims[sim].url}/sim/stats`)).json();
    }

    /** Switches faults of an engine at run time; they stay until they are set anew. */
    async faults(sim, values) {
        const reply = await fetch(`${this.sims[sim].url}/sim/faults`, {
            method: 'POST',
            body: JSON.stringify(values),
        });
        assert.equal(reply.status, 200, await reply.text());
    }

    /** Caches and counters as if just started. */
    async fresh() {
        for (const sim of Object.values(this.sims)) if (!sim.isDown) await this.#restart(sim);
    }

    async #restart(sim) {
        try {
            await (await fetch(`${sim.url}/sim/restart`, { method: 'POST' })).text();
        } catch (error) {
            throw new Error(`the engine does not answer: ${error.cause}\n${sim.log}`);
        }
    }

    /** The gateway's metrics: a map from series ("name{labels}") to value. */
    async metrics() {
        const text = await (await fetch(`${this.gateway.url}/metrics`)).text();
        const lines = text.split('\n').filter((line) => line && !line.startsWith('#'));
        return new Map(
            lines.map((line) => [
                line.slice(0, line.lastIndexOf(' ')),
                Number(line.slice(line.lastIndexOf(' '))),
            ]),
        );
    }

    /** Waits until the gateway counts no request in flight to <sim>. */
    async idle(sim, ms = 5000) {
        const series = `rolter_inflight{provider=${toml(sim)}}`;
        assert.ok((await this.metrics()).has(series), `${series} exists`);
        await until(`${series} is 0`, async () => (await this.metrics()).get(series) === 0, ms);
    }
}

/** One way to reach the engines. */
class Way {
    constructor(world, name) {
        this.world = world;
        this.name = name;
        this.isDirect = name === 'direct';
        this.key = this.isDirect ? ENGINE_KEY : CLIENT_KEY;
    }

    url(sim) {
        return this.isDirect ? this.world.sims[sim].url : this.world.gateway.url;
    }

    openai(sim, options = {}) {
        return new OpenAI({ apiKey: this.key, baseURL: `${this.url(sim)}/v1`, maxRetries: 0, ...options });
    }

    anthropic(sim, options = {}) {
        return new Anthropic({ apiKey: this.key, baseURL: this.url(sim), maxRetries: 0, ...options });
    }

    /** Node's own module for requests to <sim>. */
    http(sim) {
        return this.url(sim).startsWith('https:') ? https : http;
    }

    /** POST of a body by fetch, for what the client libraries have no call for. */
    post(sim, path, body, headers = {}, options = {}) {
        return fetch(this.url(sim) + path, {
            method: 'POST',
            headers: { authorization: `Bearer ${this.key}`, 'content-type': 'application/json', ...headers },
            body: typeof body === 'string' ? body : JSON.stringify(body),
            ...options,
        });
    }
}

function configuration(world, options) {
    const keys = [{ key: CLIENT_KEY, name: 'suite' }, ...(options.keys ?? [])];
    const routes = { ...Object.fromEntries(Object.keys(world.sims).map((s) => [s, [s]])), ...options.routes };
    const tls = TLS_FILES
        ? `tls_cert = ${toml(join(TLS_FILES, 'cert.pem'))}\ntls_key = ${toml(join(TLS_FILES, 'key.pem'))}\n`
        : '';
    const out = [
        `[server]\nhost = "127.0.0.1"\nport = 0\nworkers = 2\n${tls}${options.server ?? ''}`,
        `[client]\nforwarded_headers = ${toml(SIM_HEADERS)}`,
        options.config ?? '',
    ];
    for (const [name, sim] of Object.entries(world.sims))
        out.push(
            `[[providers]]\nname = ${toml(name)}\nkind = ${toml(sim.kind)}\napi_base = ${toml(sim.url)}\n` +
                `api_key_env = "ENGINE_KEY"`,
        );
    for (const [model, targets] of Object.entries(routes)) {
        out.push(`[[routes]]\nmodel = ${toml(model)}`);
        for (const t of targets) out.push(`[[routes.targets]]\nprovider = ${toml(t)}`);
    }
    for (const key of keys)
        out.push(
            '[[virtual_keys]]',
            ...Object.entries(key).map(([name, value]) => `${name} = ${toml(value)}`),
        );
    return out.join('\n') + '\n';
}

/**
 * Starts it all; it ends with the test file.
 *   sims    { NAME: arguments of rolter-sim }
 *   kinds   { NAME: provider kind } for others than openai_compatible
 *   routes  { MODEL: [NAME, ...] } beside the one of each engine
 *   keys    virtual keys beside CLIENT_KEY
 *   server  more TOML in [server]
 *   config  more TOML, before the arrays of tables
 */
export async function startWorld(options) {
    const world = new World();
    const folder = await mkdtemp(join(tmpdir(), 'rolter-clients-'));
    after(async () => {
        const status = world.gateway ? await world.gateway.stop() : 0;
        await Promise.all(Object.values(world.sims).map((sim) => sim.stop()));
        await rm(folder, { recursive: true });
        assert.equal(status, 0, `the gateway ended with ${status}\n${world.gateway?.log}`);
    });
    for (const [name, args] of Object.entries(options.sims)) {
        const more = ['--name', name, '--api-key', ENGINE_KEY, '--record', '64'];
        world.sims[name] = await Program.start('rolter-sim', ['--listen', '127.0.0.1:0', ...more, ...args]);
        world.sims[name].kind = options.kinds?.[name] ?? 'openai_compatible';
    }
    world.direct = new Way(world, 'direct');
    world.ways = [world.direct];
    if (process.env.ROLTER_WAYS !== 'direct') {
        const file = join(folder, 'rolter.toml');
        await writeFile(file, configuration(world, options));
        world.gateway = await Program.start('rolter', ['serve', '--config', file], { ENGINE_KEY });
        world.through = new Way(world, 'through rolter');
        world.ways.push(world.through);
        assert.equal(world.gateway.url.startsWith('https:'), !!TLS_FILES);
    }
    return world;
}

/**
 * A test that runs both ways, each from fresh engines. What <body> returns is compared: equal but for ids and
 * times.
 */
export function bothWays(world, title, body) {
    test(title, { timeout: TEST_MS }, async (t) => {
        const seen = [];
        for (const way of world.ways) {
            await t.test(way.name, async () => {
                await world.fresh();
                seen.push(plain(await body(way)));
            });
        }
        if (seen.length === 2)
            await t.test('both ways gave the same', () => assert.deepEqual(seen[1], seen[0]));
    });
}

/** A test of what only the gateway does. */
export function throughRolter(world, title, body) {
    test(title, { timeout: TEST_MS, skip: !world.through && 'against the engine alone' }, async () => {
        await world.fresh();
        await body(world.through);
    });
}

/** All items of a stream. */
export async function collect(stream) {
    const items = [];
    for await (const item of stream) items.push(item);
    return items;
}

/** The error that <promise> rejects with. */
export async function failure(promise) {
    try {
        await promise;
    } catch (error) {
        return error;
    }
    return assert.fail('this should have failed');
}
