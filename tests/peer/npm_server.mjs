// A modern MCP server of the npm SDK 2.x over stdio: node npm_server.mjs <folder with node_modules>
// With --spare it has a tool more, and one that disables it.
//
// `legacy: 'reject'` holds it to revision 2026-07-28, so that a test passes only when the bridge
// really drove it by that revision.
import { createRequire } from 'node:module';
import path from 'node:path';

const require = createRequire(path.join(process.argv[2], 'package.json'));
const {
    McpServer,
    ResourceTemplate,
    completable,
    inputRequired,
    inputResponse,
} = require('@modelcontextprotocol/server');
const { serveStdio } = require('@modelcontextprotocol/server/stdio');
const z = require('zod');

const PAGE_SIZE = 4;
const WORDS = ['alpha', 'beta', 'gamma'];

const text = (value) => ({ content: [{ type: 'text', text: value }] });
const fitting = (value) => WORDS.filter((word) => word.startsWith(value ?? ''));

// Resolves false after the time, or true at once when the request is cancelled.
async function pause(milliseconds, signal) {
    if (signal.aborted) return true;
    return new Promise((resolve) => {
        const stop = () => {
            clearTimeout(timer);
            resolve(true);
        };
        const timer = setTimeout(() => {
            signal.removeEventListener('abort', stop);
            resolve(false);
        }, milliseconds);
        signal.addEventListener('abort', stop, { once: true });
    });
}

function addTools(server) {
    let cancelledCalls = 0;

    server.registerTool(
        'add',
        { description: 'Add two integers.', inputSchema: z.object({ a: z.int(), b: z.int() }) },
        ({ a, b }) => text(String(a + b)),
    );
    server.registerTool(
        'echo',
        { title: 'Echo', inputSchema: z.object({ text: z.string() }) },
        ({ text: said }) => text(said),
    );
    server.registerTool(
        'slow',
        {
            description: 'Work in steps, with progress for each.',
            inputSchema: z.object({ steps: z.int().default(3), seconds: z.number().default(0.05) }),
        },
        async ({ steps, seconds }, ctx) => {
            const { signal, _meta } = ctx.mcpReq;
            for (let step = 1; step <= steps; step += 1) {
                if (_meta?.progressToken !== undefined) {
                    await ctx.mcpReq.notify({
                        method: 'notifications/progress',
                        params: {
                            progressToken: _meta.progressToken,
                            progress: step,
                            total: steps,
                            message: `step ${step} of ${steps}`,
                        },
                    });
                }
                // The npm client loses progress that comes with the answer.
                if (await pause(seconds * 1000, signal)) {
                    cancelledCalls += 1;
                    return text('cancelled');
                }
            }
            return text(`${steps} steps`);
        },
    );
    server.registerTool('cancel_count', {}, () => text(String(cancelledCalls)));
    server.registerTool(
        'weather',
        {
            description: 'A result with structured content and an output schema.',
            inputSchema: z.object({ city: z.string() }),
            outputSchema: z.object({
                city: z.string(),
                degrees: z.number(),
                wind: z.array(z.int()),
            }),
        },
        ({ city }) => {
            const structuredContent = { city, degrees: 21.5, wind: [3, 4] };
            return { ...text(JSON.stringify(structuredContent)), structuredContent };
        },
    );
    server.registerTool(
        'order',
        {
            description: 'Arrays, objects, a tuple and a union, as zod writes them.',
            inputSchema: z.object({
                items: z.array(
                    z.object({
                        sku: z.string().regex(/^[a-z]+$/),
                        count: z.int().positive().default(1),
                        colour: z.enum(['red', 'green']).nullish(),
                    }),
                ),
                tags: z.array(z.string()).optional(),
                prices: z.record(z.string(), z.number()).optional(),
                size: z.tuple([z.int(), z.int()]).default([1, 1]),
                anything: z.array(z.any()).optional(),
                when: z.union([z.literal('now'), z.array(z.string())]).optional(),
            }),
        },
        ({ items, tags = [], prices = {}, size }) => {
            const total = items.reduce((sum, item) => sum + item.count, 0);
            const priced = Object.keys(prices).length;
            return text(`${total} items, ${tags.length} tags, ${priced} prices, ${size[0]}x${size[1]}`);
        },
    );
    server.registerTool(
        'fail',
        { inputSchema: z.object({ why: z.string() }) },
        ({ why }) => {
            throw new Error(why);
        },
    );
    server.registerTool(
        'log',
        { inputSchema: z.object({ text: z.string() }) },
        async ({ text: said }, ctx) => {
            for (const level of ['debug', 'warning', 'error']) {
                await ctx.mcpReq.log(level, `${level}: ${said}`, 'peer');
            }
            return text('logged');
        },
    );
    server.registerTool(
        'touch',
        { inputSchema: z.object({ uri: z.string() }) },
        async ({ uri }) => {
            await server.server.sendResourceUpdated({ uri });
            server.sendToolListChanged();
            return text('touched');
        },
    );
}

