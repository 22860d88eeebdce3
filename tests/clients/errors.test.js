// SPDX-License-Identifier: Apache-2.0
//
// Failures as the client libraries see them: their own classes, in each dialect.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import {
    CLIENT_KEY,
    FAST,
    bothWays,
    collect,
    failure,
    slow,
    startWorld,
    throughRolter,
} from './lib/world.js';

const world = await startWorld({
    sims: {
        fast: [...FAST, '--model', 'fast'],
        claude: FAST,
        one: FAST,
        two: FAST,
        down: FAST,
        late: slow(200),
    },
    kinds: { claude: 'anthropic' },
    routes: { pair: ['one', 'two'], halfway: ['down', 'one'] },
    keys: [
        { key: 'sk-narrow', name: 'narrow', models: ['one'] },
        { key: 'sk-disabled', name: 'disabled', disabled: true },
        { key: 'sk-expired', name: 'expired', expires_at: '2020-01-01T00:00:00Z' },
    ],
    server: 'max_body_bytes = 2097152',
    config: '[retry]\nbase_backoff_ms = 1\nmax_backoff_ms = 2\n[cooldown]\nbase_secs = 0',
});
await world.sims.down.stop();
world.sims.down.isDown = true;

const messages = [{ role: 'user', content: 'Hello?' }];
const chat = (way, sim, body = {}, options = {}) =>
    way.openai(sim, options).chat.completions.create({ model: sim, messages, ...body }, options);
const claude = (way, sim, body = {}, options = {}) =>
    way.anthropic(sim, options).messages.create({ model: sim, max_tokens: 20, messages, ...body }, options);

/** What a program can rely on in an error of the openai library. */
const openaiError = (e) => [e.constructor.name, e.status, e.code];
/** The same of the Anthropic library: its error body says the type. */
const anthropicError = (e) => [e.constructor.name, e.status, e.error?.type, e.error?.error?.type];

bothWays(world, '401 for a wrong key', async (way) => {
    const a = await failure(chat(way, 'fast', {}, { apiKey: 'sk-wrong' }));
    assert.ok(a instanceof OpenAI.AuthenticationError);
    assert.equal(a.code, 'invalid_api_key');
    const b = await failure(claude(way, 'fast', {}, { apiKey: 'sk-wrong' }));
    assert.ok(b instanceof Anthropic.AuthenticationError);
    assert.equal(b.error.error.type, 'authentication_error');
    const c = await failure(collect(way.openai('fast', { apiKey: 'sk-wrong' }).models.list()));
    assert.ok(c instanceof OpenAI.AuthenticationError);
    const d = await failure(chat(way, 'fast', { stream: true }, { apiKey: 'sk-wrong' }));
    assert.ok(d instanceof OpenAI.AuthenticationError);
    return [openaiError(a), anthropicError(b), openaiError(c), openaiError(d)];
});

throughRolter(world, '401 for disabled and expired keys and the key of an engine', async (way) => {
    const seen = [];
    for (const apiKey of [
        'sk-disabled',
        'sk-expired',
        'sk-engine-of-the-suite',
        CLIENT_KEY.slice(0, -1),
        `${CLIENT_KEY}x`,
    ])
        seen.push(await failure(chat(way, 'fast', {}, { apiKey })));
    assert.ok(seen.every((e) => e instanceof OpenAI.AuthenticationError));
    assert.equal(new Set(seen.map((e) => e.message)).size, 1, 'they cannot be told apart');
});

bothWays(world, '404 for an unknown model', async (way) => {
    const a = await failure(chat(way, 'fast', { model: 'nobody' }));
    assert.ok(a instanceof OpenAI.NotFoundError);
    assert.equal(a.code, 'model_not_found');
    const b = await failure(claude(way, 'fast', { model: 'nobody' }));
    assert.ok(b instanceof Anthropic.NotFoundError);
    assert.equal(b.error.error.type, 'not_found_error');
    return [openaiError(a), anthropicError(b)];
});

