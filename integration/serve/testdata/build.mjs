// What an application does with the SDK's builds of templates: every kind of step, tags,
// files of every kind, and steps that mean harm. wisbox's own image is the base.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { Sandbox, Template, BuildError, waitForPort, waitForFile } from 'e2b'

const files = fs.mkdtempSync(path.join(os.tmpdir(), 'build-'))
const put = (name, text, mode) => {
  fs.mkdirSync(path.dirname(path.join(files, name)), { recursive: true })
  fs.writeFileSync(path.join(files, name), text, { mode })
}
put('app/server.py', 'import http.server,os\nprint("up", flush=True)\nhttp.server.test(http.server.SimpleHTTPRequestHandler, port=8123, bind="127.0.0.1")\n')
put('app/deep/data.txt', 'deep\n')
fs.symlinkSync('data.txt', path.join(files, 'app/deep/link'))
put('one.txt', 'one\n')
put('a.conf', 'a\n')
put('b.conf', 'b\n')
const odd = `o'd"d $HOME [x]*?#\\é.txt`
put(odd, 'odd\n')
const plain = `o'd"d $HOME #é.txt`
put(plain, 'plain\n')
put('tool.sh', '#!/bin/sh\necho tool\n')

// Texts that would be instructions if one of them ended its line, and what a shell makes of them.
const nasty = `printf "%s\\n" "# no comment" 'FROM evil' > /home/user/nasty # and
cat >> /home/user/nasty <<'EOF'
FROM evil
RUN touch /pwned \\
EOF
echo "é 😀 \\u0041" >> /home/user/nasty \\
  # end`
const logs = []
const onBuildLogs = (entry) => logs.push(entry.message)
const template = Template({ fileContextPath: files })
  .fromBaseImage()
  .setEnvs({ GREETING: `say "hi" 'there' # \\ é`, EXTRA: '$GREETING!' })
  .runCmd('id -un; id -u; pwd; echo "$EXTRA"')
  .runCmd(['id -u > /root/who', 'test ! -e /sys/class/net/eth0', 'chmod 711 /root'], { user: 'root' })
  .runCmd(nasty)
  .copy('app', '/home/user/app')
  .copy('one.txt', '/opt/one/', { user: 'root' })
  .copy('one.txt', '/opt/renamed.txt', { user: 'root', mode: 0o600 })
  .copy('*.conf', '/opt/conf/', { user: 'root' })
  .copy(odd.replace(/[[\]*?\\]/g, '\\$&'), '/opt/conf')
  .copy(plain, '/opt/conf')
  .copy('tool.sh', '/usr/local/bin/greet', { user: 'root', mode: 0o755 })
  .makeDir('/home/user/made').makeSymlink('made', '/home/user/linked')
  .setUser('root').runCmd('test "$(id -u)" = 0 && echo root > /home/user/of-root').setUser('user')
  .setWorkdir('/home/user/work dir')
  .runCmd('pwd > where')
  .setStartCmd('python3 /home/user/app/server.py', waitForPort(8123))
