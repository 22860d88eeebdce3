// SPDX-License-Identifier: Apache-2.0
//
// OpenAI chat completions.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { FAST, bothWays, collect, startWorld, throughRolter } from './lib/world.js';

const world = await startWorld({ sims: { fast: FAST } });

const ask = (content) => [
    { role: 'system', content: 'You are brief.' },
    { role: 'user', content },
];

const weather = {
    type: 'function',
    function: {
        name: 'get_weather',
        description: 'Weather of a place',
        parameters: {
            type: 'object',
            properties: {
                place: { type: 'string', enum: ['Ōsaka 大阪 🌸 “x” \\ \n end'] },
                days: { type: 'integer' },
                exact: { type: 'boolean' },
                near: { type: 'object', properties: { lat: { type: 'number' } } },
            },
            required: ['place'],
        },
    },
};
const weatherArguments = { place: 'Ōsaka 大阪 🌸 “x” \\ \n end', days: 7, exact: true, near: { lat: 7 } };

/** What the chunks of choice <index> say together. */
function joinContent(chunks, index = 0) {
    const parts = chunks.flatMap((c) => c.choices).filter((c) => c.index === index);
    return parts.map((c) => c.delta.content ?? '').join('');
}

bothWays(world, 'a JSON reply', async (way) => {
    const reply = await way
        .openai('fast')
        .chat.completions.create({ model: 'fast', messages: ask('Hello?') });
    assert.equal(reply.object, 'chat.completion');
    assert.equal(reply.model, 'fast');
    assert.equal(reply.choices.length, 1);
    assert.equal(reply.choices[0].finish_reason, 'stop');
    assert.equal(reply.choices[0].message.role, 'assistant');
    assert.equal(reply.choices[0].message.content.length, 16 * 4);
    assert.equal(reply.usage.completion_tokens, 16);
    assert.equal(reply.usage.total_tokens, reply.usage.prompt_tokens + 16);
    return reply;
});

bothWays(world, 'a stream says what the JSON reply says', async (way) => {
    const client = way.openai('fast');
    const body = { model: 'fast', messages: ask('Hello?'), max_tokens: 40 };
    const whole = await client.chat.completions.create(body);
    const chunks = await collect(await client.chat.completions.create({ ...body, stream: true }));
    assert.equal(chunks[0].choices[0].delta.role, 'assistant');
    assert.equal(joinContent(chunks), whole.choices[0].message.content);
    assert.equal(new Set(chunks.map((c) => c.id)).size, 1);
    assert.deepEqual(chunks.flatMap((c) => c.choices.map((choice) => choice.finish_reason)).filter(Boolean), [
        'stop',
    ]);
    assert.ok(chunks.every((c) => c.object === 'chat.completion.chunk' && !('usage' in c)));
    return chunks;
});

bothWays(world, 'the usage chunk comes when it is asked for', async (way) => {
    const stream = await way.openai('fast').chat.completions.create({
        model: 'fast',
        messages: ask('Count!'),
        stream: true,
        stream_options: { include_usage: true },
    });
    const chunks = await collect(stream);
    const last = chunks.pop();
    assert.deepEqual(last.choices, []);
    assert.equal(last.usage.completion_tokens, 16);
    assert.ok(chunks.every((c) => c.usage === null && c.choices.length === 1));
    return [chunks, last];
});

bothWays(world, 'max_tokens cuts by length, stop by sequence', async (way) => {
    const client = way.openai('fast');
    const body = { model: 'fast', messages: ask('Go on') };
    const cut = await client.chat.completions.create({ ...body, max_completion_tokens: 5 });
    assert.equal(cut.choices[0].finish_reason, 'length');
    assert.equal(cut.usage.completion_tokens, 5);
    const whole = (await client.chat.completions.create(body)).choices[0].message.content;
    const stop = whole.slice(12, 18);
    const stopped = await client.chat.completions.create({ ...body, stop: [stop] });
    assert.equal(stopped.choices[0].finish_reason, 'stop');
    assert.equal(stopped.choices[0].message.content, whole.slice(0, whole.indexOf(stop)));
    return [cut, whole, stopped];
});

bothWays(world, 'several choices, whole and interleaved', async (way) => {
    const client = way.openai('fast');
    const body = { model: 'fast', messages: ask('Three ideas'), n: 3 };
    const whole = await client.chat.completions.create(body);
    assert.deepEqual(
        whole.choices.map((c) => c.index),
        [0, 1, 2],
    );
    const texts = whole.choices.map((c) => c.message.content);
    assert.equal(new Set(texts).size, 3);
    const chunks = await collect(await client.chat.completions.create({ ...body, stream: true }));
    assert.deepEqual(
        [0, 1, 2].map((i) => joinContent(chunks, i)),
        texts,
    );
    assert.equal(whole.usage.completion_tokens, 48);
    return [whole, chunks];
});

