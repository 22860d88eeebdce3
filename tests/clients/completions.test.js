// SPDX-License-Identifier: Apache-2.0
//
// OpenAI's legacy completions.
import assert from 'node:assert/strict';
import { FAST, bothWays, collect, startWorld } from './lib/world.js';

const world = await startWorld({ sims: { fast: FAST } });

bothWays(world, 'a JSON reply', async (way) => {
    const reply = await way
        .openai('fast')
        .completions.create({ model: 'fast', prompt: 'Once upon', max_tokens: 9 });
    assert.equal(reply.object, 'text_completion');
    assert.equal(reply.choices[0].finish_reason, 'length');
    assert.equal(reply.choices[0].text.length, 9 * 4);
    return reply;
});

bothWays(world, 'a stream says what the JSON reply says', async (way) => {
    const client = way.openai('fast');
    const body = { model: 'fast', prompt: 'Once upon a time' };
    const whole = await client.completions.create(body);
    const chunks = await collect(await client.completions.create({ ...body, stream: true }));
    assert.equal(chunks.map((c) => c.choices[0].text).join(''), whole.choices[0].text);
    assert.equal(chunks.at(-1).choices[0].finish_reason, 'stop');
    return [whole, chunks];
});

bothWays(world, 'several prompts and token ids', async (way) => {
    const client = way.openai('fast');
    const batch = await client.completions.create({ model: 'fast', prompt: ['one', 'two', 'three'], n: 2 });
    assert.deepEqual(
        batch.choices.map((c) => c.index),
        [0, 1, 2, 3, 4, 5],
    );
    const ids = await client.completions.create({ model: 'fast', prompt: [11, 22, 33] });
    assert.equal(ids.usage.prompt_tokens, 3);
    return [batch, ids];
});
