package integration

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
)

func TestAProgramIsUser1000WithoutAnyCapability(t *testing.T) {
	s := open(t, nil)
	assert.Equal(t, "1000\n1000\n", output(t, s, "id -u; id -G"))
	status := output(t, s, "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status")
	for line := range strings.SplitSeq(strings.TrimSpace(status), "\n") {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case strings.HasPrefix(name, "Cap"):
			assert.Equal(t, strings.Repeat("0", 16), value, name)
		case name == "NoNewPrivs":
			assert.Equal(t, "1", value)
		case name == "Seccomp":
			assert.Equal(t, "2", value)
		}
	}
}

func TestTheRootIsReadOnlyAndTheWorkspaceIsNot(t *testing.T) {
	s := open(t, nil)
	a := script(t, s, "touch /x; touch /etc/x; touch /usr/bin/x; touch /workspace/ok /tmp/ok && echo fine")
	assert.Equal(t, "fine\n", a.str("stdout"))
	assert.Equal(t, 3, strings.Count(strings.ToLower(a.str("stderr")), "read-only"), "%v", a)
	mounts := output(t, s, "grep ' /workspace ' /proc/self/mountinfo")
	assert.Contains(t, mounts, "nosuid")
	assert.Contains(t, mounts, "nodev")
}

func TestThereIsNoNetwork(t *testing.T) {
	s := open(t, nil)
	out := output(t, s, `ls /sys/class/net 2>/dev/null | tr '\n' ' '; python3 -c "
import socket
for host, port in (('1.1.1.1', 53), ('169.254.169.254', 80), ('10.88.0.1', 22)):
    try:
        socket.create_connection((host, port), 2); print('open', host)
    except OSError: pass
try:
    socket.getaddrinfo('host.containers.internal', 80); print('resolves')
except OSError: pass
print('closed')"`)
	assert.Regexp(t, `^(lo )?closed\n$`, out)
}

func TestNothingOfTheHostsEnvironmentReachesAProgram(t *testing.T) {
	t.Setenv("SECRET_TOKEN", "token-of-the-host")
	t.Setenv("http_proxy", "http://user:password@proxy.example:3128")
	s := open(t, &wisbox.SessionOptions{Env: map[string]string{"GIVEN": "yes"}})
	vars := output(t, s, "env | sort; cat /proc/1/environ 2>/dev/null | tr '\\0' '\\n'; cat /etc/resolv.conf /etc/hosts 2>/dev/null; hostname")
	assert.Contains(t, vars, "GIVEN=yes")
	assert.Contains(t, vars, "HOME="+sandbox.Home)
	assert.Contains(t, vars, "LANG=C.UTF-8")
	host, err := os.Hostname()
	require.NoError(t, err)
	for _, leak := range []string{"token-of-the-host", "proxy.example", "nameserver", "host.containers.internal"} {
		assert.NotContains(t, vars, leak)
	}
	assert.NotEqual(t, host, strings.TrimSpace(output(t, s, "hostname")))
}

// TestASessionKnowsItsOwnNames: localhost and its host name, which is the name that somebody gave the session.
func TestASessionKnowsItsOwnNames(t *testing.T) {
	given := "named-" + strings.ToLower(rand.Text()[:8])
	for name, host := range map[string]string{given: given, "": "wisbox"} {
		s := open(t, &wisbox.SessionOptions{Name: name})
		out := output(t, s, `hostname; python3 -c "
import http.server, socket, threading, urllib.request
assert socket.gethostbyname(socket.gethostname()) == '127.0.0.1'
assert {a[4][0] for a in socket.getaddrinfo('localhost', 80)} == {'127.0.0.1', '::1'}
server = http.server.HTTPServer(('localhost', 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
for host in 'localhost', socket.gethostname():
    print(urllib.request.urlopen('http://%s:%d/' % (host, server.server_port)).status)
" 2>/dev/null`)
		assert.Equal(t, host+"\n200\n200\n", out)
	}
}

func TestBothSidesEditEachOthersFiles(t *testing.T) {
	s := open(t, nil)
	call(t, s, "write_file", args{"file_path": "made/by/tool.txt", "content": "tool\n"})
	output(t, s, "echo program >> made/by/tool.txt && mkdir made/dir && echo program > made/by/program.txt && chmod 600 made/by/program.txt && umask 077 && mkdir -p closed && echo deep > closed/deep")
	assert.Equal(t, "tool\nprogram\n", call(t, s, "read_file", args{"file_path": "made/by/tool.txt"}).str("content"))
	call(t, s, "edit_file", args{"file_path": "made/by/program.txt", "old_string": "program", "new_string": "both"})
	call(t, s, "edit_file", args{"file_path": "closed/deep", "old_string": "deep", "new_string": "read"})
	assert.Equal(t, "both\nread\n", output(t, s, "cat made/by/program.txt closed/deep; echo more >> made/by/program.txt; rm -r made closed"))
	call(t, s, "write_file", args{"file_path": "a/b", "content": "x"})
	output(t, s, "rm -r a")
}

func TestProgramsOfOneSessionDontSeeAnother(t *testing.T) {
	a, b := open(t, nil), open(t, nil)
	output(t, a, "echo secret > mine; echo secret > /tmp/mine; echo secret > /dev/shm/mine")
	assert.Equal(t, "", output(t, b, "ls /workspace /tmp/mine /dev/shm/mine 2>/dev/null | grep mine || true"))
}

// TestProbes runs the denial probes, and the probes of permitted operations.
func TestProbes(t *testing.T) {
	s := open(t, nil)
	for _, file := range []string{"probes.py", "hardening/compat.py"} {
		t.Run(file, func(t *testing.T) {
			f, err := os.Open(filepath.Join(cases, file))
			require.NoError(t, err)
			defer f.Close()
			out := runWith(t, s, f, "python3", "-")
			for line := range strings.SplitSeq(out, "\n") {
				if !differsOnGVisor(line) {
					assert.NotRegexp(t, `^(FAIL|BROKEN)`, line)
				}
			}
			assert.Regexp(t, `(PASS|OK) `, out)
		})
	}
}

// gvisorProbes fail on gVisor: they reach its own kernel, or read a file in another format. docs/gvisor.md documents
// it.
var gvisorProbes = map[string]string{
	"P002": "no CapAmb in /proc/self/status",
	"P004": "no filter inside",
	"P011": "user namespaces are gVisor's", "P014": "likewise", "P015": "likewise",
	"P024": "key rings are gVisor's",
	"P037": "/dev/fuse and /dev/net/tun are gVisor's",
	"P086": "the groups that are shown are gVisor's",
	"P090": "priorities are gVisor's",
}

func differsOnGVisor(line string) bool {
	if env.isolation != sandbox.IsolationGVisor {
		return false
	}
	words := append(strings.Fields(line), "", "")
	_, differs := gvisorProbes[words[1]]
	return words[0] == "FAIL" && differs
}
