package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// TestEgressThreats tests each promise of docs/network.md that needs an Internet. The tests share one.
func TestEgressThreats(t *testing.T) {
	hosttest.Slow(t)
	w := newWorld(t)
	for name, test := range map[string]func(*testing.T, *world){
		"ReachesNoAddressOfASpecialPurpose":   egressReachesNoAddressOfASpecialPurpose,
		"ServesNoOtherHostBehindAName":        egressServesNoOtherHostBehindAName,
		"LetsNoRequestHideInAnother":          egressLetsNoRequestHideInAnother,
		"TellsNoNameServerWhatProgramsLookUp": egressTellsNoNameServerWhatProgramsLookUp,
		"SlowsAFloodOfQuestionsDown":          egressSlowsAFloodOfQuestionsDown,
		"IsNotHeldBySlowPrograms":             egressIsNotHeldBySlowPrograms,
		"BoundsWhatASessionReceives":          egressBoundsWhatASessionReceives,
		"BoundsWhatASessionSends":             egressBoundsWhatASessionSends,
		"PassesEveryByte":                     egressPassesEveryByte,
		"OpensNothingOnThisMachine":           egressOpensNothingOnThisMachine,
		"ByTheProxyOfTheCompany":              egressByTheProxyOfTheCompany,
		"FollowsNoRedirect":                   egressFollowsNoRedirect,
	} {
		t.Run(name, func(t *testing.T) { test(t, w.of(t)) })
	}
}

// egressReachesNoAddressOfASpecialPurpose, whatever a name resolves to, then or later, with and without the proxy. A
// private: rule opens only private addresses.
func egressReachesNoAddressOfASpecialPurpose(t *testing.T, w *world) {
	bad := map[string]string{
		"metadata": "169.254.169.254", "own": "93.184.216.1", "local": "127.0.0.1", "any": "0.0.0.0", "azure": "168.63.129.16", "local6": "::1",
		"mapped": "::ffff:169.254.169.254", "nat64": "64:ff9b::a9fe:a9fe", "sixtofour": "2002:a9fe:a9fe::1", "linklocal": "fe80::1",
	}
	private := map[string]string{"inside": "10.9.9.9", "shared": "198.51.100.7"}
	names := []string{"moves.example.net=93.184.216.34"}
	create := []string{"--allow", "*.example.net"}
	for name, address := range bad {
		names = append(names, name+".example.net="+address)
		create = append(create, "--allow", "private:"+name+".example.net")
	}
	for name, address := range private {
		names = append(names, name+".example.net="+address)
	}
	w.resolve(names...)
	w.create("public", "--allow", "*.example.net")
	w.create("private", append(create, "--allow", "private:inside.example.net", "--allow", "private:shared.example.net")...)
	get := func(session, name string) string {
		url := name + ".example.net/"
		one := "curl -s -o /dev/null -w '%{http_code} ' http://" + url + "; curl -sk -o /dev/null https://" + url + " && echo -n reached' ' || echo -n cut' ';"
		return strings.TrimSpace(w.sh(session, one+unproxied+one).out)
	}
	const denied = "403 cut 403 cut"
	for name := range bad {
		assert.Equal(t, denied, get("public", name), name)
		assert.Equal(t, denied, get("private", name), name)
	}
	for name := range private {
		assert.Equal(t, denied, get("public", name), name)
		assert.Equal(t, "200 reached 200 reached", get("private", name), name)
	}
	assert.Equal(t, "200 reached 200 reached", get("public", "moves"))
	w.resolve(append(names[1:], "moves.example.net=169.254.169.254")...)
	require.Eventually(t, func() bool { return strings.HasSuffix(get("public", "moves"), "cut") }, time.Minute, time.Second, "the name of a host that was allowed, once this machine knows")
	assert.Regexp(t, "cut .* cut$", get("public", "moves"))
	assert.Contains(t, w.do("log", "public", "--network"), "the address may not be reached")

	for _, literal := range []string{"93.184.216.34", "169.254.169.254", "2130706433", "0x7f000001", "127.1", "[::1]", "[::ffff:93.184.216.34]"} {
		got := w.sh("private", "curl -s -o /dev/null -w '%{http_code}' http://"+literal+"/; "+unproxied+"curl -s -m 2 http://"+literal+"/").out
		assert.Contains(t, []string{"400", "403", "000", "502000"}, got, literal) // 502: the sandbox's own, where nothing listens
	}
}