bothWays(world, "400 of the engine passes through in the engine's words", async (way) => {
    const seen = [];
    seen.push(await failure(chat(way, 'fast', { messages: 'not a list' })));
    seen.push(await failure(chat(way, 'fast', { n: 0 })));
    seen.push(await failure(way.openai('fast').responses.create({ model: 'fast', input: 7 })));
    seen.push(await failure(way.openai('fast').embeddings.create({ model: 'fast', input: [] })));
    seen.push(await failure(way.openai('fast').completions.create({ model: 'fast' })));
    assert.ok(seen.every((e) => e instanceof OpenAI.BadRequestError));
    const b = await failure(claude(way, 'fast', { messages: [{ content: 'x' }] }));
    assert.ok(b instanceof Anthropic.BadRequestError);
    return [seen.map((e) => [...openaiError(e), e.type, e.message]), [...anthropicError(b), b.message]];
});

bothWays(world, '400 for a body without a model, and for one that is not JSON', async (way) => {
    const a = await failure(chat(way, 'fast', { model: undefined }));
    assert.ok(a instanceof OpenAI.BadRequestError);
    const b = await failure(claude(way, 'fast', { model: undefined }));
    assert.ok(b instanceof Anthropic.BadRequestError);
    assert.equal(b.error.error.type, 'invalid_request_error');
    const replies = [];
    for (const text of [
        '',
        '{',
        '[]',
        '{"model":"fast","messages":[]}}',
        '{"model":7}',
        '{"model":"fast","messages":[{"role":"\xff',
    ]) {
        const reply = await way.post('fast', '/v1/chat/completions', text);
        replies.push([reply.status, (await reply.json()).error.type]);
    }
    assert.ok(
        replies.every(([status, type]) => status === 400 && type === 'invalid_request_error'),
        JSON.stringify(replies),
    );
    return [a.status, anthropicError(b), replies];
});

throughRolter(world, 'the parameter that is missing is named', async (way) => {
    const e = await failure(chat(way, 'fast', { model: undefined }));
    assert.deepEqual(
        [e.code, e.param, e.type],
        ['missing_required_parameter', 'model', 'invalid_request_error'],
    );
});

bothWays(world, '429 with Retry-After', async (way) => {
    await world.faults('fast', { fail_rate: 1, fail_status: 429, retry_after: 7 });
    try {
        const a = await failure(chat(way, 'fast'));
        assert.ok(a instanceof OpenAI.RateLimitError);
        assert.equal(a.headers.get('retry-after'), '7');
        const b = await failure(claude(way, 'fast'));
        assert.ok(b instanceof Anthropic.RateLimitError);
        assert.equal(b.headers.get('retry-after'), '7');
        assert.equal(b.error.error.type, 'rate_limit_error');
        return [openaiError(a), anthropicError(b), a.message, b.message];
    } finally {
        await world.faults('fast', { fail_rate: 0 });
    }
});

throughRolter(world, '429 of the last target, after all were asked', async (way) => {
    for (const sim of ['one', 'two'])
        await world.faults(sim, { fail_rate: 1, fail_status: 429, retry_after: 9 });
    try {
        const e = await failure(chat(way, 'pair'));
        assert.ok(e instanceof OpenAI.RateLimitError);
        assert.equal(e.headers.get('retry-after'), '9');
        assert.equal(e.error.message, 'injected failure');
        for (const sim of ['one', 'two']) assert.equal((await world.stats(sim)).failed, 1, sim);
    } finally {
        for (const sim of ['one', 'two']) await world.faults(sim, { fail_rate: 0, retry_after: 0 });
    }
});

throughRolter(world, 'a target that fails or is gone is not seen', async (way) => {
    await world.faults('one', { fail_rate: 1, fail_status: 500 });
    try {
        for (let i = 0; i < 6; i++) {
            const { data, response } = await way
                .openai('pair')
                .chat.completions.create({ model: 'pair', messages })
                .withResponse();
            assert.equal(response.headers.get('x-rolter-provider'), 'two');
            assert.equal(data.choices[0].finish_reason, 'stop');
        }
        assert.ok((await world.stats('one')).failed > 0, 'it was tried');
    } finally {
        await world.faults('one', { fail_rate: 0 });
    }
    for (let i = 0; i < 4; i++) await claude(way, 'halfway');
    for (let i = 0; i < 4; i++) {
        const chunks = await collect(await chat(way, 'halfway', { stream: true }));
        assert.equal(chunks.at(-1).choices[0].finish_reason, 'stop');
    }
});

