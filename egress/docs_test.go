package egress

import (
	"os"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/egress/policy"
)

// limitRows has, for each field of Bounds, its default and its row of docs/network.md's table of limits: name, value
// and what happens to what exceeds it.
var limitRows = map[string]struct {
	value any
	row   string
}{
	"Conns":     {256, `\| connections of programs at a time \| 256 \| waits, with a line in the log \|`},
	"Accepts":   {256, `\| new connections of programs \| 256 a second, 256 at once \| waits, with a line in the log \|`},
	"Requests":  {500, `\| requests that the proxy reads \| 500 a second, 1,000 at once \| waits, with a line in the log \|`},
	"Dials":     {100, `\| new connections to servers \| 100 a second, 300 at once \| waits, with a line in the log; .*502 with the reason \|`},
	"Queue":     {30 * time.Second, `\| new connections to servers \| .* after 30 seconds it gets 502 with the reason \|`},
	"Headers":   {int64(32 << 20), `\| the headers of all requests and answers at a time \| 32 MiB of memory, .* \| 502 with the reason \|`},
	"Header":    {32 << 10, `\| the headers of a request or an answer, a TLS hello \| 32 KiB, .* \| 431, for an answer 502, or a reset; .* denial that says so \|`},
	"HeaderFor": {10 * time.Second, `\| the headers of a request or an answer, a TLS hello \| .*, 10 seconds \| .* denial that says so \|`},
	"Connect":   {5 * time.Second, `\| resolving a name and connecting \| 5 seconds \| 502 with the reason \|`},
	"Idle":      {5 * time.Minute, `\| a connection without a byte \| 5 minutes \| a reset, with a line in the log \|`},
	"Rate":      {int64(50_000_000), `\| bytes in both directions \| 50 MB a second \| waits, with a line in the log \|`},
	"In":        {int64(4 << 30), `\| bytes received, bytes sent \| 4 GiB, .* \| .* denial that says so \|`},
	"Out":       {int64(64 << 20), `\| bytes received, bytes sent \| .*, 64 MiB in all \| .* denial that says so \|`},
	"Queries":   {2000, `\| DNS queries \| 2,000 a second, 2,000 at once \| waits, with a line in the log \|`},
	"Names":     {1024, `\| names with an address of their own \| 1,024, .* \| gets SERVFAIL, with a line in the log \|`},
	"Lines":     {20, `\| lines about requests in the log \| 20 a second, 1,000 at once \| is counted in the next line \|`},
}

func TestTheDocsNameEveryLimit(t *testing.T) {
	page, err := os.ReadFile("../docs/network.md")
	require.NoError(t, err)
	defaults := reflect.ValueOf(Bounds{}.withDefaults())
	for i := range defaults.NumField() {
		name := defaults.Type().Field(i).Name
		want, ok := limitRows[name]
		if !assert.True(t, ok, "Bounds.%s has no row: add it to docs/network.md and here", name) {
			continue
		}
		assert.Equal(t, want.value, defaults.Field(i).Interface(), "the default of %s", name)
		assert.Regexp(t, `(?m)^`+want.row+`$`, string(page), name)
	}
	assert.Len(t, limitRows, defaults.NumField())
}

// trustVariables are the variables that name the file of certificates, with the word of docs/network.md's table that
// stands for their program.
var trustVariables = map[string]string{
	"SSL_CERT_FILE": "`SSL_CERT_FILE`", "REQUESTS_CA_BUNDLE": "requests", "PIP_CERT": "pip", "CURL_CA_BUNDLE": "curl",
	"GIT_SSL_CAINFO": "git", "NODE_EXTRA_CA_CERTS": "`NODE_EXTRA_CA_CERTS`", "npm_config_cafile": "npm",
	"CARGO_HTTP_CAINFO": "Cargo", "AWS_CA_BUNDLE": "AWS's tools", "DENO_CERT": "deno",
	"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": "gRPC's C core", "PERL_LWP_SSL_CA_FILE": "Perl's LWP",
	"SYSTEM_WGETRC": "wget (`SYSTEM_WGETRC`)", "APT_CONFIG": "apt (`APT_CONFIG`)",
}

func TestTheDocsNameHowProgramsTrustTheProxy(t *testing.T) {
	page, err := os.ReadFile("../docs/network.md")
	require.NoError(t, err)
	table := regexp.MustCompile(`(?s)\| by \| programs \|.*?\n\n`).FindString(string(page))
	require.NotEmpty(t, table)
	const file = "/run/secrets/wisbox-ca.pem"
	var set []string
	for name, value := range Variables("http://127.0.0.1:1", file, &policy.Policy{}) {
		if value == file {
			set = append(set, name)
		}
	}
	for _, f := range SettingsFiles(file) {
		set = append(set, f.Variable)
	}
	for _, name := range set {
		if assert.Contains(t, trustVariables, name, "add %s to docs/network.md's table and here", name) {
			assert.Contains(t, table, trustVariables[name])
		}
	}
	assert.Len(t, set, len(trustVariables))
	assert.Contains(t, string(page), "the `NO_PROXY` that wisbox sets (`"+noProxy+"`)")
}
