// The driver of a Node.js process: it evaluates JavaScript with kept names, as a notebook does, and answers each
// request with one message, in the form of the Python driver's.
//
// Code runs in this thread, in V8's REPL mode: names may be declared again, and await works at the top level. A second
// thread reads and writes the private channel. If this thread is busy when an interrupt comes, the second one ends its
// code through V8's inspector, be it a loop, a timer or a microtask.
//
// A message is a big-endian uint32 and that many bytes of JSON. An empty one acknowledges a shown object.
(() => {
  'use strict';
  const fs = require('fs');
  const inspector = require('inspector');
  const util = require('util');
  const { Console } = require('console');
  const Module = require('module');
  const { join } = require('path');
  const { Script } = require('vm');
  const timersPromises = require('timers/promises');
  const { Worker } = require('worker_threads');

  const IN = 3, OUT = 4;
  const TEXT_CHARS = 4096, DISPLAY_ITEMS = 32, DISPLAY_BYTES = 4 << 20, DISPLAY_TOTAL = 8 << 20, JSON_CHARS = 1 << 20;
  const MIME = /^[a-z]+\/[A-Za-z0-9.+_-]{1,80}$/; // the same as in the host
  const HEARD = 0, RECEIVED = 1, ANSWERING = 2; // counts of interrupts and of replies, and a flag, which both threads see
  const { stringify } = JSON, { isArray } = Array, { then } = Promise.prototype, { inspect } = util, { isPromise, isNativeError, isUint8Array } = util.types;
  const { add, load, notify, store, wait } = Atomics;
  const counts = new Int32Array(new SharedArrayBuffer(12));

  // The thread of the channel.
  const channel = ({ IN, OUT, HEARD, RECEIVED, ANSWERING }) => {
    const { workerData: counts, parentPort } = require('worker_threads');
    const { writeSync } = require('fs');
    const { Session } = require('inspector');
    const { Socket } = require('net');
    const TRIES = 5, TRY_MS = 20;
    const terminate = () => {
      const session = new Session();
      session.connectToMainThread();
      session.post('Runtime.terminateExecution');
      session.disconnect();
    };
    // The other thread receives an interrupt if it waits for events; otherwise it is busy. Termination may hit the
    // handler of the interrupt, so it is sent again. It doesn't end an answer, unless it was requested before the
    // answer began; then the answer is made again.
    const interrupt = id => {
      const before = Atomics.load(counts, HEARD);
      for (let i = 0; i < TRIES; i++) {
        parentPort.postMessage({ interrupt: id });
        if (Atomics.wait(counts, HEARD, before, TRY_MS) !== 'timed-out') return;
        if (!Atomics.load(counts, ANSWERING)) terminate();
      }
    };
    const take = body => {
      if (body.length === 0) {
        Atomics.add(counts, RECEIVED, 1);
        Atomics.notify(counts, RECEIVED);
        return;
      }
      const message = JSON.parse(body);
      if (message.interrupt) interrupt(message.interrupt);
      else parentPort.postMessage(message);
    };
    const idle = new Int32Array(new SharedArrayBuffer(4));
    const end = () => process.kill(process.pid, 'SIGKILL'); // the channel is gone
    const write = data => {
      for (let at = 0; at < data.length;) {
        try {
          at += writeSync(OUT, data, at);
        } catch (problem) {
          if (problem.code !== 'EAGAIN') throw problem;
          Atomics.wait(idle, 0, 0, 1);
        }
      }
    };
    parentPort.on('message', text => {
      const data = Buffer.from('0000' + text);
      data.writeUInt32BE(data.length - 4);
      try { write(data); } catch { end(); }
    });
    // A blocking read would delay the end of the process.
    let rest = Buffer.alloc(0);
    const input = new Socket({ fd: IN, readable: true, writable: false });
    input.on('data', data => {
      rest = Buffer.concat([rest, data]);
      while (rest.length >= 4) {
        const end = 4 + rest.readUInt32BE();
        if (rest.length < end) return;
        const body = rest.subarray(4, end);
        rest = rest.subarray(end);
        take(body);
      }
    });
    input.on('close', end);
    input.on('error', () => {});
  };

  let post;
  const send = message => post(stringify(message));

  // The inspector's calls in this thread's own session are synchronous.
  const session = new inspector.Session();
  const natural = () => { // a toJSON defined by the code would change them
    for (const kind of [Object, Array, String]) Reflect.deleteProperty(kind.prototype, 'toJSON');
  };
  const ask = (method, options) => {
    let answer;
    natural();
    session.post(method, options, (problem, result) => { answer = result; });
    return answer || {};
  };
  let taken;
  const take = value => { taken = value; };
  let taker;

  // valueOf returns the value of an inspector's remote object.
  const valueOf = remote => {
    const { objectId, unserializableValue, value } = remote;
    taken = undefined;
    ask('Runtime.callFunctionOn', {
      objectId: taker, functionDeclaration: 'function (value) { this(value); }',
      arguments: [objectId ? { objectId } : unserializableValue ? { unserializableValue } : { value }],
    });
    return taken;
  };

  const cut = (text, limit = TEXT_CHARS) => text.length > limit ? text.slice(0, limit - 3) + '...' : text;

  const textOf = value => {
    try {
      return cut(inspect(value, { depth: 4, maxArrayLength: 100, maxStringLength: TEXT_CHARS }));
    } catch (problem) {
      return '[a value that can\'t be shown]';
    }
  };

  let current = null, count = 0, last;

  // Errors.

  // Every stack ends with the code's own frames, as Node.js formats them.
  const { toString } = Error.prototype;
  Error.prepareStackTrace = (problem, frames) => {
    const files = frames.map(frame => frame.getFileName());
    const begin = files.findIndex((file, i) => file === 'node:inspector' && files[i + 1] === '[stdin]');
    const lines = frames.filter((_, i) => (begin < 0 || i < begin) && files[i] !== '[stdin]');
    let text = '<error>';
    try { text = Reflect.apply(toString, problem, []); } catch {}
    return [text, ...lines].join('\n    at ');
  };

  const INTERNAL = /^\s+at .*node:internal\//;
  const cleaned = text => text.split('\n').filter(line => !INTERNAL.test(line)).join('\n');

  const shortened = text => text.length <= TEXT_CHARS - 96 ? text
    : text.slice(0, TEXT_CHARS / 2 - 64) + '\n[...]\n' + text.slice(64 - TEXT_CHARS / 2);

  const explained = (problem, where) => {
    try {
      if (where && where.scriptId && isNativeError(problem) && problem.name === 'SyntaxError' && !/\bcell-\d+:/.test(problem.stack)) {
        const lines = current.code.split('\n'), at = Math.min(where.lineNumber, lines.length - 1);
        const column = Math.min(at < where.lineNumber ? lines[at].length : where.columnNumber, 200);
        return shortened(`${current.name}:${at + 1}\n${lines[at].slice(0, 200)}\n${' '.repeat(column)}^\nSyntaxError: ${problem.message}\n`);
      }
      const text = isNativeError(problem) ? inspect(problem, { depth: 2 }) : 'Uncaught ' + textOf(problem);
      return shortened(cleaned(text) + '\n');
    } catch {
      return 'an error that can\'t be shown\n';
    }
  };

  const raised = problem => {
    try {
      if (isNativeError(problem)) return { name: cut(String(problem.name)), value: cut(String(problem.message)) };
      return { name: 'Error', value: textOf(problem) };
    } catch {
      return { name: 'Error', value: '' };
    }
  };

  const report = problem => {
    const text = explained(problem);
    try { fs.writeSync(2, text.startsWith('Uncaught') ? text : 'Uncaught ' + text); } catch {}
  };

  // Displays.

  // bundle returns a value's own displays, from the method that Deno's notebooks call.
  const bundle = value => {
    try {
      const method = value !== null && typeof value === 'object' && value[Symbol.for('Jupyter.display')];
      const found = typeof method === 'function' ? method.call(value) : null;
      return found !== null && typeof found === 'object' && !isPromise(found) ? found : {};
    } catch {
      return {};
    }
  };

  // bounded returns a value as JSON. It throws if that is longer than limit.
  const bounded = (value, limit) => {
    let left = limit;
    const text = stringify(value, function (key, part) {
      left -= 1 + (isArray(this) ? 0 : key.length) + (typeof part === 'string' ? part.length : 0);
      if (left < 0) throw TOO_LONG;
      return part;
    });
    if (text !== undefined && text.length > limit) throw TOO_LONG;
    return text;
  };
  const TOO_LONG = new RangeError('too long');

  // dataOf throws if there is too much data, and returns undefined for other values.
  const dataOf = (mime, data) => {
    if (typeof data === 'string') return data;
    if (isUint8Array(data)) {
      if (data.length > DISPLAY_BYTES) throw TOO_LONG;
      return Buffer.from(data).toString('base64');
    }
    return mime.endsWith('json') ? bounded(data, DISPLAY_BYTES) : undefined;
  };

  const jsonOf = value => {
    try {
      const proto = value !== null && typeof value === 'object' && Object.getPrototypeOf(value);
      return isArray(value) || proto === Object.prototype ? bounded(value, JSON_CHARS) : undefined;
    } catch {
      return undefined;
    }
  };

  // sizeOf returns the number of bytes of a text in a message.
  const sizeOf = text => text.length > DISPLAY_BYTES ? Infinity : Buffer.byteLength(stringify(text)) - 2;

  const show = (value, main, entries) => {
    const e = current;
    if (!e) return;
    if (e.results.length >= DISPLAY_ITEMS) {
      e.dropped++;
      return;
    }
    const plain = entries['text/plain'];
    const result = { main, text: typeof plain === 'string' ? cut(plain) : textOf(value), display: [] }, items = [];
    for (const [mime, data] of Object.entries(entries)) {
      if (mime === 'text/plain') continue;
      let text, size = Infinity;
      try {
        text = dataOf(mime, data);
        if (text === undefined) continue;
        if (MIME.test(mime)) size = sizeOf(text);
      } catch {}
      if (size > Math.min(DISPLAY_BYTES, e.left) || e.display.length >= DISPLAY_ITEMS) {
        e.dropped++;
        continue;
      }
      e.left -= size;
      result.display.push(e.display.push({ mime, data: text }) - 1);
      items.push({ mime, data: text });
    }
    e.results.push(result);
    if (!e.feed) return;
    const received = load(counts, RECEIVED);
    send({ id: e.id, shown: { main, text: result.text, display: items, json: entries === value ? undefined : jsonOf(value) } });
    wait(counts, RECEIVED, received); // later output must follow the object
  };

  const display = (value, options) => {
    if (options && options.raw && value !== null && typeof value === 'object') show(value, false, value);
    else show(value, false, bundle(value));
  };

  // One evaluation.

  const messageOf = (e, answer) => {
    const plain = e.results.every(r => r.main && r.display.length === 0);
    const message = {
      id: e.id, count: e.count, display: e.display, results: plain ? [] : e.results, display_dropped: e.dropped, ...answer,
    };
    natural();
    const text = stringify(message);
    if (!text.startsWith('{"id":"')) throw new Error('not the message');
    return text;
  };

  // finish may itself be terminated once: the evaluation is current until it has answered.
  const finish = (e, answer) => {
    if (current !== e) return;
    store(counts, ANSWERING, 1);
    try { variables(e.before); } catch {}
    let text;
    try {
      text = messageOf(e, answer);
    } catch { // the code has changed functions that it needs
      text = `{"id":"${e.id}","count":${e.count},"status":"exception","traceback":"the result can't be sent\\n"}`;
    }
    post(text);
    current = null;
    store(counts, ANSWERING, 0);
    ask('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
  };

  const fail = (e, problem, where) => {
    if (current === e) finish(e, { status: 'exception', traceback: explained(problem, where), raised: raised(problem) });
  };

  const settle = (e, value) => {
    if (current !== e) return;
    if (isPromise(value)) { // as if the code awaited it
      Reflect.apply(then, value, [settled => done(e, settled), problem => fail(e, problem)]);
      return;
    }
    if (value === undefined) {
      finish(e, { status: 'exited' });
      return;
    }
    if (globalThis._ === last) globalThis._ = last = value;
    const text = textOf(value);
    show(value, true, bundle(value));
    finish(e, { status: 'exited', value: text });
  };

  const done = (e, value) => {
    try {
      settle(e, value);
    } catch (problem) {
      fail(e, problem);
    }
  };

  const interrupted = e => {
    store(counts, ANSWERING, 1);
    try {
      for (const timer of e.timers) stop(timer); // so that code that waits for them doesn't continue
    } catch {}
    finish(e, { status: 'interrupted' });
  };

  // variables sets environment variables, or deletes those with null, and returns the earlier values.
  const variables = values => {
    const before = {};
    for (const [name, value] of Object.entries(values || {})) {
      before[name] = process.env[name] === undefined ? null : process.env[name];
      if (value === null) delete process.env[name];
      else process.env[name] = value;
    }
    return before;
  };

  const evaluate = request => {
    const e = current = {
      id: request.id, code: request.code, feed: request.feed, count: ++count, name: `cell-${count}`, timers: new Set(), sweep: 100,
      results: [], display: [], dropped: 0, left: DISPLAY_TOTAL, before: variables(request.env),
    };
    store(counts, ANSWERING, 0);
    if (request.dir) {
      try { process.chdir(request.dir); } catch {} // the workspace remains the directory
    }
    natural();
    session.post('Runtime.evaluate', {
      expression: `${enclosed(translated(request.code))}\n//# sourceURL=${e.name}`, replMode: true, objectGroup: 'cell',
    }, (problem, answer) => {
      if (problem) return; // it was terminated, and the interrupt follows
      const { exceptionDetails: failed, result } = answer;
      if (failed) fail(e, failed.exception ? valueOf(failed.exception) : new Error(failed.text), failed);
      else done(e, valueOf(result));
    });
  };

  // A signal is only for programs that the code has started; the code itself is ended otherwise. So Node.js always
  // catches and ignores SIGINT, regardless of the listeners that the code adds or removes.
  const ignoreSignal = () => {
    const { emit } = process;
    process.emit = function (name, ...args) {
      return name === 'SIGINT' ? true : Reflect.apply(emit, process, [name, ...args]);
    };
    process.on('SIGINT', () => {}); // Node.js takes process.emit as it is now
    delete process.emit;
    for (const listener of process.listeners('removeListener')) { // it would stop catching signals
      process.removeListener('removeListener', listener);
      process.on('removeListener', function (name, ...args) {
        if (name !== 'SIGINT') Reflect.apply(listener, this, [name, ...args]);
      });
    }
  };

  // Modules. REPL mode doesn't support import, so imports are translated to calls of these functions.

  const IMPORT = '__imp_'; // as long as the word, so that columns stay
  const importers = new Map();
  // loaded imports as a module in the current directory would.
  const loaded = (name, options) => {
    const dir = process.cwd();
    if (!importers.has(dir)) {
      const inside = new Module(join(dir, 'cell.cjs'));
      inside.filename = inside.id;
      inside._compile('module.exports = (name, options) => import(name, options)', inside.id);
      importers.set(dir, inside.exports);
    }
    return importers.get(dir)(name, options);
  };
  Object.defineProperty(globalThis, IMPORT, { value: loaded });

  // scanner returns a function that returns the piece of the code that begins at an index: a string, a comment, a regular
  // expression, a part of a template, a word, blanks or a sign. Pieces are asked for in their order.
  const PIECE = /\/\/[^\n]*|\/\*[^]*?\*\/|'(?:\\[^]|[^'\\\n])*'|"(?:\\[^]|[^"\\\n])*"|[\w$.#]+|\s+|[^]/y;
  const TEMPLATE = /[`}](?:\\[^]|\$(?!\{)|[^`\\$])*(?:`|\$\{)?/y;
  const REGEXP = /\/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+\/\w*/y;
  const VALUE = /[\w$)\]}'"`]$/, OPERATOR = /^(?:await|case|delete|do|else|in|instanceof|new|of|return|throw|typeof|void|yield)$/;
  const scanner = code => {
    const templates = []; // for each open ${ the depth of braces
    let depth = 0, before = '';
    const patternAt = index => {
      switch (code[index]) {
      case '`': return TEMPLATE;
      case '}': return templates.at(-1) === depth ? TEMPLATE : PIECE;
      case '/': return VALUE.test(before) && !OPERATOR.test(before) ? PIECE : REGEXP;
      default: return PIECE;
      }
    };
    const match = (pattern, index) => {
      pattern.lastIndex = index;
      const found = pattern.exec(code);
      return found ? found[0] : code[index];
    };
    return index => {
      const pattern = patternAt(index), piece = match(pattern, index);
      if (pattern === TEMPLATE) {
        if (piece[0] === '}') templates.pop();
        if (piece.endsWith('${')) templates.push(depth);
      } else if (piece === '{') depth++;
      else if (piece === '}') depth--;
      if (!/^(?:\s|\/[/*])/.test(piece)) before = piece;
      return piece;
    };
  };

  // translated returns the code with calls in place of imports.
  const STATIC = /import\s+(?:([\w$]+)\s*,?\s*)?(?:\*\s*as\s+([\w$]+)\s*|\{([^{}]*)\}\s*)?from\s*('[^'\n]*'|"[^"\n]*")(?:\s+with\s*(\{[^{}]*\}))?/y;
  const BARE = /import\s*('[^'\n]*'|"[^"\n]*")(?:\s+with\s*(\{[^{}]*\}))?/y;
  const translated = code => {
    if (!code.includes('import')) return code;
    const pieceAt = scanner(code);
    let out = '', begins = true;
    for (let index = 0; index < code.length;) {
      const piece = pieceAt(index), said = piece === 'import' && begins && (at(STATIC, code, index, from) || at(BARE, code, index, alone));
      if (said) out += said.text;
      else out += piece === 'import' && isCall(code, index + piece.length) ? IMPORT : piece;
      index = said ? said.end : index + piece.length;
      if (/^\/[/*]/.test(piece)) continue;
      begins = /^\s+$/.test(piece) ? begins || piece.includes('\n') : piece === ';' || piece === '}';
    }
    return out;
  };
  // isCall reports whether arguments begin at an index, rather than the parameters of a method.
  const isCall = (code, index) => {
    if (!/^\s*\(/.test(code.slice(index, index + 100))) return false;
    let open = 0;
    for (let i = index; i < code.length; i++) {
      if (code[i] === '(') open++;
      if (code[i] === ')' && --open === 0) return !/^[ \t]*\{/.test(code.slice(i + 1, i + 100));
    }
    return true;
  };
  const at = (pattern, code, index, say) => {
    pattern.lastIndex = index;
    const found = pattern.exec(code);
    if (!found) return null;
    const lines = found[0].split('\n').length - 1;
    return { text: say(found) + ';' + '\n'.repeat(lines), end: pattern.lastIndex };
  };
  const alone = ([, name, attributes]) => `await ${IMPORT}(${name}${attributes ? `, { with: ${attributes} }` : ''})`;
  const from = ([, whole, all, names, name, attributes]) => {
    const module = alone([, name, attributes]);
    if (all) return `const ${all} = ${module}${whole ? `, ${whole} = ${all}.default` : ''}`;
    const parts = (names || '').split(',').map(part => part.trim().replace(/\s+as\s+/, ': ')).filter(Boolean);
    if (whole) parts.unshift(`default: ${whole}`);
    return `const { ${parts.join(', ')} } = ${module}`;
  };

  // enclosed puts an object literal into parentheses, as Node's prompt does: without them it is a block.
  const LITERAL = /^(?:\s|\/\/[^\n]*\n|\/\*[^]*?\*\/)*\{/;
  const enclosed = code => {
    if (!LITERAL.test(code) || /;\s*$/.test(code)) return code;
    try {
      new Script(`(async () => (${code}\n))`);
    } catch {
      return code;
    }
    return `(${code}\n)`;
  };

  const own = () => Module.createRequire(process.cwd() + '/cell.js');
  const requirer = id => own()(id);
  requirer.resolve = (id, options) => own().resolve(id, options);
  requirer.cache = require.cache;

  // The prompt's names.

  const timers = require('timers');
  const { clearImmediate, clearTimeout } = timers;
  const stop = timer => {
    if ('_onImmediate' in timer) clearImmediate(timer);
    else clearTimeout(timer);
  };
  const track = timer => {
    const e = current;
    if (!e) return timer;
    if (e.timers.add(timer).size > e.sweep) { // remove expired ones
      for (const old of e.timers) if (old._destroyed) e.timers.delete(old);
      e.sweep = 100 + 2 * e.timers.size;
    }
    return timer;
  };
  const timed = (make, promised) => Object.assign(function (...args) {
    return track(make.apply(this, args));
  }, make, promised && { [util.promisify.custom]: promised });
  // A promise of a timer that is cleared never settles. One with a signal stays Node.js's.
  const promisedOf = (name, plain) => {
    const own = timersPromises[name], make = timers[name];
    return (...args) => {
      const options = args[plain.length];
      if (options !== undefined) return own(...args);
      return new Promise(resolve => track(make(resolve, ...plain.map((_, i) => args[i]))));
    };
  };
  timersPromises.setTimeout = promisedOf('setTimeout', ['delay', 'value']);
  timersPromises.setImmediate = promisedOf('setImmediate', ['value']);
  const { scheduler } = timersPromises, nodes = scheduler.wait;
  scheduler.wait = (...args) => args[1] === undefined ? timersPromises.setTimeout(args[0]) : Reflect.apply(nodes, scheduler, args);
  for (const name of ['setTimeout', 'setInterval', 'setImmediate']) {
    globalThis[name] = timers[name] = timed(timers[name], name === 'setInterval' ? undefined : timersPromises[name]);
  }
  Module.syncBuiltinESMExports();
  for (const [name, value] of Object.entries({
    console: new Console({ stdout: process.stdout, stderr: process.stderr }), display, require: requirer,
  })) Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  for (const name of ['module', 'exports', '__filename', '__dirname']) delete globalThis[name];

  session.connect();
  globalThis[IMPORT + '_take'] = take;
  taker = ask('Runtime.evaluate', { expression: IMPORT + '_take' }).result.objectId;
  delete globalThis[IMPORT + '_take'];

  ignoreSignal();
  process.on('uncaughtException', report);
  process.on('unhandledRejection', report);
  const thread = new Worker(`(${channel})(${stringify({ IN, OUT, HEARD, RECEIVED, ANSWERING })})`, { eval: true, workerData: counts, stdin: false });
  post = thread.postMessage.bind(thread);
  thread.on('message', message => {
    if (!message.interrupt) {
      evaluate(message);
      return;
    }
    add(counts, HEARD, 1);
    notify(counts, HEARD);
    if (current && current.id === message.interrupt) interrupted(current);
  });
  thread.on('online', () => send({ id: 'ready', status: 'exited' }));
})();
