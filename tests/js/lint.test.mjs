// What a linter would find that matters where all modules end up in one scope: names declared twice, imported and not
// used, used and not imported. `node --check` is the parser; no package has to be fetched.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const FOLDER = fileURLToPath(new URL('../../trace_analyzer/render/html/assets/', import.meta.url));
const sources = Object.fromEntries(readdirSync(FOLDER).filter((name) => name.endsWith('.js')).map((name) => [name, readFileSync(FOLDER + name, 'utf8')]));

const all = (source, pattern) => [...source.matchAll(pattern)].map((match) => match[1]);
const declared = (source) => all(source, /^(?:export )?(?:async )?(?:function|const|let|class) (\w+)/gm);
const exported = (source) => all(source, /^export (?:async )?(?:function|const|let|class) (\w+)/gm);
const imports = (source) => [...source.matchAll(/^import \{([^}]*)\} from '\.\/([^']+)';$/gm)]
  .flatMap(([, names, from]) => names.split(',').map((name) => ({ name: name.trim(), from })));
const code = (source) => source.replace(/^import .*$/gm, '').replace(/^\s*\/\/.*$/gm, '');

// The modules that end up in one scope with this one.
function reachable(file, visited = new Set()) {
  if (visited.has(file)) return visited;
  visited.add(file);
  for (const { from } of imports(sources[file])) reachable(from, visited);
  return visited;
}

test('every script is valid', () => {
  for (const name of Object.keys(sources)) execFileSync('node', ['--check', FOLDER + name]);
});

test('no name is declared at the top of two modules', () => {
  const owners = new Map();
  for (const [file, source] of Object.entries(sources)) {
    if (!reachable('main.js').has(file)) continue; // a script of its own
    for (const name of declared(source)) assert.equal(owners.get(name), undefined, `${name}: ${owners.get(name)} and ${file}`), owners.set(name, file);
  }
});

test('what is imported exists and is used, what is used is imported', () => {
  const everything = new Map(Object.entries(sources).flatMap(([file, source]) => exported(source).map((name) => [name, file])));
  for (const [file, source] of Object.entries(sources)) {
    const names = imports(source);
    for (const { name, from } of names) {
      assert.equal(everything.get(name), from, `${file} imports ${name}`);
      assert.match(code(source), new RegExp(`\\b${name}\\b`), `${file} does not use ${name}`);
    }
    const own = new Set([...declared(source), ...names.map(({ name }) => name)]);
    for (const name of everything.keys()) {
      if (!own.has(name)) assert.doesNotMatch(code(source), new RegExp(`(?<![\\w.'])${name}\\((?!.*\\) \\{$)`, 'm'), `${file} uses ${name}`);
    }
  }
});

test('what the timeline exports is used elsewhere, here or in a test', () => {
  const tests = readdirSync(new URL('.', import.meta.url)).map((name) => readFileSync(new URL(name, import.meta.url), 'utf8')).join();
  for (const [file, source] of Object.entries(sources)) {
    if (!reachable('main.js').has(file)) continue;
    const rest = Object.entries(sources).filter(([name]) => name !== file).map(([, text]) => text).join() + tests;
    for (const name of exported(source)) assert.match(rest, new RegExp(`\\b${name}\\b`), `${file}: ${name}`);
  }
});

test('nothing turns text into markup or code', () => {
  for (const [file, source] of Object.entries(sources)) assert.doesNotMatch(source, /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function/, file);
});