const built = await Template.build(template, 'app:v1', { tags: ['stable'], onBuildLogs })
assert.match(built.templateId, /^[a-z0-9]{20}$/)
assert.equal(await Template.exists('app:v1'), true)
assert.equal(await Template.exists('app'), false, 'app:default was not built')
const said = logs.join('\n')
assert.match(said, /^user\n1000\n\/home\/user\nsay "hi" 'there' # \\ é!$/m)
assert.match(said, /\[2\/\d+\] RUN id -un; id -u/)
assert.doesNotMatch(said, /\\u000a|libpod_builder|\/var\/lib/)

for (const ref of ['app:v1', 'app:stable', built.templateId]) {
  const sandbox = await Sandbox.create(ref, { timeoutMs: 60_000 })
  assert.equal(sandbox.sandboxId.length, 20)
  assert.equal((await sandbox.getInfo()).templateId, built.templateId)
  const run = async (cmd) => (await sandbox.commands.run(cmd)).stdout
  if (ref === 'app:v1') {
    assert.equal(await run('pwd'), '/home/user/work dir\n')
    assert.equal(await run('cat where'), '/home/user/work dir\n')
    assert.equal(await run('cat /home/user/nasty'), '# no comment\nFROM evil\nFROM evil\nRUN touch /pwned \\\né 😀 \\u0041\n')
    assert.equal(await run('ls -d /pwned /evil 2>/dev/null || echo none'), 'none\n')
    assert.equal(await run('cat /home/user/app/deep/link; readlink /home/user/app/deep/link'), 'deep\ndata.txt\n')
    assert.equal(await run('cat /opt/one/one.txt /opt/conf/a.conf /opt/conf/b.conf; stat -c "%U %a" /opt/renamed.txt'), 'one\na\nb\nroot 600\n')
    assert.equal(await run(`LC_ALL=C ls /opt/conf`), ['a.conf', 'b.conf', plain, odd].join('\n') + '\n')
    assert.equal(await run('greet; echo "$EXTRA"'), `tool\nsay "hi" 'there' # \\ é!\n`)
    assert.equal(await run('readlink /home/user/linked; cat /home/user/of-root; echo more >> /home/user/of-root; tail -n1 /home/user/of-root'), 'made\nroot\nmore\n')
    assert.equal(await run('id -un'), 'user\n')
  }
  assert.match(await run('python3 -c "import urllib.request as u; print(u.urlopen(\'http://127.0.0.1:8123\').status)"'), /200/)
  assert.equal(await sandbox.kill(), true)
}

// Tags move; a build that takes the last one removes the template that had it.
assert.deepEqual((await Template.assignTags('app:v1', ['production', 'default'])).tags.sort(), ['default', 'production', 'stable', 'v1'])
await Template.removeTags('app', ['stable', 'production'])
assert.equal(await Template.exists('app:stable'), false)
assert.deepEqual((await Template.getTags('app')).map((t) => t.tag).sort(), ['default', 'v1'])
const child = await Template.build(Template().fromTemplate('app').runCmd('cat where && echo child > /home/user/child'), 'app:default', { tags: ['v1'] })
assert.notEqual(child.templateId, built.templateId)
assert.equal(await Template.exists(built.templateId), false)
const second = await Sandbox.create('app', { timeoutMs: 60_000 })
assert.equal((await second.commands.run('cat where /home/user/child; greet; pgrep -f server.py >/dev/null && echo runs')).stdout, '/home/user/work dir\nchild\ntool\nruns\n')
const snapshot = await second.createSnapshot({ name: 'later' })
await second.kill()
const third = await Sandbox.create(snapshot.snapshotId, { timeoutMs: 60_000 })
assert.equal((await third.commands.run('pwd; pgrep -f server.py >/dev/null && echo runs')).stdout, '/home/user/work dir\nruns\n')
await third.kill()

// What fails says which step it was.
const fails = async (t, match, name = 'broken') => {
  const err = await Template.build(t, name).then(() => assert.fail('it was built'), (err) => err)
  assert.ok(err instanceof Error, String(err))
  assert.match(err.message, match)
  assert.doesNotMatch(err.message, /\/var\/|\/root|libpod/)
  assert.equal(await Template.exists(name), false)
}
await fails(Template().fromBaseImage().runCmd('true').runCmd('echo oh >&2; exit 7'), /step 2, RUN echo oh.* exit status 7/)
await fails(Template().fromBaseImage().setStartCmd('exit 3', waitForFile('/never')), /start command ended with exit status 3/)
await fails(Template().fromBaseImage().runCmd('curl -s http://127.0.0.1 || python3 -c "import urllib.request as u; u.urlopen(\'http://127.0.0.1:' + new URL(process.env.E2B_API_URL).port + '/health\')"'), /exit status 1/)
await fails(Template().fromBaseImage().setEnvs({ A: 'b\nRUN evil' }), /400.*line break/s)
await fails(Template().fromBaseImage().setUser('root\nRUN id'), /400.*line break/s)
await fails(Template().fromBaseImage().setUser('root --x'), /400.*user/s)
await fails(Template().fromBaseImage().setWorkdir('/a\nRUN evil'), /400/)
await fails(Template({ fileContextPath: files }).fromBaseImage().copy('one.txt', '/x', { user: '0 --from=x' }), /400.*user/s)
await fails(Template().fromImage('docker.io/library/not-here:1'), /not an image of the server/)
await fails(Template().fromImage('localhost/wisbox-template:' + child.templateId), /not an image of the server/)
await fails(Template().fromImage('wisbox-template:' + child.templateId), /not an image of the server/)
await fails(Template().fromImage('python', { username: 'a', password: 'b' }), /fromImageRegistry/)
await fails(Template().fromTemplate('later'), /snapshot/)
await fails(Template().fromTemplate('nobody'), /404/)
await fails(Template().fromBaseImage(), /400/, '../x')
await assert.rejects(Template.build(Template().fromBaseImage(), 'base'), /400/)

fs.rmSync(files, { recursive: true })
console.log('done', child.templateId)
