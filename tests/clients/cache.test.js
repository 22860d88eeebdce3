// SPDX-License-Identifier: Apache-2.0
//
// The response cache seen through the published SDKs: what they make of a miss, of a hit and of a reply without
// any cache are equal objects.
import { readFile, readdir } from 'node:fs/promises';
import http from 'node:http';
import { after, test } from 'node:test';
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { FAST, collect, startWorld, throughRolter } from './lib/world.js';
import { plain } from './lib/plain.js';

const CACHED = 'sk-cached';
const FOLDER = new URL('../data/cache/streams/', import.meta.url);
const fixtures = (await readdir(FOLDER)).filter((name) => name.endsWith('.sse')).sort();
const calls = new Map();

/** Streams the fixture that the model names, in small pieces. */
const upstream = http.createServer(async (request, response) => {
    let body = '';
    for await (const piece of request) body += piece;
    const { model } = JSON.parse(body);
    calls.set(model, (calls.get(model) ?? 0) + 1);
    const bytes = await readFile(new URL(model, FOLDER));
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (let i = 0; i < bytes.length; i += 97) response.write(bytes.subarray(i, i + 97));
    response.end();
});
await new Promise((resolve) => upstream.listen(0, '127.0.0.1', resolve));
after(() => upstream.close());

const world = await startWorld({
    sims: { fast: FAST },
    keys: [{ key: CACHED, name: 'cached', cache: true }],
    config:
        '[cache]\nenabled = true\n' +
        `[[providers]]\nname = "fixtures"\nkind = "openai_compatible"\n` +
        `api_base = "http://127.0.0.1:${upstream.address().port}"`,
});

const openai = () => new OpenAI({ apiKey: CACHED, baseURL: `${world.gateway.url}/v1`, maxRetries: 0 });
const anthropic = () => new Anthropic({ apiKey: CACHED, baseURL: world.gateway.url, maxRetries: 0 });

/** What a client saw: the items or the error, and what the reply said about the cache. */
async function seen(call) {
    const { data, response } = await call().withResponse();
    const state = response.headers.get('x-rolter-cache');
    if (typeof data[Symbol.asyncIterator] !== 'function') return { state, items: data };
    try {
        return { state, items: await collect(data) };
    } catch (error) {
        return { state, error: `${error.name}: ${error.message}` };
    }
}

const turns = [{ role: 'user', content: 'Hello?' }];
const streamed = {
    chat: (model, more) => openai().chat.completions.create({ model, messages: turns, stream: true, ...more }),
    completions: (model, more) => openai().completions.create({ model, prompt: 'Hello?', stream: true, ...more }),
    messages: (model) => anthropic().messages.create({ model, messages: turns, max_tokens: 9, stream: true }),
    responses: (model) => openai().responses.create({ model, input: 'Hello?', store: false, stream: true }),
};

for (const name of fixtures) {
    const [dialect, verdict, ...rest] = name.split('.');
    const n = rest.map((part) => /^n(\d)$/.exec(part)?.[1]).find(Boolean);
    test(`stream ${name}`, { skip: !world.through && 'against the engine alone' }, async () => {
        const call = () => streamed[dialect](`fixtures/${name}`, n ? { n: Number(n) } : {});
        const first = await seen(call);
        const second = await seen(call);
        const stored = verdict === 'ok';
        assert.deepEqual([first.state, second.state], ['miss', stored ? 'hit' : 'miss']);
        assert.equal(calls.get(name), stored ? 1 : 2);
        assert.deepEqual({ ...second, state: '' }, { ...first, state: '' });
    });
}

const tool = { type: 'function', function: { name: 'f', description: 'Useful', parameters: { type: 'object', properties: {} } } };
const whole = {
    'chat': (model) => openai().chat.completions.create({ model, messages: turns }),
    'chat with tools': (model) => openai().chat.completions.create({ model, messages: turns, tools: [tool] }),
    'chat with two choices': (model) => openai().chat.completions.create({ model, messages: turns, n: 2 }),
    'chat stream with usage': (model) =>
        streamed.chat(model, { stream_options: { include_usage: true }, temperature: 0.5 }),
    'chat stream with tools': (model) => streamed.chat(model, { tools: [tool] }),
    'completions': (model) => openai().completions.create({ model, prompt: 'Hello?' }),
    'completions stream': (model) => streamed.completions(model, {}),
    'messages': (model) => anthropic().messages.create({ model, messages: turns, max_tokens: 9 }),
    'messages stream': (model) => streamed.messages(model),
    'responses': (model) => openai().responses.create({ model, input: 'Hello?', store: false }),
    'responses stream': (model) => streamed.responses(model),
    'embeddings': (model) => openai().embeddings.create({ model, input: ['a', 'b'] }),
    'embeddings as numbers': (model) => openai().embeddings.create({ model, input: 'a', encoding_format: 'float' }),
};

for (const [title, call] of Object.entries(whole)) {
    throughRolter(world, title, async (way) => {
        const first = await seen(() => call('fast'));
        const second = await seen(() => call('fast'));
        /* A reply that the engine cut at max_tokens is not kept. */
        const reason = JSON.stringify(first.items).match(/"(?:finish_reason|stop_reason)":"(length|max_tokens)"/);
        assert.deepEqual([first.state, second.state], ['miss', reason ? 'miss' : 'hit']);
        assert.deepEqual(plain(second.items), plain(first.items));
        if (!reason) assert.deepEqual(second.items, first.items);
        assert.ok(way);
    });
}
