// SPDX-License-Identifier: Apache-2.0
//
// Embeddings, rerank, and the list of models.
import assert from 'node:assert/strict';
import { FAST, bothWays, collect, startWorld, throughRolter } from './lib/world.js';

const world = await startWorld({
    sims: { fast: FAST, other: FAST },
    keys: [{ key: 'sk-other-only', name: 'narrow', models: ['other'] }],
});

bothWays(world, 'base64, which the library asks for, and floats are the same numbers', async (way) => {
    const client = way.openai('fast');
    const body = { model: 'fast', input: 'The quick brown fox' };
    const decoded = await client.embeddings.create(body);
    const floats = await client.embeddings.create({ ...body, encoding_format: 'float' });
    const raw = await client.embeddings.create({ ...body, encoding_format: 'base64' });
    const numbers = decoded.data[0].embedding;
    assert.ok(Array.isArray(numbers) && numbers.length >= 16);
    assert.deepEqual(floats.data[0].embedding.map(Math.fround), Array.from(numbers, Math.fround));
    assert.equal(typeof raw.data[0].embedding, 'string');
    const bytes = Buffer.from(raw.data[0].embedding, 'base64');
    assert.equal(bytes.length, numbers.length * 4);
    assert.equal(bytes.readFloatLE(4), Math.fround(numbers[1]));
    return [decoded, floats, raw];
});

bothWays(world, 'batches of texts and of token ids, and dimensions', async (way) => {
    const client = way.openai('fast');
    const words = Array.from({ length: 300 }, (_, i) => `text ${i % 100}`);
    const batch = await client.embeddings.create({ model: 'fast', input: words });
    assert.deepEqual(
        batch.data.map((d) => d.index),
        words.map((_, i) => i),
    );
    assert.deepEqual(batch.data[0].embedding, batch.data[200].embedding);
    assert.notDeepEqual(batch.data[0].embedding, batch.data[1].embedding);
    const one = await client.embeddings.create({ model: 'fast', input: words[0] });
    assert.deepEqual(one.data[0].embedding, batch.data[0].embedding);
    const ids = await client.embeddings.create({
        model: 'fast',
        input: [
            [1, 2, 3],
            [4, 5],
        ],
        dimensions: 8,
    });
    assert.deepEqual(
        ids.data.map((d) => d.embedding.length),
        [8, 8],
    );
    assert.equal(ids.usage.prompt_tokens, 5);
    return [batch, ids];
});

bothWays(world, 'characters are not normalised on the way', async (way) => {
    const input = ['é', 'e\u0301', '👩‍👩‍👧', 'مرحبا', '\u0000\u001f\u007f', '\u2028\u2029', '𝒳'];
    const reply = await way.openai('fast').embeddings.create({ model: 'fast', input });
    const texts = new Set(reply.data.map((d) => d.embedding.join()));
    assert.equal(texts.size, input.length);
    return reply;
});

bothWays(world, 'rerank', async (way) => {
    const reply = await way.post('fast', '/v1/rerank', {
        model: 'fast',
        query: 'brown fox',
        documents: ['a lazy dog', 'the quick brown fox', { text: 'brown bread' }],
        top_n: 2,
    });
    assert.equal(reply.status, 200);
    assert.match(reply.headers.get('content-type'), /^application\/json/);
    const body = await reply.json();
    assert.deepEqual(
        body.results.map((r) => r.index),
        [1, 2],
    );
    return body;
});

bothWays(world, 'the list of models can be paged through by the library', async (way) => {
    const models = await collect(way.openai('fast').models.list());
    assert.ok(models.every((m) => m.object === 'model' && typeof m.created === 'number'));
    assert.ok(models.some((m) => m.id === 'fast'));
});

throughRolter(world, 'the list shows what the key may use', async (way) => {
    const all = await collect(way.openai('fast').models.list());
    assert.deepEqual(all.map((m) => m.id).sort(), ['fast', 'other']);
    const some = await collect(way.openai('fast', { apiKey: 'sk-other-only' }).models.list());
    assert.deepEqual(
        some.map((m) => m.id),
        ['other'],
    );
});
