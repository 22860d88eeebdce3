// SPDX-License-Identifier: Apache-2.0
//
// OpenAI responses.
import assert from 'node:assert/strict';
import { FAST, bothWays, collect, startWorld } from './lib/world.js';

const world = await startWorld({ sims: { fast: FAST } });

const tool = {
    type: 'function',
    name: 'lookup',
    strict: false,
    parameters: {
        type: 'object',
        properties: { word: { type: 'string', const: 'Grüße, 世界' }, n: { type: 'integer' } },
    },
};

bothWays(world, 'a JSON reply', async (way) => {
    const reply = await way.openai('fast').responses.create({
        model: 'fast',
        instructions: 'Be brief.',
        input: 'Hello?',
        store: false,
    });
    assert.equal(reply.object, 'response');
    assert.equal(reply.status, 'completed');
    assert.equal(reply.output_text.length, 16 * 4);
    assert.equal(reply.usage.output_tokens, 16);
    return reply;
});

bothWays(world, 'the events of a stream', async (way) => {
    const client = way.openai('fast');
    const body = {
        model: 'fast',
        input: [{ role: 'user', content: [{ type: 'input_text', text: 'Hello?' }] }],
    };
    const whole = await client.responses.create(body);
    const events = await collect(await client.responses.create({ ...body, stream: true }));
    const types = events.map((e) => e.type);
    assert.deepEqual(types.slice(0, 4), [
        'response.created',
        'response.in_progress',
        'response.output_item.added',
        'response.content_part.added',
    ]);
    assert.equal(types.filter((t) => t === 'response.output_text.delta').length, 16);
    assert.deepEqual(types.slice(20), [
        'response.output_text.done',
        'response.content_part.done',
        'response.output_item.done',
        'response.completed',
    ]);
    assert.deepEqual(
        events.map((e) => e.sequence_number),
        events.map((_, i) => i),
    );
    const text = events.map((e) => (e.type === 'response.output_text.delta' ? e.delta : '')).join('');
    assert.equal(text, whole.output_text);
    return events;
});

bothWays(world, "the library's own assembly of a stream", async (way) => {
    const body = { model: 'fast', input: 'Assemble this' };
    const client = way.openai('fast');
    const whole = await client.responses.create(body);
    const final = await client.responses.stream(body).finalResponse();
    assert.equal(final.status, 'completed');
    assert.equal(final.output_text, whole.output_text);
    return final;
});

bothWays(world, 'a function call, whole and streamed, and its result', async (way) => {
    const client = way.openai('fast');
    const body = { model: 'fast', input: 'use the tool', tools: [tool] };
    const whole = await client.responses.create(body);
    const call = whole.output[0];
    assert.equal(call.type, 'function_call');
    assert.deepEqual(JSON.parse(call.arguments), { word: 'Grüße, 世界', n: 7 });

    const events = await collect(await client.responses.create({ ...body, stream: true }));
    const deltas = events.filter((e) => e.type === 'response.function_call_arguments.delta');
    assert.ok(deltas.length > 3);
    assert.equal(deltas.map((e) => e.delta).join(''), call.arguments);
    const done = events.find((e) => e.type === 'response.function_call_arguments.done');
    assert.equal(done.arguments, call.arguments);

    const answer = await client.responses.create({
        model: 'fast',
        tools: [tool],
        input: [
            { role: 'user', content: 'use the tool' },
            { ...call, call_id: 'call_0' },
            { type: 'function_call_output', call_id: 'call_0', output: 'found' },
        ],
    });
    assert.equal(answer.output[0].type, 'message');
    return [whole, events, answer.usage];
});

bothWays(world, 'a reply that is cut by length is incomplete', async (way) => {
    const client = way.openai('fast');
    const body = { model: 'fast', input: 'Too long', max_output_tokens: 4 };
    const whole = await client.responses.create(body);
    assert.equal(whole.status, 'incomplete');
    assert.equal(whole.incomplete_details.reason, 'max_output_tokens');
    const events = await collect(await client.responses.create({ ...body, stream: true }));
    assert.equal(events.at(-1).type, 'response.incomplete');
    return [whole, events];
});
