package far

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/tool"
)

// SSH reaches a machine by the user's own ssh, with its configuration, keys, agent and known hosts.
type SSH struct {
	user, host, port string
	wisbox           string // the path of the program there
}

// Parts of an address become arguments of ssh; the program's path goes to a shell of the other
// machine.
var (
	sshUser = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+-]*$`) })
	sshHost = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]*$`) })
	sshPath = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^/[A-Za-z0-9_./+-]+$`) })
)

// Parse parses an address: ssh://[USER@]HOST[:PORT][/PATH], where PATH is the path of wisbox there,
// or https://HOST[:PORT] of a `wisbox serve`.
func Parse(address string) (Way, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, tool.Errorf(tool.Invalid, "the address %q can't be read; write ssh://[USER@]HOST[:PORT][/PATH-OF-WISBOX] or %s", clip.Text(address), webForm).In("address")
	}
	switch u.Scheme {
	case "ssh":
		return parseSSH(u)
	case "https", "http":
		return parseWeb(u)
	}
	return nil, tool.Errorf(tool.Invalid, "the address %q must begin with ssh://, https:// or kube:, as in ssh://box.example.com", clip.Text(address)).In("address")
}

func parseSSH(u *url.URL) (*SSH, error) {
	s := &SSH{user: u.User.Username(), host: u.Hostname(), port: u.Port(), wisbox: cmp.Or(u.Path, "wisbox")}
	_, password := u.User.Password()
	switch {
	case password:
		return nil, tool.Errorf(tool.Invalid, "the address has a password; leave it out: ssh asks for it, or takes a key").In("address")
	case !sshHost().MatchString(s.host), s.user != "" && !sshUser().MatchString(s.user):
		return nil, tool.Errorf(tool.Invalid, "the user and the host of the address must be letters, digits and . _ -, as in ssh://me@box.example.com").In("address")
	case u.Path != "" && !sshPath().MatchString(u.Path):
		return nil, tool.Errorf(tool.Invalid, "the path of the address must be that of wisbox on the other machine, of letters, digits and . _ + - /, as in ssh://box/usr/local/bin/wisbox").In("address")
	case u.RawQuery != "" || u.Fragment != "" || u.Opaque != "":
		return nil, tool.Errorf(tool.Invalid, "the address has more than a host and a path; write ssh://[USER@]HOST[:PORT][/PATH-OF-WISBOX]").In("address")
	}
	return s, nil
}

// typed returns the arguments that a person would type after ssh.
func (s *SSH) typed() string {
	if s.port == "" {
		return s.String()
	}
	return "-p " + s.port + " " + s.String()
}

// String returns the user and the host.
func (s *SSH) String() string {
	if s.user == "" {
		return s.host
	}
	return s.user + "@" + s.host
}

// Place identifies the machine: a host may have several, by port.
func (s *SSH) Place() string {
	if s.port == "" {
		return s.String()
	}
	return s.String() + ":" + s.port
}

// Connect starts ssh. $WISBOX_SSH is the command with its options, default ssh.
func (s *SSH) Connect(context.Context) (io.ReadWriteCloser, error) {
	return start(append(strings.Fields(cmp.Or(os.Getenv("WISBOX_SSH"), "ssh")), s.Command()...))
}

// Command returns the arguments for ssh: options, the other machine and the command there.
func (s *SSH) Command() []string {
	argv := []string{"-T", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3"}
	if s.port != "" {
		argv = append(argv, "-p", s.port)
	}
	return append(argv, "--", s.String(), "exec "+s.wisbox+" __relay")
}

// process is a program whose input and output are the stream.
type process struct {
	io.Reader
	in     io.WriteCloser
	cmd    *exec.Cmd
	said   *opening
	ended  chan struct{} // closed once err is set
	err    error
	closes sync.Once
}

// endTime is the time that the program has to end after its input.
var endTime = patience.For(2 * time.Second)

func start(argv []string) (*process, error) {
	if _, err := exec.LookPath(argv[0]); err != nil {
		return nil, tool.Errorf(tool.Unavailable, "the program %q, which connects to the other machine, was not found on this one; install OpenSSH's client, or name another one in WISBOX_SSH", argv[0]).Because(err)
	}
	// A Ctrl-C of the terminal is meant for wisbox, which then reports over ssh that it ends.
	p := &process{cmd: exec.Command("/bin/sh", append([]string{"-c", `trap "" INT; exec "$@"`, "sh"}, argv...)...), said: &opening{}, ended: make(chan struct{})}
	p.cmd.Stderr, p.cmd.WaitDelay = p.said, endTime
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout, p.Reader = w, r
	p.in, err = p.cmd.StdinPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	_ = w.Close()
	if err != nil {
		_ = r.Close()
		return nil, tool.Errorf(tool.Unavailable, "ssh can't be started").Because(err)
	}
	go func() {
		defer close(p.ended)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// Write implements io.Writer.
func (p *process) Write(b []byte) (int, error) { return p.in.Write(b) }

// Close closes the input, then ends the program.
func (p *process) Close() error {
	p.closes.Do(func() {
		_ = p.in.Close()
		go func() {
			select {
			case <-p.ended:
			case <-time.After(endTime):
				_ = p.cmd.Process.Kill()
				<-p.ended
			}
			_ = p.Reader.(*os.File).Close()
		}()
	})
	return nil
}

// opening keeps the beginning of a program's error output.
type opening struct {
	mu   sync.Mutex
	text []byte
}

const maxSaid = 4 << 10 // bytes

// Write implements io.Writer.
func (o *opening) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p[:min(len(p), maxSaid-len(o.text))]...)
	return len(p), nil
}

// last returns the last line.
func (o *opening) last() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := bytes.TrimSpace(bytes.ReplaceAll(o.text, []byte("\r"), nil))
	return strings.ToValidUTF8(string(text[bytes.LastIndexByte(text, '\n')+1:]), "?")
}

// Exit codes of ssh and of the other machine's shell.
const (
	exitNoProgram = 127
	exitSSH       = 255
)

// Explain implements [Way].
func (s *SSH) Explain(stream io.ReadWriteCloser, err error) error {
	p, ok := stream.(*process)
	if !ok {
		return tool.Errorf(tool.Unavailable, "%s sent no greeting of wisbox", s).Because(err)
	}
	_ = p.Close()
	<-p.ended
	said, exited := p.said.last(), (*exec.ExitError)(nil)
	if !errors.As(p.err, &exited) {
		return tool.Errorf(tool.Unavailable, "the answer of %s isn't that of wisbox's relay; try: ssh %s %s version", s, s.typed(), s.wisbox).Because(err)
	}
	cause := fmt.Errorf("%w: %q", p.err, said)
	switch exited.ExitCode() {
	case exitSSH:
		return tool.Errorf(tool.Unavailable, "ssh doesn't reach %s: %s; try: ssh %s true", s, cmp.Or(said, "it gave no reason"), s.typed()).Because(cause)
	case exitNoProgram, exitNoProgram - 1:
		return tool.Errorf(tool.Unavailable, "wisbox was not found on %s as %q; install it there, or name its path in the address, as in ssh://%s/usr/local/bin/wisbox", s, s.wisbox, s).Because(cause)
	}
	return tool.Errorf(tool.Unavailable, "the wisbox on %s can't be a relay, and may be another version: %s; compare: ssh %s %s version", s, cmp.Or(said, "it gave no reason"), s.typed(), s.wisbox).Because(cause)
}