// probe has helpers for programs that speak HTTP and TLS themselves.
const probe = `import socket, ssl, sys
def proxy(): return socket.create_connection(("127.0.0.1", 3128), 60)
def connect(target):
    c = proxy(); c.sendall(b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (target, target))
    head = b""
    while b"\r\n\r\n" not in head: head += c.recv(1)
    return c
def hello(c, name):
    ctx = ssl.create_default_context(); ctx.check_hostname = False; ctx.verify_mode = ssl.CERT_NONE
    return ctx.wrap_socket(c, server_hostname=name)
def said(what, do):
    try: print(what, do())
    except OSError as e: print(what, "cut")
def ask(s):
    s.sendall(b"GET /asked HTTP/1.1\r\nHost: www.example.com\r\nConnection: close\r\n\r\n")
    got = b""
    while part := s.recv(4096): got += part
    return b"/asked" in got
`

func python(script string) string { return "python3 - <<'.'\n" + probe + script + "\n.\n" }

// egressServesNoOtherHostBehindAName: the name in the TLS hello must be the host's, in a tunnel and without a proxy.
func egressServesNoOtherHostBehindAName(t *testing.T, w *world) {
	w.create("box", "--allow", "www.example.com")
	assert.Equal(t, `right True
other cut
none cut
ssh cut
right, transparent True
other, transparent cut
none, transparent cut
`, w.sh("box", python(`
raw = lambda: socket.create_connection(("www.example.com", 443), 60)
tunnel = lambda: connect(b"www.example.com:443")
def ssh():
    c = tunnel(); c.sendall(b"SSH-2.0-x\r\n")
    if not c.recv(1): raise OSError("ended")
said("right", lambda: ask(hello(tunnel(), "www.example.com")))
said("other", lambda: ask(hello(tunnel(), "api.example.com")))
said("none", lambda: ask(hello(tunnel(), None)))
said("ssh", ssh)
said("right, transparent", lambda: ask(hello(raw(), "www.example.com")))
said("other, transparent", lambda: ask(hello(raw(), "api.example.com")))
said("none, transparent", lambda: ask(hello(raw(), None)))`)).out)
}

// egressLetsNoRequestHideInAnother: the server gets a request that was written again from its parsed form.
func egressLetsNoRequestHideInAnother(t *testing.T, w *world) {
	w.create("box", "--allow", "www.example.com")
	got := w.sh("box", python(`
hidden = b"GET /smuggled HTTP/1.1\r\nHost: www.example.com\r\n\r\n"
last = b"GET http://www.example.com/last HTTP/1.1\r\nHost: www.example.com\r\nConnection: close\r\n\r\n"
n = str(len(hidden)).encode()
start = b"POST http://www.example.com/x HTTP/1.1\r\nHost: www.example.com\r\n"
for what, raw in {
    "both": start + b"Content-Length: " + n + b"\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": start + b"Content-Length: 0\r\nContent-Length: " + n + b"\r\n\r\n",
    "two hosts": start + b"Host: api.example.com\r\nContent-Length: " + n + b"\r\n\r\n",
    "folded": start + b"X-A: b\r\n Content-Length: 0\r\nContent-Length: " + n + b"\r\n\r\n",
    "spaced": start + b"Transfer-Encoding : chunked\r\nContent-Length: " + n + b"\r\n\r\n",
    "odd coding": start + b"Transfer-Encoding: xchunked\r\nContent-Length: " + n + b"\r\n\r\n",
    "bare newline": start + b"X-A: b\nContent-Length: " + n + b"\r\n\r\n",
    "in the path": b"GET http://www.example.com/x%20HTTP/1.1%0d%0aHost:%20www.example.com%0d%0a%0d%0aGET%20/smuggled HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
    "other host": b"GET http://www.example.com/x HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: " + n + b"\r\n\r\n",
}.items():
    c = proxy(); c.sendall(raw + hidden + last)
    said(what, lambda: c.recv(12).decode())
    try:
        while c.recv(4096): pass
    except OSError: pass`))
	require.Zero(t, got.code, got.errs)
	for line := range strings.Lines(got.out) {
		assert.Regexp(t, ` (HTTP/1.1 (400|200|501)|cut)\n$`, line)
	}
	assert.Zero(t, w.seen().smuggled, got.out)
}

// egressTellsNoNameServerWhatProgramsLookUp: a name is resolved on the host only when
// a program connects to it, and only if it is allowed.
func egressTellsNoNameServerWhatProgramsLookUp(t *testing.T, w *world) {
	w.create("box", "--allow", "*.example.net")
	const look = `
def found(name):
    try: return socket.gethostbyname(name)
    except OSError: return None
`
	assert.Equal(t, "0 20\n", w.sh("box", python(look+`print(sum(1 for i in range(20) if found("secret-%d.example.org" % i)), sum(1 for i in range(20) if found("secret-%d.example.net" % i)))`)).out)
	w.sh("box", "curl -s http://secret.example.org/; curl -s https://secret.example.org/")
	assert.Zero(t, w.seen().queried)
	w.sh("box", "curl -s http://connected.example.net/")
	assert.Positive(t, w.seen().queried, "the server does count")
}

