package door_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/door"
	"github.com/wisbox/wisbox/sandbox"
)

func TestAProgramThatFoundNoNetworkIsRecognized(t *testing.T) {
	for output, want := range map[string]string{
		"curl: (6) Could not resolve host: pypi.org\n":                                                                                                          "pypi.org",
		"fatal: unable to access 'https://github.com/a/b/': Could not resolve host: github.com\n":                                                               "github.com",
		"ssh: Could not resolve hostname git.example.com: Temporary failure in name resolution\r\n":                                                             "git.example.com",
		"warning: spurious network error (3 tries remaining): [6] Couldn't resolve host name (Could not resolve host: index.crates.io)":                         "index.crates.io",
		"NameResolutionError(\"HTTPSConnection(host='pypi.org', port=443): Failed to resolve 'pypi.org' ([Errno -3] Temporary failure in name resolution)\")":   "pypi.org",
		"HTTPSConnectionPool(host='api.example.com', port=443): Max retries exceeded with url: / (Caused by X)":                                                 "api.example.com",
		"Err:1 http://deb.debian.org/debian trixie InRelease\n  Temporary failure resolving 'deb.debian.org'\n":                                                 "deb.debian.org",
		"npm error request to https://registry.npmjs.org/x failed, reason: getaddrinfo EAI_AGAIN registry.npmjs.org\n":                                          "registry.npmjs.org",
		"Error: getaddrinfo ENOTFOUND example.org\n    at GetAddrInfoReqWrap":                                                                                   "example.org",
		"Get \"https://proxy.golang.org/x/@v/list\": dial tcp: lookup proxy.golang.org on 127.0.0.1:53: read udp 127.0.0.1:4->127.0.0.1:53: connection refused": "proxy.golang.org",
		"dial tcp: lookup example.net: no such host":                                                                                                            "example.net",
		"wget: unable to resolve host address ‘example.com’\n":                                                                                                  "example.com",
		"wget: bad address 'example.com'\n":                                                                      "example.com",
		"java.net.UnknownHostException: repo.maven.apache.org\n":                                                 "repo.maven.apache.org",
		"curl: (7) Failed to connect to 192.0.2.7 port 80 after 0 ms: Could not connect to server\n":             "192.0.2.7",
		"Error: connect ENETUNREACH 192.0.2.7:80 - Local (0.0.0.0:0)\n":                                          "192.0.2.7",
		"dial tcp 192.0.2.7:443: connect: network is unreachable":                                                "192.0.2.7",
		"ping: example.com: Temporary failure in name resolution\n":                                              "example.com",
		"curl: (6) Could not resolve host: pypi.org\ncurl: (6) Could not resolve host: files.pythonhosted.org\n": "files.pythonhosted.org",
		"WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f>: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/six/": "pypi.org",
		"error: Request failed\n  Caused by: error sending request for url (https://pypi.org/simple/six/)\n  Caused by: dns error: failed to lookup address information":                                                                                             "pypi.org",
		"WARN GET https://registry.npmjs.org/is-odd error (EAI_AGAIN). Will retry":                             "registry.npmjs.org",
		"Could not reach host index.rubygems.org. Check your network":                                          "index.rubygems.org",
		"urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>\n":             "",
		"socket.gaierror: [Errno -2] Name or service not known\n":                                              "",
		"OSError: [Errno 101] Network is unreachable\n":                                                        "",
		"psql: error: could not translate host name \"db\" to address: Temporary failure in name resolution\n": "",
	} {
		host, failed := door.Unreached([]byte(output))
		assert.True(t, failed, output)
		assert.Equal(t, want, host, output)
	}
	for _, output := range []string{
		"", "make: *** [Makefile:3: test] Error 1\n", "FAILED test_network.py::test_host\n", "curl: (7) Failed to connect to localhost port 9 after 0 ms\n",
		"curl: (7) Failed to connect to 127.0.0.1 port 8000 after 0 ms", "Error: connect ECONNREFUSED 127.0.0.1:5432", "getaddrinfo ENOTFOUND localhost is not what it says\n",
		strings.Repeat("lookup ", 10_000),
	} {
		_, failed := door.Unreached([]byte(output))
		assert.False(t, failed, "%.100s", output)
	}
}

