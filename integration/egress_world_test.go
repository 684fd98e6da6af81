package integration

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// certify writes a certificate for the names, and its key.
func certify(t *testing.T, dir string, names ...string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: names, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: private}} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	_, err = tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	require.NoError(t, err)
}

// world is a host with an Internet and wisbox.
type world struct {
	t       *testing.T
	pid     int    // of a process of that host
	dir     string // shared by the test, the host and the Internet
	runtime string // XDG_RUNTIME_DIR
	env     []string
	before  seen
}

// of returns the world for a subtest.
func (w *world) of(t *testing.T) *world {
	part := *w
	part.t = t
	part.resolve()
	part.before = seen{}
	part.before = part.seen()
	return &part
}

// newWorld creates a world with the names of sites and additional NAME=ADDRESS pairs.
func newWorld(t *testing.T, names ...string) *world {
	t.Helper()
	need(t)
	if os.Getuid() != 0 {
		t.Skip("only root makes namespaces with a cable between them; root's run of this test does")
	}
	for _, program := range []string{"unshare", "nsenter", "ip", "curl", "git"} {
		if _, err := exec.LookPath(program); err != nil {
			hosttest.Lacks(t, "%s is not there: %s", program, err)
		}
	}
	w := &world{t: t, dir: t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "token"), []byte(secretValue+"\n"), 0o600))
	certify(t, w.dir, slices.Collect(maps.Keys(sites))...)
	w.resolve(names...)
	var err error
	w.runtime, err = os.MkdirTemp("/tmp", "wisbox-run-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(w.runtime)) })
	backend, err := exec.Command("git", "--exec-path").Output()
	require.NoError(t, err)
	w.env = append(os.Environ(), internetDir+"="+w.dir, "SSL_CERT_FILE="+filepath.Join(w.dir, "cert.pem"), "WISBOX="+binary(t), "FETCH="+fetch,
		"DIR="+w.dir, "WISBOX_CACHE="+filepath.Join(w.dir, "c"), "XDG_RUNTIME_DIR="+w.runtime, "GIT_BACKEND="+strings.TrimSpace(string(backend))+"/git-http-backend")
	w.begin()
	return w
}

// resolve sets the addresses of names.
func (w *world) resolve(names ...string) {
	text := "127.0.0.1 localhost\n"
	for name := range sites {
		text += "93.184.216.34 " + name + "\n"
	}
	for _, pair := range names {
		name, address, _ := strings.Cut(pair, "=")
		text += address + " " + name + "\n"
	}
	require.NoError(w.t, os.WriteFile(filepath.Join(w.dir, "hosts"), []byte(text), 0o644)) // in place: it is mounted
}

func (w *world) begin() {
	self, err := os.Executable()
	require.NoError(w.t, err)
	cmd := exec.Command("unshare", "-n", "-m", "sh", "testdata/egress/world.sh", self, w.dir)
	cmd.Env, cmd.Stderr = w.env, os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(w.t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, cmd.Start())
	w.t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(w.t, err)
	require.Equal(w.t, "ready\n", line)
	w.pid = cmd.Process.Pid
}

// command returns a command on the host.
func (w *world) command(argv ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"-t", strconv.Itoa(w.pid), "-n", "-m", "--wd=" + w.dir, "--"}, argv...)...)
	cmd.Env = w.env
	return cmd
}

// do runs wisbox, which must succeed, and returns its output.
func (w *world) do(args ...string) string {
	w.t.Helper()
	out, err := w.command(append([]string{binary(w.t)}, args...)...).CombinedOutput()
	require.NoError(w.t, err, "%v\n%s", args, out)
	return string(out)
}

// create creates a session, which the test removes at its end.
func (w *world) create(name string, args ...string) {
	w.t.Helper()
	w.do(append([]string{"session", "create", name}, args...)...)
	w.t.Cleanup(func() { w.do("session", "rm", name) })
}

// ran is the result of a script.
type ran struct {
	out, errs string
	code      int
}