// egressSlowsAFloodOfQuestionsDown: it answers 2,000 queries per second, and other sessions aren't affected.
func egressSlowsAFloodOfQuestionsDown(t *testing.T, w *world) {
	w.create("box", "--allow", "www.example.com")
	w.create("other", "--allow", "www.example.com")
	got := w.sh("box", python(`
import os, select, time
c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); c.connect(("127.0.0.1", 53)); c.setblocking(False)
began, answers = time.monotonic(), 0
def read():
    n = 0
    try:
        while c.recv(2000): n += 1
    except OSError: pass
    return n
for i in range(20000):
    try: c.send(os.urandom(2) + b"\1\0\0\1\0\0\0\0\0\0" + b"\x03www\x07example\x03com\0\0\1\0\1")
    except OSError: pass
    answers += read()
while not answers and time.monotonic() - began < 60: # the server may be slower than this
    select.select([c], [], [], 60)
    answers += read()
took = time.monotonic() - began
print(0 < answers <= 2000 + 2000 * (took + 1), answers, took)`))
	assert.Contains(t, got.out, "True", got.errs)
	assert.Zero(t, w.sh("other", unproxied+"curl -sSf https://www.example.com/").code)
	assert.Zero(t, w.sh("box", "until getent hosts www.example.com; do :; done").code, "its own bound fills again")
}

// egressIsNotHeldBySlowPrograms: a connection with unfinished headers gives way, while its program continues.
func egressIsNotHeldBySlowPrograms(t *testing.T, w *world) {
	w.create("box", "--allow", "www.example.com")
	got := w.sh("box", python(`
import os, select, threading, time
held = []
for i in range(300):
    c = socket.create_connection(("127.0.0.1", 3128)); c.sendall(b"GET http://www.example.com/ HTTP/1.1\r\nX: "); held.append(c)
def trickle():
    while True:
        for c in held:
            try: c.send(b"x")
            except OSError: pass
        time.sleep(0.2)
threading.Thread(target=trickle, daemon=True).start()
os.environ["no_proxy"] = ""
import urllib.request
print(urllib.request.urlopen("https://www.example.com/served", timeout=50).read().decode(), end="")`))
	assert.Equal(t, "www.example.com /served auth=\n", got.out, got.errs)
}

// egressBoundsWhatASessionSends to 64 MiB by any way; then it sends nothing, and the log reports that.
func egressBoundsWhatASessionSends(t *testing.T, w *world) {
	w.create("box", "--allow", "www.example.com")
	got := w.sh("box", `head -c 40000000 /dev/zero | curl -sSf -T - https://www.example.com/upload && `+unproxied+
		`head -c 40000000 /dev/zero | curl -sSf -T - http://www.example.com/upload`)
	assert.NotZero(t, got.code)
	assert.LessOrEqual(t, w.seen().received, int64(64<<20))
	assert.Greater(t, w.seen().received, int64(40_000_000))
	assert.Contains(t, w.sh("box", "curl -sS https://www.example.com/").errs, "403")
	assert.Contains(t, w.sh("box", "curl -sS http://www.example.com/").out, "the session has sent its 67108864 bytes")
	assert.Contains(t, w.do("session", "egress", "box"), "has sent its 67108864 bytes")
}

// egressBoundsWhatASessionReceives to 4 GiB in total.
func egressBoundsWhatASessionReceives(t *testing.T, w *world) {
	if os.Getenv("WISBOX_NIGHTLY") == "" {
		t.Skip("4 GiB take a minute and a half; make nightly brings them")
	}
	w.create("box", "--allow", "www.example.com")
	for range 4 {
		w.sh("box", fmt.Sprintf("curl -sSf http://www.example.com/large/%d | cat >/dev/null", 1<<30-1000))
	}
	got := w.sh("box", unproxied+"set -o pipefail; curl -sSf https://www.example.com/large/10000000 | wc -c")
	assert.NotZero(t, got.code)
	assert.NotEqual(t, "10000000\n", got.out)
	assert.Contains(t, w.sh("box", "curl -sS http://www.example.com/").out, "the session has received its 4294967296 bytes")
}