bothWays(world, 'a tool call, whole and assembled from a stream', async (way) => {
    const client = way.openai('fast');
    const body = { model: 'fast', messages: ask('Please use the tool'), tools: [weather] };
    const whole = await client.chat.completions.create(body);
    const call = whole.choices[0].message.tool_calls[0];
    assert.equal(whole.choices[0].finish_reason, 'tool_calls');
    assert.equal(whole.choices[0].message.content, null);
    assert.equal(call.function.name, 'get_weather');
    assert.deepEqual(JSON.parse(call.function.arguments), weatherArguments);

    const stream = client.chat.completions.stream(body);
    const pieces = [];
    stream.on('tool_calls.function.arguments.delta', (event) => pieces.push(event.arguments_delta));
    const final = await stream.finalChatCompletion();
    const streamed = final.choices[0].message.tool_calls[0];
    assert.ok(pieces.length > 5, `the arguments came in ${pieces.length} pieces`);
    assert.equal(pieces.join(''), call.function.arguments);
    assert.equal(streamed.function.arguments, call.function.arguments);
    assert.equal(streamed.function.name, 'get_weather');
    assert.equal(final.choices[0].finish_reason, 'tool_calls');
    return [whole, pieces, final];
});

bothWays(world, 'tool_choice: required, none, and one by name', async (way) => {
    const client = way.openai('fast');
    const other = {
        type: 'function',
        function: { name: 'other', parameters: { type: 'object', properties: {} } },
    };
    const body = { model: 'fast', messages: ask('Hi'), tools: [weather, other] };
    const replies = [];
    for (const tool_choice of ['required', 'none', { type: 'function', function: { name: 'other' } }])
        replies.push(await client.chat.completions.create({ ...body, tool_choice }));
    const names = replies.map((r) => r.choices[0].message.tool_calls?.[0].function.name);
    assert.deepEqual(names, ['get_weather', undefined, 'other']);
    return replies;
});

bothWays(world, 'a loop of tool calls run by the library', async (way) => {
    const asked = [];
    const runner = way.openai('fast').chat.completions.runTools({
        model: 'fast',
        messages: ask('use the tool, then answer'),
        tools: [
            {
                type: 'function',
                function: {
                    ...weather.function,
                    parse: JSON.parse,
                    function: (args) => {
                        asked.push(args);
                        return `sunny in ${args.place}`;
                    },
                },
            },
        ],
    });
    const text = await runner.finalContent();
    assert.deepEqual(asked, [weatherArguments]);
    assert.ok(text.length > 10);
    assert.equal(runner.messages.at(-2).role, 'tool');
    return runner.messages;
});

bothWays(world, 'content parts, pictures, odd members and big numbers pass through', async (way) => {
    await way.openai('fast').chat.completions.create({
        model: 'fast',
        messages: [
            {
                role: 'user',
                content: [
                    { type: 'text', text: 'What is this?' },
                    { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } },
                ],
            },
        ],
        temperature: 0.1,
        seed: 9007199254740991,
        logit_bias: { 50256: -100 },
        response_format: { type: 'json_schema', json_schema: { name: 'x', schema: {} } },
        metadata: { tenant: 'a' },
        no_such_member_yet: [1.5e300, null, { deep: [[[]]] }],
    });
    const requests = await (await fetch(`${world.sims.fast.url}/sim/requests`)).json();
    return JSON.parse(requests.requests.at(-1).body);
});

throughRolter(world, 'the body goes up byte for byte', async (way) => {
    const body =
        '{ "messages" : [ {"role":"user","content":"\\u0041\\/ \\ud83d\\ude00 é"} ],\n\t"model":"fast", ' +
        '"temperature":1.0, "top_p":1e0, "x":[-0, 12345678901234567890, 0.1000], "user":"" }\r\n';
    const reply = await way.post('fast', '/v1/chat/completions', body);
    assert.equal(reply.status, 200, await reply.text());
    const requests = await (await fetch(`${world.sims.fast.url}/sim/requests`)).json();
    assert.equal(requests.requests.at(-1).body, body);
});

test('the engine saw no client key', { skip: !world.through && 'against the engine alone' }, async () => {
    await world.fresh();
    await world.through.openai('fast').chat.completions.create({ model: 'fast', messages: ask('x') });
    const text = await (await fetch(`${world.sims.fast.url}/sim/requests`)).text();
    assert.ok(text.includes('sk-engine-of-the-suite'));
    assert.ok(!text.includes('sk-client-of-the-suite'));
});
