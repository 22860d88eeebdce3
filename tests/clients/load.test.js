// SPDX-License-Identifier: Apache-2.0
//
// Many requests, large ones, strange characters, kept connections.
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { FAST, bothWays, collect, startWorld, throughRolter } from './lib/world.js';

const world = await startWorld({
    sims: { fast: FAST, other: FAST, third: FAST },
    routes: { all: ['fast', 'other', 'third'], 'модель 模型 é': ['fast'] },
});

/** Connections that fetch opens while <body> runs. */
async function connectionsDuring(url, body) {
    const port = new URL(url).port;
    let opened = 0;
    const count = ({ connectParams }) => (opened += connectParams.port === port ? 1 : 0);
    subscribe('undici:client:connected', count);
    try {
        await body();
    } finally {
        unsubscribe('undici:client:connected', count);
    }
    return opened;
}

bothWays(world, 'calls one after the other share a connection', async (way) => {
    const openai = way.openai('fast');
    const anthropic = way.anthropic('fast');
    const opened = await connectionsDuring(way.url('fast'), async () => {
        for (let i = 0; i < 15; i++) {
            const messages = [{ role: 'user', content: `${i}` }];
            await openai.chat.completions.create({ model: 'fast', messages });
            await collect(await openai.chat.completions.create({ model: 'fast', messages, stream: true }));
            await anthropic.messages.create({ model: 'fast', max_tokens: 9, messages });
            await openai.models.list();
        }
    });
    /* fetch opens a second one when it is asked again before it has noticed that the first is free. */
    assert.ok(opened <= 2, `${opened} connections`);
});

throughRolter(world, 'so do the calls upstream', async (way) => {
    const series = 'rolter_upstream_connections_total';
    const client = way.openai('fast');
    const ask = () => client.embeddings.create({ model: 'fast', input: 'x' });
    const before = (await world.metrics()).get(series);
    assert.notEqual(before, undefined);
    for (let i = 0; i < 50; i++) await ask();
    const opened = (await world.metrics()).get(series) - before;
    assert.ok(opened <= 2, `${opened} connections: one a worker at most`);
});

bothWays(world, "Node's own agent keeps its connection through errors and streams", async (way) => {
    const http = way.http('fast');
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    const sockets = new Set();
    const call = (body) =>
        new Promise((resolve, reject) => {
            const request = http.request(`${way.url('fast')}/v1/chat/completions`, {
                agent,
                method: 'POST',
                headers: { authorization: `Bearer ${way.key}`, 'content-type': 'application/json' },
            });
            request.on('socket', (socket) => sockets.add(socket));
            request.on('error', reject);
            request.on('response', (response) =>
                response.resume().on('end', () => resolve(response.statusCode)),
            );
            request.end(body);
        });
    const statuses = [];
    for (let i = 0; i < 5; i++) {
        statuses.push(
            await call(JSON.stringify({ model: 'fast', messages: [{ role: 'user', content: 'x' }] })),
        );
        statuses.push(await call(JSON.stringify({ model: 'fast', messages: 7 })));
        statuses.push(await call('not JSON'));
        statuses.push(
            await call(
                JSON.stringify({ model: 'fast', messages: [{ role: 'user', content: 'x' }], stream: true }),
            ),
        );
    }
    agent.destroy();
    assert.equal(sockets.size, 1);
    assert.deepEqual(statuses.slice(0, 4), [200, 400, 400, 200]);
    return statuses;
});

const MiB = 1 << 20;
for (const [name, content] of [
    ['plain', 'The quick brown fox jumps over the lazy dog. '.repeat(MiB / 45 + 1).slice(0, MiB)],
    ['of four-byte characters', '𝒳🌸'.repeat(MiB / 8)],
    ['that JSON must escape', '\\"\n\u0001'.repeat(MiB / 4)],
]) {
    bothWays(world, `a prompt of 1 MiB, ${name}`, async (way) => {
        const messages = [{ role: 'user', content }];
        const client = way.openai('fast');
        const chat = await client.chat.completions.create({ model: 'fast', messages });
        assert.ok(chat.usage.prompt_tokens >= MiB / 4);
        const chunks = await collect(
            await client.chat.completions.create({ model: 'fast', messages, stream: true }),
        );
        const text = chunks.map((c) => c.choices[0].delta.content ?? '').join('');
        assert.equal(text, chat.choices[0].message.content);
        const message = await way
            .anthropic('fast')
            .messages.create({ model: 'fast', max_tokens: 99, messages });
        assert.equal(message.content[0].text, text);
        const response = await client.responses.create({ model: 'fast', input: content });
        const embedding = await client.embeddings.create({ model: 'fast', input: content, dimensions: 4 });
        return [chat, message, response, embedding];
    });
}