throughRolter(world, '502 when every target is down', async (way) => {
    for (const stream of [false, true]) {
        const a = await failure(chat(way, 'down', { stream }));
        assert.ok(a instanceof OpenAI.InternalServerError);
        assert.equal(a.status, 502);
        assert.equal(a.code, 'upstream_unavailable');
        const b = await failure(claude(way, 'down', { stream }));
        assert.ok(b instanceof Anthropic.InternalServerError);
        assert.deepEqual(anthropicError(b).slice(1, 3), [502, 'error']);
        assert.ok(['api_error', 'overloaded_error'].includes(b.error.error.type), b.error.error.type);
    }
});

throughRolter(world, '403 for a model that the key may not use', async (way) => {
    const a = await failure(chat(way, 'fast', {}, { apiKey: 'sk-narrow' }));
    assert.ok(a instanceof OpenAI.PermissionDeniedError);
    assert.deepEqual([a.code, a.param, a.type], ['model_not_allowed', 'model', 'permission_error']);
    const b = await failure(claude(way, 'fast', {}, { apiKey: 'sk-narrow' }));
    assert.ok(b instanceof Anthropic.PermissionDeniedError);
    assert.equal(b.error.error.type, 'permission_error');
    await chat(way, 'one', {}, { apiKey: 'sk-narrow' });
});

throughRolter(world, '400 for a chat request to a provider that speaks Messages only', async (way) => {
    const e = await failure(chat(way, 'claude'));
    assert.ok(e instanceof OpenAI.BadRequestError);
    assert.equal(e.code, 'dialect_not_supported');
});

throughRolter(world, '413 for a body over the limit', async (way) => {
    const content = 'x'.repeat(3 << 20);
    const a = await failure(chat(way, 'fast', { messages: [{ role: 'user', content }] }));
    assert.deepEqual([a.status, a.code], [413, 'request_too_large']);
    const b = await failure(claude(way, 'fast', { messages: [{ role: 'user', content }] }));
    assert.deepEqual([b.status, b.error.error.type], [413, 'request_too_large']);
    await chat(way, 'fast');
});

throughRolter(world, '404 for an unknown path and 405 for a wrong method', async (way) => {
    const lost = await way.post('fast', '/v1/nothing', {});
    assert.deepEqual([lost.status, (await lost.json()).error.type], [404, 'not_found_error']);
    const get = await fetch(`${way.url('fast')}/v1/chat/completions`, {
        headers: { authorization: `Bearer ${way.key}` },
    });
    assert.deepEqual([get.status, get.headers.get('allow')], [405, 'POST']);
    await get.text();
    const post = await way.post('fast', '/v1/models', {});
    assert.deepEqual([post.status, post.headers.get('allow')], [405, 'GET, HEAD']);
    await post.text();
});

bothWays(world, 'an error in the middle of a stream', async (way) => {
    const headers = { 'x-sim-error': '5' };
    const seen = [];
    const a = await failure(
        (async () => {
            for await (const chunk of await chat(way, 'fast', { stream: true }, { headers }))
                seen.push(chunk);
        })(),
    );
    assert.ok(a instanceof OpenAI.APIError);
    const b = await failure(
        way
            .anthropic('fast')
            .messages.stream({ model: 'fast', max_tokens: 20, messages }, { headers })
            .finalMessage(),
    );
    assert.ok(b instanceof Anthropic.APIError);
    assert.equal(seen.length, 5);
    return [seen, a.constructor.name, a.message, b.constructor.name, b.message];
});

