// SPDX-License-Identifier: Apache-2.0
//
// Starts rolter and rolter-sim, knows when they are ready, and never leaves one behind.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const START_MS = 20000;
const STOP_MS = 10000;
const LOG_MAX = 65536;

export const build = process.env.ROLTER_BUILD ?? fileURLToPath(new URL('../../../build', import.meta.url));

const running = new Set();
process.on('exit', () => {
    for (const child of running) child.kill('SIGKILL');
});
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));

/** Calls <check> until it returns something true, which is returned. Throws after <ms>. */
export async function until(what, check, ms = 10000) {
    const end = performance.now() + ms;
    for (;;) {
        const value = await check();
        if (value) return value;
        if (performance.now() > end) throw new Error(`not within ${ms} ms: ${what}`);
        await new Promise((resolve) => setTimeout(resolve, 5));
    }
}

export class Program {
    #child;
    #out = '';
    #log = '';
    #stopping = false;

    /** A program that has printed the line "listening on URL". */
    static async start(name, args, env = {}) {
        const p = new Program();
        p.name = name;
        p.#child = spawn(join(build, name), args, {
            env: { ...process.env, ...env },
            stdio: ['ignore', 'pipe', 'pipe'],
        });
        running.add(p.#child);
        p.#child.on('exit', (code, signal) => {
            running.delete(p.#child);
            if (!p.#stopping) p.#log += `${name} ended unasked: ${signal ?? code}\n`;
        });
        p.#child.on('error', (error) => (p.#log += error.message));
        p.#child.stdout.setEncoding('utf8').on('data', (text) => (p.#out = (p.#out + text).slice(-LOG_MAX)));
        p.#child.stderr.setEncoding('utf8').on('data', (text) => (p.#log = (p.#log + text).slice(-LOG_MAX)));
        try {
            await until(`${name} says where it listens`, () => p.#ready(), START_MS);
        } catch (error) {
            p.#child.kill('SIGKILL');
            throw new Error(`${error.message}\n${p.#log}`);
        }
        return p;
    }

    #ready() {
        if (this.#child.exitCode !== null || this.#child.pid === undefined)
            throw new Error(`${this.name} has ended`);
        this.url = /listening on (https?:\/\/\S+)/.exec(this.#out)?.[1];
        return this.url;
    }

    get pid() {
        return this.#child.pid;
    }

    /** What it wrote to stderr. */
    get log() {
        return this.#log;
    }

    /** Asks it to end, and insists after a while. Returns the exit status, or the signal's name. */
    async stop(signal = 'SIGTERM') {
        const child = this.#child;
        this.#stopping = true;
        if (child.exitCode === null && child.signalCode === null) {
            const ended = once(child, 'exit');
            child.kill(signal);
            const insist = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
            await ended;
            clearTimeout(insist);
        }
        return child.exitCode ?? child.signalCode;
    }
}
