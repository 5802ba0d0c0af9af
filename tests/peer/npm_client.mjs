// A legacy client of the npm SDK 1.x: node npm_client.mjs <folder with node_modules> -- command...
//
// It starts the command as a stdio server, does everything that a client of revision 2025-11-25
// does, and prints one JSON report. A section that fails is in the report with its error, and the
// others run all the same. `python_client.py` writes the same report.
import { createRequire } from 'node:module';
import path from 'node:path';

const require = createRequire(path.join(process.argv[2], 'package.json'));
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
const types = require('@modelcontextprotocol/sdk/types.js');

const SECTION_MILLISECONDS = 20_000;
const FIXED = 'note://fixed';

const report = { failures: {}, logs: [], changes: [], questions: [] };
const client = new Client(
    { name: 'npm-client', version: '0.1' },
    {
        capabilities: {
            roots: { listChanged: true },
            sampling: {},
            elicitation: { form: {}, url: {} },
        },
    },
);
const call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, options);
let action = 'accept'; // of the person who is asked
const refusal = () => Object.assign(new Error('refused'), { code: -32000 });
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// --- What the server may send --------------------------------------------------------------------

client.setRequestHandler(types.ElicitRequestSchema, ({ params }) => {
    report.questions.push({ method: 'elicitation/create', params });
    if (params.mode === 'url' || action !== 'accept') return { action };
    const content = { name: 'Ada', age: 36, colour: 'green', newsletter: false };
    return { action: 'accept', content };
});
client.setRequestHandler(types.CreateMessageRequestSchema, ({ params }) => {
    report.questions.push({ method: 'sampling/createMessage', params });
    if (action === 'decline') throw refusal();
    if (action === 'cancel') {
        // As Copilot refuses.
        const content = { type: 'text', text: '' };
        return { role: 'user', content, model: '', stopReason: 'cancelled' };
    }
    return { role: 'assistant', content: { type: 'text', text: 'because' }, model: 'a-model' };
});
client.setRequestHandler(types.ListRootsRequestSchema, () => {
    report.questions.push({ method: 'roots/list' });
    if (action === 'decline') throw refusal();
    if (action === 'cancel') return { roots: [] };
    return { roots: [{ uri: 'file:///a', name: 'a' }] };
});
client.setNotificationHandler(types.LoggingMessageNotificationSchema, ({ params }) => {
    report.logs.push(params);
});
const changed = new Promise((resolve) => {
    client.fallbackNotificationHandler = async (notification) => {
        const { method } = notification;
        if (method.includes('changed') || method.includes('updated')) {
            report.changes.push(notification);
        }
        if (method === 'notifications/resources/updated') resolve();
    };
});

// --- What a client does --------------------------------------------------------------------------