// egressPassesEveryByte in each of its ways, and buffers little.
func egressPassesEveryByte(t *testing.T, w *world) {
	size, limit := int64(25<<20), int64(64<<10) // bytes each way, and KiB of memory
	if os.Getenv("WISBOX_NIGHTLY") != "" {
		size = 1_000_000_000 // a session receives at most 4 GiB
	}
	h := sha256.New()
	_, err := io.Copy(h, stream(size))
	require.NoError(t, err)
	want := hex.EncodeToString(h.Sum(nil)) + "  -\n"
	w.create("box", "--allow", "www.example.com", "--allow", "api.example.com", "--secret", "TOK="+w.dir+"/token", "--inject", "api.example.com:X-Key=TOK")
	w.sh("box", "true")
	holder := holderOf(t, "box", &home{t: t, cache: w.dir})
	before := peak(t, holder)
	for way, script := range map[string]string{
		"tunnel": "curl -sS https://www.example.com", "plain": "curl -sS http://www.example.com", "terminated": "curl -sS https://api.example.com",
		"transparent": unproxied + "curl -sS https://www.example.com",
	} {
		got := w.sh("box", fmt.Sprintf("%s/large/%d | sha256sum", script, size))
		assert.Equal(t, want, got.out, "%s: %s", way, got.errs)
	}
	assert.Less(t, peak(t, holder)-before, limit)
}

// peak returns the peak memory of a process, in KiB.
func peak(t *testing.T, pid int) (kib int64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(status), "VmHWM:")
	require.True(t, found)
	kib, err = strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	require.NoError(t, err)
	return kib
}

// egressOpensNothingOnThisMachine: no port of any kind, no socket for other users, and no descriptor of the agent
// inside.
func egressOpensNothingOnThisMachine(t *testing.T, w *world) {
	w.create("box", "--allow", "www.example.com")
	require.Zero(t, w.sh("box", "curl -sSf https://www.example.com/").code)
	out, err := w.command("sh", "-c", "cat /proc/net/tcp /proc/net/tcp6 /proc/net/udp /proc/net/udp6; ! grep ' 00010000 .*@' /proc/net/unix").Output()
	require.NoError(t, err, "an abstract socket listens: %s", out)
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		require.Greater(t, len(fields), 3)
		assert.NotEqual(t, "0A", fields[3], "a port listens: %s", line)
		assert.NotEqual(t, "07", fields[3], "a port receives: %s", line)
	}
	for _, dir := range []string{w.dir, w.runtime} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err == nil && e.Type() == os.ModeSocket {
				cmd := w.command("setpriv", "--reuid=65534", "--clear-groups", "curl", "-s", "--unix-socket", path, "http://x/")
				_ = cmd.Run()
				assert.Equal(t, curlConnects, cmd.ProcessState.ExitCode(), path)
			}
			return nil
		}))
	}
	assert.Equal(t, "done\n", w.sh("box", `for p in /proc/[0-9]*; do [ "$(stat -c %u $p)" = 1000 ] || ls $p/fd/ 2>/dev/null; done; echo done`).out)
	assert.Equal(t, "[Errno 101] Network is unreachable\n", w.sh("box", `python3 -c '
import socket
try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("93.184.216.34", 53))
except OSError as e: print(e)'`).out, "no UDP leaves")
}

// curlConnects is curl's exit code for a failed connection.
const curlConnects = 7

// egressByTheProxyOfTheCompany: all connections go through the proxy, and its password stays outside.
func egressByTheProxyOfTheCompany(t *testing.T, w *world) {
	w.create("box", "--egress-via", "http://me:pass@93.184.216.34:3128", "--allow", "www.example.com", "--allow", "unknown-here.example.net")
	const get = "curl -sSf https://www.example.com/tls; curl -sSf http://unknown-here.example.net/plain\n"
	want := "www.example.com /tls auth=\nunknown-here.example.net /plain auth=\n"
	got := w.sh("box", get+unproxied+get)
	assert.Equal(t, want+want, got.out, got.errs)
	assert.GreaterOrEqual(t, w.seen().tunnels, int64(3))
	assert.Zero(t, w.seen().queried, "the proxy resolves names")
	assert.Equal(t, "none\n", w.sh("box", "env | grep me:pass; grep -rs me:pass /run /proc/self/environ; echo none").out)
	assert.NotContains(t, w.do("session", "egress", "box"), "me:pass")
	assert.NotContains(t, w.do("log", "box", "--network", "--json"), "me:pass")
	assert.Contains(t, w.sh("box", "curl -sS https://api.example.com/").errs, "403", "the rules stand")
}

// egressFollowsNoRedirect: following one is another connection of the program, subject to the rules.
func egressFollowsNoRedirect(t *testing.T, w *world) {
	w.create("box", "--allow", "www.example.com")
	got := w.sh("box", "curl -s -o /dev/null -w '%{http_code} ' http://www.example.com/elsewhere; curl -sL http://www.example.com/elsewhere")
	assert.Contains(t, got.out, "302 Denied by wisbox: elsewhere.example.com:80: no rule allows it")
}
