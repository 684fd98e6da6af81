package door

import (
	"context"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/wisbox/wisbox/egress/policy"
	"github.com/wisbox/wisbox/sandbox"
)

// closedEnv are variables that make package managers give up at once in a session without a network,
// in place of repeating attempts for up to a minute. curl, git and go do so by themselves. pip names
// the cause only when it tries again.
var closedEnv = []string{"BUNDLE_RETRY=0", "CARGO_NET_RETRY=0", "PIP_RETRIES=1", "UV_HTTP_RETRIES=0", "YARN_HTTP_RETRY=0", "npm_config_fetch_retries=0"}

// Closed returns the Runner of a session without a network. Programs get closedEnv, except for the
// session's own variables. The result of one that failed to reach a host has a notice that says how to
// allow it.
func (d *Door) Closed(to sandbox.Runner) sandbox.Runner {
	return &closed{to, closedFor(d.opts.Own), d.opts.Session}
}

type closed struct {
	sandbox.Runner
	env     []string
	session string
}

// Unwrap is for [sandbox.As].
func (c *closed) Unwrap() sandbox.Runner { return c.Runner }

// Run implements sandbox.Runner.
func (c *closed) Run(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	ends := c.equip(&cmd)
	res, err := c.Runner.Run(ctx, cmd)
	return c.explain(res, ends), err
}

// Start implements sandbox.Runner.
func (c *closed) Start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	ends := c.equip(&cmd)
	p, err := c.Runner.Start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return sandbox.OnEnd(p, func(_ context.Context, res sandbox.Result, err error) (sandbox.Result, error) {
		if err != nil {
			return res, err
		}
		return c.explain(res, ends), nil
	}), nil
}

// equip adds to a program the variables, and to its outputs a memory of their ends. Interpreters of
// tools have none: their results are explained by the tools.
func (c *closed) equip(cmd *sandbox.Cmd) (ends []*ending) {
	cmd.Env = slices.Concat(c.env, cmd.Env)
	if cmd.Control != nil || cmd.Python != nil {
		return nil
	}
	for _, w := range []*io.Writer{&cmd.Stdout, &cmd.Stderr} {
		if *w != nil {
			end := &ending{Writer: *w}
			*w, ends = end, append(ends, end)
		}
	}
	return ends
}

// explain adds the notice to the result of a failed program.
func (c *closed) explain(res sandbox.Result, ends []*ending) sandbox.Result {
	if res.ExitCode == 0 || len(ends) == 0 {
		return res
	}
	output := slices.Concat(res.Stdout.Tail, []byte("\n"), res.Stderr.Tail)
	for _, end := range ends {
		output = slices.Concat(output, []byte("\n"), end.last())
	}
	if hint := explain(output, c.session); hint != "" {
		res.Notices = append(slices.Clip(res.Notices), hint)
	}
	return res
}

// ending remembers the end of an output.
type ending struct {
	io.Writer
	mu   sync.Mutex
	kept []byte
}

const keptEnd = 4 << 10 // bytes

// Write implements io.Writer.
func (e *ending) Write(p []byte) (int, error) {
	e.mu.Lock()
	if len(p) >= keptEnd {
		e.kept = append(e.kept[:0], p[len(p)-keptEnd:]...)
	} else if e.kept = append(e.kept, p...); len(e.kept) > 2*keptEnd {
		e.kept = append(e.kept[:0], e.kept[len(e.kept)-keptEnd:]...)
	}
	e.mu.Unlock()
	return e.Writer.Write(p)
}

func (e *ending) last() []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.kept)
}

// closedFor returns closedEnv without the session's own variables.
func closedFor(own map[string]string) []string {
	return slices.DeleteFunc(slices.Clone(closedEnv), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		_, given := own[name]
		return given
	})
}

const host = `([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\d+(?:\.\d+){3})`