const sections = {
    async lists_tools() {
        const pages = [];
        const tools = {};
        let cursor;
        do {
            const page = await client.listTools(cursor === undefined ? {} : { cursor });
            pages.push(page.tools.map((tool) => tool.name));
            for (const tool of page.tools) tools[tool.name] = tool;
            cursor = page.nextCursor;
        } while (cursor !== undefined);
        Object.assign(report, { tool_pages: pages, tools });
    },

    async calls_tools() {
        const calls = (report.calls = {});
        const progress = (report.progress = []);
        calls.add = await call('add', { a: 2, b: 3 });
        calls.echo = await call('echo', { text: '\u2028 \u{1f600} \x7f é' });
        calls.weather = await call('weather', { city: 'Rome' });
        calls.order = await call('order', {
            items: [{ sku: 'nut', count: 2 }, { sku: 'bolt' }],
            tags: ['x'],
            prices: { nut: 0.5 },
            size: [2, 3],
        });
        calls.fail = await call('fail', { why: 'no reason' });
        calls.slow = await call(
            'slow',
            { steps: 3 },
            { onprogress: (step) => progress.push([step.progress, step.total, step.message]) },
        );
    },

    async calls_in_parallel() {
        const indexes = Array.from({ length: 20 }, (_, index) => String(index));
        const results = await Promise.all(indexes.map((text) => call('echo', { text })));
        report.parallel = Object.fromEntries(
            results.map((result, index) => [indexes[index], result.content[0].text]),
        );
    },

    async reads_resources() {
        report.resources = (await client.listResources()).resources.map(({ uri }) => uri);
        const { resourceTemplates } = await client.listResourceTemplates();
        report.templates = resourceTemplates.map(({ uriTemplate }) => uriTemplate);
        const reads = (report.reads = {});
        for (const uri of [FIXED, 'note://bytes', 'note://named/cats', 'note://none']) {
            try {
                reads[uri] = (await client.readResource({ uri })).contents;
            } catch ({ code, message, data }) {
                reads[uri] = { error: { code, message, data } };
            }
        }
    },

    async gets_prompts() {
        report.prompts = (await client.listPrompts()).prompts;
        const args = { code: 'x = 1', language: 'beta' };
        report.prompt = (await client.getPrompt({ name: 'review', arguments: args })).messages;
    },

    async completes() {
        const prompt = await client.complete({
            ref: { type: 'ref/prompt', name: 'review' },
            argument: { name: 'language', value: 'al' },
        });
        const template = await client.complete({
            ref: { type: 'ref/resource', uri: 'note://named/{name}' },
            argument: { name: 'name', value: '' },
        });
        report.completions = { prompt: prompt.completion, template: template.completion };
    },

    async cancels() {
        const controller = new AbortController();
        let answered = false;
        const waiting = call(
            'slow',
            { steps: 200, seconds: 0.1 },
            { signal: controller.signal, onprogress: () => controller.abort('enough') },
        ).then(
            () => (answered = true),
            () => undefined,
        );
        await waiting;
        if (answered) throw new Error('the cancelled call was answered');
        // The server may get to know of it a moment after the next call.
        for (let attempt = 0; attempt < 50; attempt += 1) {
            report.cancelled_calls = (await call('cancel_count', {})).content[0].text;
            if (report.cancelled_calls !== '0') break;
            await pause(50);
        }
    },

    async hears_logs() {
        await client.setLoggingLevel('warning');
        await call('log', { text: 'hello' });
    },

    async hears_changes() {
        await client.subscribeResource({ uri: FIXED });
        await call('touch', { uri: FIXED });
        await changed;
        await client.unsubscribeResource({ uri: FIXED });
    },

    async answers_questions() {
        // Each tool that asks, with a person who accepts, declines, cancels.
        report.answers = {};
        for (action of ['accept', 'decline', 'cancel']) {
            const answers = (report.answers[action] = {});
            for (const tool of ['ask_name', 'ask_url', 'think', 'list_roots']) {
                try {
                    answers[tool] = await call(tool, tool === 'think' ? { question: 'why?' } : {});
                } catch ({ code, message, data }) {
                    answers[tool] = { error: { code, message, data } };
                }
            }
        }
    },

    async pings() {
        report.ping = await client.ping();
    },
};

async function inTime(work) {
    let timer;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error('no end in time')), SECTION_MILLISECONDS);
    });
    try {
        return await Promise.race([work, late]);
    } finally {
        clearTimeout(timer);
    }
}

const [command, ...args] = process.argv.slice(process.argv.indexOf('--') + 1);
client.onerror = (error) => {
    // Progress that was under way when this client cancelled is no fault of the bridge.
    if (!String(error).includes('progress notification for an unknown token')) {
        report.failures.stdout = String(error);
    }
};
try {
    const env = process.env;
    await inTime(client.connect(new StdioClientTransport({ command, args, env })));
    report.initialize = {
        capabilities: client.getServerCapabilities(),
        serverInfo: client.getServerVersion(),
        instructions: client.getInstructions(),
    };
    for (const [name, section] of Object.entries(sections)) {
        try {
            await inTime(section());
        } catch (error) {
            report.failures[name] = String(error);
        }
    }
    await client.close();
} catch (error) {
    report.failures.connection = String(error);
}
console.log(JSON.stringify(report));
process.exit(0);
