import assert from 'node:assert/strict';
import { test } from 'node:test';

import { classOf, frameLabel } from '../../trace_analyzer/render/html/assets/describe.js';
import { storeOf } from './assets.mjs';

const CALL = 'torch/nn/modules/module.py(1779): _call_impl';
const store = storeOf([
  { family: 'modules', thread: 0, rows: [[[0, 100, 'nn.Module: RMSNorm_0', 'modules']]] },
  {
    family: 'python',
    thread: 0,
    rows: [
      [[1, 98, CALL, 'python'], [200, 50, 'train.py(3): main', 'python']],
      [[2, 96, 'norm.py(46): forward', 'python'], [210, 5, "<built-in method view of Tensor object at 0x7c>", 'python']],
      [[3, 90, 'norm.py(9): helper', 'python'], [210, 4, '<built-in method bmm of type object at 0x7c>', 'python']],
      [[4, 5, "<method 'item' of 'torch._C.TensorBase' objects>", 'python']],
    ],
  },
]);
const eventOf = (name) => [...store.name].findIndex((id) => store.name_values[id] === name);

test('the first frame of a call of a module, and what makes the call, are methods of its class', () => {
  assert.equal(classOf(store, eventOf('norm.py(46): forward')), 'RMSNorm');
  assert.equal(classOf(store, eventOf(CALL)), 'RMSNorm');
});

test('what that frame calls, a frame outside of modules and events of other tracks have no class', () => {
  for (const name of ['norm.py(9): helper', 'train.py(3): main', 'nn.Module: RMSNorm_0']) assert.equal(classOf(store, eventOf(name)), '');
});

test('labels carry the class', () => {
  const labelled = (name, label) => frameLabel(store, eventOf(name), label);
  assert.equal(labelled('norm.py(46): forward', 'forward · norm.py'), 'RMSNorm.forward · norm.py');
  assert.equal(labelled('norm.py(9): helper', 'helper · norm.py'), 'helper · norm.py');
  assert.equal(labelled("<method 'item' of 'torch._C.TensorBase' objects>", 'x'), 'TensorBase.item');
  assert.equal(labelled('<built-in method view of Tensor object at 0x7c>', 'x'), 'Tensor.view');
  assert.equal(labelled('<built-in method bmm of type object at 0x7c>', 'x'), 'bmm');
  assert.equal(labelled('nn.Module: RMSNorm_0', 'RMSNorm_0'), 'RMSNorm_0');
});
