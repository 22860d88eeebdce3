// SPDX-License-Identifier: Apache-2.0
//
// Streams over time: the first event at once, leaving in the middle, reading slowly.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { FAST, bothWays, failure, slow, startWorld, throughRolter } from './lib/world.js';
import { until } from './lib/program.js';

const world = await startWorld({ sims: { fast: FAST, slow: slow(50) } });
const messages = [{ role: 'user', content: 'Tell me a long story' }];

/** Each opens a stream and returns an iterator of its events, and how to leave it. */
const dialects = {
    chat: async (way, options) => {
        const stream = await way
            .openai('slow')
            .chat.completions.create({ model: 'slow', messages, stream: true }, options);
        return { events: stream, leave: () => stream.controller.abort() };
    },
    completions: async (way, options) => {
        const stream = await way
            .openai('slow')
            .completions.create({ model: 'slow', prompt: 'x', stream: true }, options);
        return { events: stream, leave: () => stream.controller.abort() };
    },
    responses: async (way, options) => {
        const stream = await way
            .openai('slow')
            .responses.create({ model: 'slow', input: 'x', stream: true }, options);
        return { events: stream, leave: () => stream.controller.abort() };
    },
    messages: async (way, options) => {
        const stream = way
            .anthropic('slow')
            .messages.stream({ model: 'slow', messages, max_tokens: 100000 }, options);
        return { events: stream, leave: () => stream.abort() };
    },
};

/** Reads on until the engine notices that its client is gone, a second at most. */
async function isNoticed(way) {
    await until('the engine notices', async () => (await world.stats('slow')).aborted === 1, 1000);
    const stats = await world.stats('slow');
    assert.equal(stats.running, 0);
    assert.equal(stats.answered, 0);
    if (!way.isDirect) await world.idle('slow', 1000);
}

for (const [name, open] of Object.entries(dialects)) {
    bothWays(world, `${name}: events arrive while the engine still works`, async (way) => {
        const { events } = await open(way, { headers: { 'x-sim-tokens': '80' } });
        let seen = 0;
        for await (const event of events) {
            assert.ok(event);
            if (++seen % 10) continue;
            const { answered, running } = await world.stats('slow');
            if (seen <= 30) assert.deepEqual([answered, running], [0, 1], `after ${seen} events`);
        }
        assert.ok(seen >= 80);
        assert.equal((await world.stats('slow')).answered, 1);
        return seen;
    });

    bothWays(world, `${name}: leaving in the middle ends the work upstream`, async (way) => {
        const { events, leave } = await open(way, { headers: { 'x-sim-tokens': '20000' } });
        let seen = 0;
        await (async () => {
            for await (const event of events) {
                assert.ok(event);
                if (++seen === 8) leave();
            }
        })().catch((error) => assert.match(error.constructor.name, /Abort/));
        assert.ok(seen >= 8);
        await isNoticed(way);
    });

    bothWays(world, `${name}: so does a reader that stops reading`, async (way) => {
        const { events } = await open(way, { headers: { 'x-sim-tokens': '20000' } });
        let seen = 0;
        for await (const event of events) {
            assert.ok(event);
            if (++seen === 8) break;
        }
        await isNoticed(way);
    });
}

bothWays(world, 'leaving before the reply has begun', async (way) => {
    const abort = new AbortController();
    const call = way
        .openai('slow')
        .chat.completions.create(
            { model: 'slow', messages, max_tokens: 20000 },
            { signal: abort.signal, headers: { 'x-sim-tokens': '20000' } },
        );
    const failed = failure(call);
    await until('the engine works', async () => (await world.stats('slow')).running === 1);
    abort.abort();
    assert.match((await failed).constructor.name, /Abort/);
    await isNoticed(way);
});

throughRolter(world, 'clients that leave are counted, and what they left is free', async (way) => {
    const before = (await world.metrics()).get('rolter_client_disconnects_total');
    for (let i = 0; i < 20; i++) {
        const { events } = await dialects.chat(way, { headers: { 'x-sim-tokens': '20000' } });
        for await (const event of events) {
            assert.ok(event);
            break;
        }
    }
    await until('20 aborted', async () => (await world.stats('slow')).aborted === 20);
    await world.idle('slow');
    const metrics = await world.metrics();
    assert.equal(metrics.get('rolter_client_disconnects_total') - before, 20);
    assert.equal(metrics.get('rolter_inflight_requests'), 0);
});

/** A raw stream of <tokens> tokens, not read yet. */
async function openRaw(way, tokens) {
    const request = way.http('fast').request(`${way.url('fast')}/v1/chat/completions`, {
        method: 'POST',
        agent: false,
        headers: {
            authorization: `Bearer ${way.key}`,
            'content-type': 'application/json',
            'x-sim-tokens': String(tokens),
        },
    });
    request.end(JSON.stringify({ model: 'fast', messages, stream: true }));
    const [response] = await once(request, 'response');
    return response;
}

async function residentBytes(pid) {
    return Number(/VmRSS:\s*(\d+)/.exec(await readFile(`/proc/${pid}/status`, 'utf8'))[1]) * 1024;
}

bothWays(world, 'a reader that pauses holds the engine back and gets every byte', async (way) => {
    const TOKENS = 120000;
    const client = way.openai('fast');
    const ask = () =>
        client.chat.completions.create({ model: 'fast', messages: [{ role: 'user', content: 'short' }] });
    await ask();
    const before = world.gateway && (await residentBytes(world.gateway.pid));
    const response = await openRaw(way, TOKENS);
    /* Others are served meanwhile; in this time the whole stream would have come, were it not held back. */
    for (let i = 0; i < 100; i++) await ask();
    const stats = await world.stats('fast');
    assert.equal(stats.answered, 101);
    assert.equal(stats.in_flight, 2, 'the stream and the request for these numbers');
    if (!way.isDirect) {
        const grown = (await residentBytes(world.gateway.pid)) - before;
        assert.ok(grown < 8 << 20, `the gateway has grown by ${grown} bytes`);
    }
    const pieces = [];
    for await (const piece of response.setEncoding('latin1')) pieces.push(piece);
    const body = pieces.join('');
    assert.ok(response.complete);
    assert.ok(body.length > TOKENS * 150, `${body.length} bytes`);
    assert.ok(body.endsWith('data: [DONE]\n\n'));
    const lasting = body.replace(/"(id|created)":("[^"]*"|\d+)/g, '');
    return [body.length, createHash('sha256').update(lasting).digest('hex')];
});

bothWays(world, 'a slow program with the library loses nothing', async (way) => {
    const client = way.openai('fast');
    const options = { headers: { 'x-sim-tokens': '20000' } };
    const whole = await client.chat.completions.create({ model: 'fast', messages }, options);
    const stream = await client.chat.completions.create({ model: 'fast', messages, stream: true }, options);
    let text = '';
    let n = 0;
    for await (const chunk of stream) {
        text += chunk.choices[0].delta.content ?? '';
        if (++n % 500 === 0) await client.embeddings.create({ model: 'fast', input: text.slice(-100) });
    }
    assert.equal(text.length, 20000 * 4);
    assert.ok(text === whole.choices[0].message.content, 'the text is the same');
    return createHash('sha256').update(text).digest('hex');
});