function addToolsThatAsk(server) {
    // Asks in the first round, and gives the answer to `done` in the second.
    const ask = (name, inputSchema, requestOf, done) =>
        server.registerTool(name, { inputSchema: z.object(inputSchema) }, (args, ctx) => {
            const answer = inputResponse(ctx.mcpReq.inputResponses, 'ask');
            if (answer.kind === 'missing') {
                const requestState = `waiting for ${name}`;
                return inputRequired({ inputRequests: { ask: requestOf(args) }, requestState });
            }
            return text(done(answer, args, ctx.mcpReq.requestState()));
        });

    const name = z.object({
        name: z.string().max(40),
        age: z.int().min(0).max(150).default(30),
        colour: z.enum(['red', 'green']).default('red'),
        newsletter: z.boolean().default(false),
    });
    ask(
        'ask_name',
        {},
        () => inputRequired.elicit({ message: 'Who are you?', requestedSchema: name }),
        ({ action, content }) => {
            if (action !== 'accept') return action;
            const who = name.parse(content);
            return `${who.name}, ${who.age}, ${who.colour}`;
        },
    );
    ask(
        'ask_url',
        {},
        () =>
            inputRequired.elicitUrl({
                message: 'Open the page',
                url: 'https://example.com/step?n=1',
            }),
        ({ action }, _args, state) => `${state}: ${action}`,
    );
    ask(
        'think',
        { question: z.string() },
        ({ question }) =>
            inputRequired.createMessage({
                messages: [{ role: 'user', content: { type: 'text', text: question } }],
                maxTokens: 50,
            }),
        ({ result }, { question }) => `${question} ${result.content.text} (${result.model})`,
    );
    ask(
        'list_roots',
        {},
        () => inputRequired.listRoots(),
        ({ roots }) => roots.map((root) => root.uri).join(' '),
    );
}

// A tool, and one that takes it off the list.
function addSpareTools(server) {
    const spare = server.registerTool('spare', {}, () => text('spare'));
    server.registerTool('disable_spare', {}, () => {
        spare.disable(); // the SDK tells everyone who listens
        return text('disabled');
    });
}

function addTheRest(server) {
    server.registerResource('fixed', 'note://fixed', { mimeType: 'text/plain' }, (uri) => ({
        contents: [{ uri: uri.href, mimeType: 'text/plain', text: 'a fixed note' }],
    }));
    server.registerResource('bytes', 'note://bytes', {}, (uri) => ({
        contents: [
            {
                uri: uri.href,
                mimeType: 'application/octet-stream',
                blob: Buffer.from([0, 1, 2, 3, 4, 5, 6, 7]).toString('base64'),
            },
        ],
    }));
    server.registerResource(
        'named',
        new ResourceTemplate('note://named/{name}', {
            list: undefined,
            complete: { name: fitting },
        }),
        { mimeType: 'text/plain' },
        (uri, { name }) => ({
            contents: [{ uri: uri.href, mimeType: 'text/plain', text: `a note about ${name}` }],
        }),
    );
    server.registerPrompt(
        'review',
        {
            title: 'Review code',
            argsSchema: z.object({
                code: z.string(),
                language: completable(z.string().default('python'), fitting),
            }),
        },
        ({ code, language }) => ({
            messages: [
                {
                    role: 'user',
                    content: { type: 'text', text: `Review this ${language} code: ${code}` },
                },
            ],
        }),
    );
}

// The SDK lists all tools on one page; a client must follow cursors. It has no means for pages, so
// its own handler is wrapped.
function listInPages(server) {
    const listAll = server.server._requestHandlers.get('tools/list');
    server.server._requestHandlers.set('tools/list', async (request, ctx) => {
        const { cursor, ...params } = request.params ?? {};
        const { tools, ...rest } = await listAll({ ...request, params }, ctx);
        const start = Number(cursor ?? 0);
        const end = start + PAGE_SIZE;
        const more = end < tools.length ? { nextCursor: String(end) } : {};
        return { ...rest, tools: tools.slice(start, end), ...more };
    });
}

serveStdio(
    () => {
        const server = new McpServer(
            { name: 'npm-peer', title: 'npm peer', version: '1.2.3' },
            {
                capabilities: {
                    logging: {},
                    tools: { listChanged: true },
                    resources: { subscribe: true, listChanged: true },
                },
                instructions: 'Call add first.',
            },
        );
        addTools(server);
        addToolsThatAsk(server);
        if (process.argv.includes('--spare')) addSpareTools(server);
        addTheRest(server);
        listInPages(server);
        return server;
    },
    { legacy: 'reject', onerror: (error) => console.error(error.message) },
);