bothWays(world, 'all of Unicode goes up and comes back', async (way) => {
    const word =
        'e\u0301 é ﷽ 👩‍👩‍👧‍👦 \u202eabc\u202c \u0000\u001b\u007f\u0085\u2028\u2029 \ufeff \uffff \u{10ffff} <script> \\u0041';
    const tools = [
        {
            type: 'function',
            function: {
                name: 'echo',
                parameters: { type: 'object', properties: { [word]: { const: word } } },
            },
        },
    ];
    const body = {
        model: 'fast',
        messages: [{ role: 'user', content: word }],
        tools,
        tool_choice: 'required',
    };
    const client = way.openai('fast');
    const whole = await client.chat.completions.create(body);
    const args = whole.choices[0].message.tool_calls[0].function.arguments;
    assert.deepEqual(JSON.parse(args), { [word]: word });
    const stream = client.chat.completions.stream(body);
    const final = await stream.finalChatCompletion();
    assert.equal(final.choices[0].message.tool_calls[0].function.arguments, args);
    const message = await way
        .anthropic('fast')
        .messages.stream({
            model: 'fast',
            max_tokens: 999,
            messages: body.messages,
            tools: [{ name: 'echo', input_schema: tools[0].function.parameters }],
            tool_choice: { type: 'any' },
        })
        .finalMessage();
    assert.deepEqual(message.content[0].input, { [word]: word });
    return [whole, final, message];
});

bothWays(world, 'a model with a name in other letters', async (way) => {
    const model = 'модель 模型 é';
    const reply = await way
        .openai('fast')
        .chat.completions.create({ model, messages: [{ role: 'user', content: 'x' }] });
    assert.equal(reply.model, model);
    return reply;
});

const N = 200;
bothWays(world, `${N} calls at a time, each with its own answer`, async (way) => {
    const openai = way.openai('fast');
    const anthropic = way.anthropic('fast');
    const model = 'all';
    const kinds = [
        async (content) =>
            (await openai.chat.completions.create({ model, messages: [{ role: 'user', content }] }))
                .choices[0].message.content,
        async (content) =>
            (
                await collect(
                    await openai.chat.completions.create({
                        model,
                        messages: [{ role: 'user', content }],
                        stream: true,
                    }),
                )
            )
                .map((c) => c.choices[0].delta.content ?? '')
                .join(''),
        async (content) =>
            (
                await anthropic.messages
                    .stream({ model, max_tokens: 50, messages: [{ role: 'user', content }] })
                    .finalMessage()
            ).content[0].text,
        async (content) => (await openai.responses.create({ model, input: content })).output_text,
        async (content) =>
            (await openai.embeddings.create({ model, input: content, dimensions: 64 })).data[0].embedding,
    ];
    const calls = Array.from({ length: N }, (_, i) =>
        kinds[i % kinds.length](`question ${Math.floor(i / kinds.length)}`),
    );
    const answers = await Promise.all(calls);
    for (let i = 0; i < N; i += kinds.length) {
        assert.equal(answers[i + 1], answers[i]);
        assert.equal(answers[i + 2], answers[i]);
        assert.equal(answers[i + 3], answers[i]);
    }
    assert.equal(new Set(answers.map(String)).size, (N / kinds.length) * 2);
    if (!way.isDirect) {
        let served = 0;
        for (const sim of ['fast', 'other', 'third']) {
            await world.idle(sim);
            served += (await world.stats(sim)).answered;
        }
        assert.equal(served, N);
    }
    return answers;
});
