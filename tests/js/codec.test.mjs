import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deflateRawSync } from 'node:zlib';

import { decode, unpack } from '../../trace_analyzer/render/html/assets/common.js';

function packed(columns, planes) {
  const head = Buffer.from(JSON.stringify({ columns }));
  const length = Buffer.alloc(4);
  length.writeUInt32LE(head.length);
  return Buffer.concat([length, head, Buffer.from(planes)]);
}

test('planes join to integers of any width', () => {
  const { columns } = unpack(packed({
    none: { encoding: 'plain', length: 2, width: 0, values: [] },
    one: { encoding: 'plain', length: 2, width: 1, values: [] },
    five: { encoding: 'plain', length: 2, width: 5, values: [] },
  }, [7, 255, /* five: */ 1, 0, 0, 0, 0, 0, 0, 0, 0, 2]));
  assert.deepEqual([...columns.none], [0, 0]);
  assert.deepEqual([...columns.one], [7, 255]);
  assert.deepEqual([...columns.five], [1, 2 * 2 ** 32]);
});

test('delta columns add up, in both directions', () => {
  const { columns } = unpack(packed({ link: { encoding: 'delta', length: 4, width: 1, values: [] } }, [1, 12, 0, 3]));
  assert.deepEqual([...columns.link], [-1, 5, 5, 3]);
});

test('text columns keep their table, whatever it says', () => {
  const values = ['', '</script>', 'naïve ✓'];
  const { columns } = unpack(packed({ name: { encoding: 'text', length: 2, width: 1, values } }, [1, 2]));
  assert.deepEqual([...columns.name].map((code) => columns.name_values[code]), values.slice(1));
});

test('a payload is inflated from base64', async () => {
  const bytes = packed({ n: { encoding: 'plain', length: 3, width: 1, values: [] } }, [1, 2, 3]);
  const { columns } = await decode(` ${deflateRawSync(bytes).toString('base64')}\n`);
  assert.deepEqual([...columns.n], [1, 2, 3]);
});
