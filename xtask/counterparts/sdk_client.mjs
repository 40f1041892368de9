// The official TypeScript client (npm @modelcontextprotocol/sdk) against the gate.
// Takes SLUICE_TEST_URL, SLUICE_TEST_KEY and SLUICE_TEST_FOLDER.
import assert from 'node:assert';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(process.env.SLUICE_TEST_MODULES + '/');
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { Client } = await load('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = await load('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { SLUICE_TEST_URL: url, SLUICE_TEST_KEY: key, SLUICE_TEST_FOLDER: folder } = process.env;

const client = new Client({ name: 'sdk-client', version: '1' });
const headers = { Authorization: `Bearer ${key}` };
await client.connect(new StreamableHTTPClientTransport(new URL(`${url}/mcp`), { requestInit: { headers } }));
const { tools } = await client.listTools();
assert(tools.some((tool) => tool.name === 'filesystem_read'));
const read = await client.callTool({ name: 'filesystem_read', arguments: { path: `${folder}/notes.txt` } });
assert.equal(read.structuredContent.result.content, 'milk\n');
const refused = await client.callTool({ name: 'filesystem_read', arguments: { path: '/etc/passwd' } });
assert.equal(refused.isError, true);
console.log('sdk', tools.length, 'tools');
await client.close();