// unreached are messages of programs and libraries that name the host which they couldn't reach.
var unreached = sync.OnceValue(func() (all []*regexp.Regexp) {
	for _, text := range []string{
		`(?i)could not resolve host(?:name)?:? ['"‘]?` + host,                      // curl, git, cargo, ssh
		`(?i)(?:failed to resolve|failure resolving|failed to lookup) ['"]` + host, // urllib3, apt
		`getaddrinfo (?:EAI_AGAIN|ENOTFOUND) ` + host,                              // Node.js
		`\blookup ` + host + `(?: on \S+)?: `,                                      // Go
		`unable to resolve host address ['"‘’“]` + host,                            // wget
		`bad address '` + host + `'`,                                               // busybox
		`UnknownHostException: ` + host,                                            // Java
		`Connection(?:Pool)?\(host='` + host + `', port=\d+\)`,                     // requests, pip
		`error sending request for url \(https?://` + host,                         // uv and other programs of reqwest
		`https?://` + host + `\S* error \((?:EAI_AGAIN|ENOTFOUND)\)`,               // pnpm
		`(?i)could not reach host ` + host,                                         // bundler
		`Failed to connect to ` + host + ` port \d+`,                               // curl
		`connect (?:ENETUNREACH|EHOSTUNREACH) ` + host,                             // Node.js
		`dial (?:tcp|udp)[46]? ` + host + `:\d+: connect: network is unreachable`,  // Go
		`(?m)^(?:ping|ssh|nc|telnet): (?:connect to host )?` + host + `[: ].*(?:[Nn]ame|[Uu]nreachable)`,
	} {
		all = append(all, regexp.MustCompile(text))
	}
	return all
})

// noNetwork are messages without a host.
var noNetwork = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)temporary failure in name resolution|name or service not known|no address associated with hostname|` +
		`failed to lookup address information|nodename nor servname|name does not resolve|\bEAI_AGAIN\b|\bENETUNREACH\b|network is unreachable`)
})

// Explain returns the notice for the output of a failed program, "" if it shows no sign of a missing
// network.
func (d *Door) Explain(output []byte) string { return explain(output, d.opts.Session) }

func explain(output []byte, session string) string {
	name, failed := Unreached(output)
	if !failed {
		return ""
	}
	return Hint(name, session)
}

// ofPip is the message of pip's versions that name no host.
var ofPip = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`name resolution'\)': /simple/`) })

// Unreached reports whether the last output of a program shows that it failed to reach another host,
// and which, "" if that is unknown.
func Unreached(output []byte) (name string, failed bool) {
	last := -1
	for _, re := range unreached() {
		for _, at := range re.FindAllSubmatchIndex(output, -1) {
			found := string(output[at[2]:at[3]])
			if at[0] > last && !isOwn(found) {
				last, name = at[0], strings.ToLower(found)
			}
		}
	}
	failed = last >= 0 || noNetwork().Match(output)
	if failed && name == "" && ofPip().Match(output) {
		name = "pypi.org"
	}
	return name, failed
}

// isOwn reports whether a name or an address is the sandbox itself, which programs reach.
func isOwn(name string) bool {
	if ip := net.ParseIP(name); ip != nil {
		return ip.IsLoopback() || ip.IsUnspecified()
	}
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// called are the registries that presets allow, by their presets.
var called = map[string]string{"python": "PyPI", "node": "the npm registry", "debian": "Debian's mirrors", "git": "GitHub and other hosts of git", "go": "Go modules", "rust": "crates.io"}

// Hint returns what a program that failed to reach a host needs to hear in a session without a network.
// session is the name for the command that allows the host; "" names the flag.
func Hint(name, session string) string {
	how := func(rule string) string {
		if session == "" {
			return "--allow " + rule
		}
		return "wisbox allow " + session + " " + rule
	}
	_, wrong := policy.Parse(policy.Settings{Allow: []string{name}})
	switch preset := policy.PresetOf(name); {
	case wrong != nil: // or unknown
		return sandbox.NoNetwork + "; to allow a host: " + how("HOST") + ", or a preset such as " + how("python")
	case preset != "":
		return sandbox.NoNetwork + "; to allow " + called[preset] + ": " + how(preset)
	}
	return sandbox.NoNetwork + "; to allow " + name + ": " + how(name)
}
