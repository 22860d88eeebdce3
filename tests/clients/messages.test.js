// SPDX-License-Identifier: Apache-2.0
//
// Anthropic messages, to an engine that speaks several dialects and to a provider of Anthropic's kind.
import assert from 'node:assert/strict';
import { FAST, bothWays, collect, startWorld } from './lib/world.js';

const world = await startWorld({ sims: { fast: FAST, claude: FAST }, kinds: { claude: 'anthropic' } });

const tool = {
    name: 'get_weather',
    description: 'Weather of a place',
    input_schema: {
        type: 'object',
        properties: { place: { type: 'string', enum: ['Zürich 🏔'] }, days: { type: 'integer' } },
    },
};

for (const model of ['fast', 'claude']) {
    const body = {
        model,
        max_tokens: 64,
        system: [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }],
        messages: [
            { role: 'user', content: 'Hello?' },
            { role: 'assistant', content: [{ type: 'text', text: 'Hello.' }] },
            { role: 'user', content: [{ type: 'text', text: 'And now?' }] },
        ],
    };

    bothWays(world, `${model}: a JSON reply`, async (way) => {
        const reply = await way.anthropic(model).messages.create(body);
        assert.equal(reply.type, 'message');
        assert.equal(reply.stop_reason, 'end_turn');
        assert.equal(reply.content[0].text.length, 64);
        assert.equal(reply.usage.output_tokens, 16);
        return reply;
    });

    bothWays(world, `${model}: the events of a stream`, async (way) => {
        const client = way.anthropic(model);
        const whole = await client.messages.create(body);
        const events = await collect(await client.messages.create({ ...body, stream: true }));
        const counts = {};
        for (const e of events) counts[e.type] = (counts[e.type] ?? 0) + 1;
        delete counts.ping; /* the library may keep it to itself */
        assert.deepEqual(counts, {
            message_start: 1,
            content_block_start: 1,
            content_block_delta: 16,
            content_block_stop: 1,
            message_delta: 1,
            message_stop: 1,
        });
        const text = events.map((e) => e.delta?.text ?? '').join('');
        assert.equal(text, whole.content[0].text);
        assert.equal(events.find((e) => e.type === 'message_delta').usage.output_tokens, 16);
        return events;
    });

    bothWays(world, `${model}: the library's own assembly of a stream`, async (way) => {
        const client = way.anthropic(model);
        const whole = await client.messages.create(body);
        const stream = client.messages.stream(body);
        const pieces = [];
        stream.on('text', (text) => pieces.push(text));
        const final = await stream.finalMessage();
        assert.equal(pieces.length, 16);
        assert.deepEqual(final.content, whole.content);
        assert.equal(final.stop_reason, whole.stop_reason);
        assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
        return [pieces, final];
    });

    bothWays(world, `${model}: a tool call, whole and streamed, and its result`, async (way) => {
        const client = way.anthropic(model);
        const ask = {
            model,
            max_tokens: 500,
            tools: [tool],
            messages: [{ role: 'user', content: 'use the tool' }],
        };
        const whole = await client.messages.create(ask);
        assert.equal(whole.stop_reason, 'tool_use');
        const use = whole.content[0];
        assert.deepEqual(use.input, { place: 'Zürich 🏔', days: 7 });

        const stream = client.messages.stream(ask);
        const pieces = [];
        stream.on('inputJson', (piece) => pieces.push(piece));
        const final = await stream.finalMessage();
        assert.deepEqual(JSON.parse(pieces.join('')), use.input);
        assert.ok(pieces.length > 3);
        assert.deepEqual(final.content[0].input, use.input);
        assert.equal(final.stop_reason, 'tool_use');

        const answer = await client.messages.create({
            ...ask,
            messages: [
                ...ask.messages,
                { role: 'assistant', content: [{ ...use, id: 'toolu_0' }] },
                {
                    role: 'user',
                    content: [{ type: 'tool_result', tool_use_id: 'toolu_0', content: 'sunny' }],
                },
            ],
        });
        assert.equal(answer.stop_reason, 'end_turn');
        return [whole, pieces, final, answer];
    });

    bothWays(world, `${model}: stop sequences and max_tokens`, async (way) => {
        const client = way.anthropic(model);
        const cut = await client.messages.create({ ...body, max_tokens: 3 });
        assert.equal(cut.stop_reason, 'max_tokens');
        const whole = await client.messages.create(body);
        const stop = whole.content[0].text.slice(8, 14);
        const stopped = await client.messages.create({ ...body, stop_sequences: ['nowhere', stop] });
        assert.equal(stopped.stop_reason, 'stop_sequence');
        assert.equal(stopped.stop_sequence, stop);
        return [cut, stopped];
    });

    bothWays(world, `${model}: beta calls keep their query string and headers`, async (way) => {
        const client = way.anthropic(model);
        const reply = await client.beta.messages.create(
            { ...body, betas: ['context-1m-2025-08-07'] },
            { query: { beta: true, 'x y': 'ä&=%' } },
        );
        const { requests } = await (await fetch(`${world.sims[model].url}/sim/requests`)).json();
        const last = requests.at(-1);
        const headers = Object.fromEntries(last.headers.map(([name, value]) => [name.toLowerCase(), value]));
        assert.equal(last.target, '/v1/messages?beta=true&x%20y=%C3%A4%26%3D%25');
        assert.equal(headers['anthropic-beta'], 'context-1m-2025-08-07');
        assert.match(headers['anthropic-version'], /^\d{4}-\d\d-\d\d$/);
        return [reply, headers['anthropic-version'], last.body];
    });
}