bothWays(world, 'a stream that breaks off does not look complete', async (way) => {
    const headers = { 'x-sim-cut': '6' };
    const seen = [];
    await failure(
        (async () => {
            for await (const chunk of await chat(way, 'late', { stream: true }, { headers }))
                seen.push(chunk);
        })(),
    );
    assert.equal(seen.length, 6);
    await failure(
        way
            .anthropic('late')
            .messages.stream({ model: 'late', max_tokens: 20, messages }, { headers })
            .finalMessage(),
    );
    await failure(chat(way, 'late', {}, { headers }));
    if (!way.isDirect) await world.idle('late');
    return seen;
});

bothWays(world, "the library's own time-out ends the call upstream as well", async (way) => {
    const headers = { 'x-sim-stall': '1' };
    const a = await failure(chat(way, 'fast', {}, { headers, timeout: 200 }));
    assert.ok(a instanceof OpenAI.APIConnectionTimeoutError);
    const b = await failure(claude(way, 'fast', {}, { headers, timeout: 200 }));
    assert.ok(b instanceof Anthropic.APIConnectionTimeoutError);
    if (!way.isDirect) await world.idle('fast');
    const stats = await world.stats('fast');
    assert.equal(stats.stalled, 2);
});

throughRolter(world, 'request ids', async (way) => {
    const client = way.openai('fast');
    const named = await client.chat.completions
        .create({ model: 'fast', messages }, { headers: { 'x-request-id': 'suite/42:~' } })
        .withResponse();
    assert.equal(named.request_id, 'suite/42:~');
    assert.equal(named.data._request_id, 'suite/42:~');
    assert.equal(named.response.headers.get('x-upstream-request-id'), 'suite/42:~');

    const made = await client.chat.completions.create({ model: 'fast', messages }).withResponse();
    assert.match(made.request_id, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    for (const id of ['x'.repeat(129), 'two words'])
        assert.notEqual(
            (
                await client.chat.completions.create(
                    { model: 'fast', messages },
                    { headers: { 'x-request-id': id } },
                )
            )._request_id,
            id,
        );
    const wrong = await failure(
        chat(way, 'fast', {}, { apiKey: 'sk-wrong', defaultHeaders: { 'x-request-id': 'r1' } }),
    );
    assert.equal(wrong.requestID, 'r1');
    const lost = await failure(chat(way, 'fast', { model: 'nobody' }, { headers: { 'x-request-id': 'r2' } }));
    assert.equal(lost.requestID, 'r2');
    const dead = await failure(chat(way, 'down', {}, { headers: { 'x-request-id': 'r3' } }));
    assert.equal(dead.requestID, 'r3');
});

throughRolter(world, 'headers tell who answered', async (way) => {
    const expected = {
        'x-rolter-provider': 'fast',
        'x-rolter-target': 'fast',
        'x-rolter-model': 'fast',
        'x-sim-name': 'fast',
    };
    const replies = [
        await way.openai('fast').chat.completions.create({ model: 'fast', messages }).asResponse(),
        await way
            .openai('fast')
            .chat.completions.create({ model: 'fast', messages, stream: true })
            .asResponse(),
        await way
            .anthropic('fast')
            .messages.create({ model: 'fast', max_tokens: 5, messages, stream: true })
            .asResponse(),
        await way.openai('fast').embeddings.create({ model: 'fast', input: 'x' }).asResponse(),
    ];
    for (const reply of replies) {
        for (const [name, value] of Object.entries(expected))
            assert.equal(reply.headers.get(name), value, name);
        assert.equal(reply.headers.get('x-rolter-cache'), null);
        await reply.text();
    }
    const direct = await way
        .openai('fast')
        .chat.completions.create({ model: 'two/some-model', messages })
        .withResponse();
    assert.equal(direct.data.model, 'some-model');
    assert.equal(direct.response.headers.get('x-rolter-target'), 'some-model');
    assert.equal(direct.response.headers.get('x-rolter-model'), 'two/some-model');
});

test(
    'the gateway still counts nothing in flight',
    { skip: !world.through && 'against the engine alone' },
    async () => {
        for (const sim of Object.keys(world.sims)) await world.idle(sim);
    },
);