// sh runs a script in a session, for five minutes at most.
func (w *world) sh(session, script string) ran {
	w.t.Helper()
	cmd := w.command(binary(w.t), "exec", session, "--", "timeout", "300", "bash", "-c", script)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	require.NotNil(w.t, cmd.ProcessState, err)
	return ran{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// seen has the Internet's counters since the subtest began.
type seen struct{ received, smuggled, queried, tunnels, plain int64 }

func (w *world) seen() (s seen) {
	w.t.Helper()
	out, err := w.command("curl", "-s", "http://93.184.216.34/counted").Output()
	require.NoError(w.t, err)
	_, err = fmt.Sscanf(string(out), "received=%d smuggled=%d queried=%d tunnels=%d plain=%d", &s.received, &s.smuggled, &s.queried, &s.tunnels, &s.plain)
	require.NoError(w.t, err, "%s", out)
	b := w.before
	return seen{s.received - b.received, s.smuggled - b.smuggled, s.queried - b.queried, s.tunnels - b.tunnels, s.plain - b.plain}
}

// inWorld runs shell commands on a host with an Internet.
func inWorld(t *testing.T, commands string) string {
	t.Helper()
	w := newWorld(t)
	cmd := w.command("sh", "-ec", commands)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, "%s%s", out, &errs)
	return string(out)
}

// TestEgressReachesPublicHosts by TLS that the programs verify, with and without the proxy, and only by name.
func TestEgressReachesPublicHosts(t *testing.T) {
	hosttest.Slow(t)
	out := inWorld(t, `
$WISBOX run --allow www.example.com -- python3 -c "$FETCH" https://www.example.com/proxy
$WISBOX run --allow www.example.com -- env -u https_proxy -u HTTPS_PROXY -u all_proxy -u ALL_PROXY python3 -c "$FETCH" https://www.example.com/none
$WISBOX run --allow www.example.com -- python3 -c "$FETCH" http://www.example.com/plain
$WISBOX run --allow public -- python3 -c "$FETCH" https://api.example.com/public
$WISBOX run --allow www.example.com -- python3 -c "$FETCH" https://api.example.com/ 2>&1 | grep denied || true
$WISBOX run --allow public -- python3 -c "$FETCH" https://93.184.216.34/ 2>&1 | grep denied || true
$WISBOX run --allow www.example.com --deny www.example.com:80 -- python3 -c "$FETCH" http://www.example.com/ 2>&1 | grep denied || true
`)
	assert.Equal(t, `www.example.com /proxy auth=
www.example.com /none auth=
www.example.com /plain auth=
api.example.com /public auth=
`, strings.Join(strings.SplitAfter(out, "\n")[:4], ""))
	assert.Contains(t, out, "api.example.com:443: no rule allows it; to allow it: --allow api.example.com:443")
	assert.Contains(t, out, "www.example.com:80: the rule to deny www.example.com:80 forbids it")
}

// TestEgressIsRecorded: a run reports the rules that it needed, and they suffice; a kept session keeps them across
// holders.
func TestEgressIsRecorded(t *testing.T) {
	hosttest.Slow(t)
	out := inWorld(t, `
record() { $WISBOX run --egress record "$@" 2>&1 >/dev/null | grep recorded; }
record -- python3 -c "$FETCH" https://www.example.com/
record --deny api.example.com -- sh -c 'python3 -c "$1" http://www.example.com/; python3 -c "$1" https://api.example.com/' sh "$FETCH"
record -- true
$WISBOX run --allow www.example.com:443 -- python3 -c "$FETCH" https://www.example.com/locked
$WISBOX run --allow www.example.com:443 -- python3 -c "$FETCH" http://www.example.com/ 2>&1 | grep -o "the rules allow only its ports 443"
$WISBOX run --json --egress record -- python3 -c "$FETCH" https://api.example.com/ 2>&1 >/dev/null
$WISBOX session create box --egress record >/dev/null
$WISBOX exec box -- python3 -c "$FETCH" https://www.example.com/kept
$WISBOX session egress box | grep -e ^recorded -e while
for i in $(seq 600); do grep -qs www.example.com $WISBOX_CACHE/sessions/box/egress.json && break; sleep 0.1; done # at the connection's end
before=$($WISBOX session egress --json box | grep -o '"in": *[0-9]*')
killed=; for f in /proc/[0-9]*; do if tr '\0' ' ' <$f/cmdline 2>/dev/null | grep -q "^$WISBOX .*__hold box"; then kill -9 ${f#/proc/} && killed=killed; fi; done; echo $killed
$WISBOX session egress box | grep ^recorded
test "$before" = "$($WISBOX session egress --json box | grep -o '"in": *[0-9]*')" && echo "$before" | grep -o '"in"'
$WISBOX exec box -- python3 -c "$FETCH" http://api.example.com/again
$WISBOX session egress box | grep ^recorded
$WISBOX session rm box
`)
	assert.Equal(t, `wisbox: recorded: --allow www.example.com:443
wisbox: recorded: --allow www.example.com:80
wisbox: recorded: there were no connections, so no --allow is needed
www.example.com /locked auth=
the rules allow only its ports 443
{"recorded":["api.example.com:443"]}
www.example.com /kept auth=
allow      public (while it is recorded)
recorded: --allow www.example.com:443
killed
recorded: --allow www.example.com:443
"in"
api.example.com /again auth=
recorded: --allow api.example.com:80 --allow www.example.com:443
box
`, out)
}

// TestEgressKeepsAnInjectedSecretOutside: the secret is in the outgoing request, in no file of the sandbox, and
// redacted in the answer.
func TestEgressKeepsAnInjectedSecretOutside(t *testing.T) {
	hosttest.Slow(t)
	out := inWorld(t, `
start() { $WISBOX run --secret TOK=$DIR/token --allow api.example.com --inject "api.example.com:Authorization=Bearer TOK,methods=GET,path=/v1/,env=API_KEY" -- "$@"; }
start sh -c 'ls -A /run/secrets; echo $API_KEY; grep -rs s3cret- /run/secrets /proc/self/environ; echo searched'
start python3 -c "$FETCH" https://api.example.com/v1/x
start python3 -c "$FETCH" https://api.example.com/v2/x 2>&1 | grep denied || true
start python3 -c "$FETCH" http://api.example.com/v1/x 2>&1 | tail -n 1
`)
	lines := strings.Split(out, "\n")
	assert.Equal(t, []string{
		"wisbox-apt.conf", "wisbox-ca.pem", "wisbox-wgetrc", "wisbox-placeholder-TOK", "searched",
		"api.example.com /v1/x auth=Bearer " + strings.Repeat("*", len(secretValue)),
	}, lines[:6])
	assert.Contains(t, lines[6], "GET /v2/x")
	assert.NotContains(t, lines[7], "Bearer")
	assert.NotContains(t, out, secretValue)
}