func TestTheHintNamesWhatOpensTheNetwork(t *testing.T) {
	for _, c := range [][3]string{
		{"pypi.org", "", "this session has no network; to allow PyPI: --allow python"},
		{"registry.npmjs.org", "box", "this session has no network; to allow the npm registry: wisbox allow box node"},
		{"github.com", "", "this session has no network; to allow GitHub and other hosts of git: --allow git"},
		{"storage.googleapis.com", "", "this session has no network; to allow storage.googleapis.com: --allow storage.googleapis.com"},
		{"example.com", "box", "this session has no network; to allow example.com: wisbox allow box example.com"},
		{"", "", "this session has no network; to allow a host: --allow HOST, or a preset such as --allow python"},
		{"db", "box", "this session has no network; to allow a host: wisbox allow box HOST, or a preset such as wisbox allow box python"},
		{"example.com;rm", "", "this session has no network; to allow a host: --allow HOST, or a preset such as --allow python"},
	} {
		assert.Equal(t, c[2], door.Hint(c[0], c[1]))
	}
}

func TestTheSessionsOwnVariablesComeBeforeThoseOfAClosedNetwork(t *testing.T) {
	for own, want := range map[string]bool{"": true, "npm_config_fetch_retries": false} {
		d, err := door.New(&door.Options{Own: map[string]string{own: "5"}})
		require.NoError(t, err)
		to := &said{}
		_, err = d.Closed(to).Run(t.Context(), sandbox.Cmd{Argv: []string{"npm"}, Env: []string{"A=b"}})
		require.NoError(t, err)
		assert.Equal(t, want, slices.Contains(to.cmd.Env, "npm_config_fetch_retries=0"), own)
		assert.Equal(t, "A=b", to.cmd.Env[len(to.cmd.Env)-1])
	}
}

// said is a Runner whose programs say something and fail.
type said struct {
	text string
	code int
	cmd  sandbox.Cmd
}

func (s *said) Run(_ context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	s.cmd = cmd
	if cmd.Stderr != nil {
		_, _ = io.WriteString(cmd.Stderr, s.text)
	}
	return sandbox.Result{Status: sandbox.StatusExited, ExitCode: s.code}, nil
}

func (s *said) Start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	res, err := s.Run(ctx, cmd)
	return ended{res: res}, err
}

type ended struct {
	sandbox.Process
	res sandbox.Result
}

func (e ended) Wait(context.Context) (sandbox.Result, error) { return e.res, nil }

func TestAFailedProgramHearsOfItsClosedNetwork(t *testing.T) {
	d, err := door.New(&door.Options{})
	require.NoError(t, err)
	const text = "curl: (6) Could not resolve host: pypi.org\n"
	for _, c := range []struct {
		text string
		code int
		want bool
	}{{text, 6, true}, {text, 0, false}, {"no\n", 1, false}, {strings.Repeat("x\n", 1<<16) + text, 6, true}, {text + strings.Repeat("x\n", 1<<16), 6, false}} {
		var out strings.Builder
		runner := d.Closed(&said{text: c.text, code: c.code})
		res, err := runner.Run(t.Context(), sandbox.Cmd{Argv: []string{"curl"}, Stderr: &out})
		require.NoError(t, err)
		p, err := runner.Start(t.Context(), sandbox.Cmd{Argv: []string{"curl"}, Stderr: io.Discard})
		require.NoError(t, err)
		later, err := p.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, c.text, out.String())
		for _, res := range []sandbox.Result{res, later} {
			if c.want {
				assert.Equal(t, []string{"this session has no network; to allow PyPI: --allow python"}, res.Notices)
			} else {
				assert.Empty(t, res.Notices)
			}
		}
	}
}
