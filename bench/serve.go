package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/hosttest"
)

var serveTable = table{
	name: "serve", title: "What the server for E2B's SDKs costs",
	about: "Medians (and p99) against `wisbox serve` on the loopback interface, in a process of its own. The SDK is npm's `e2b` in Node.js, which times itself; it sends `bash -l -c true`, " +
		"as the base does on a session of this process. What is created is killed in between, and the next one waits until as many are ready as before.",
	parts: []func(*bench, context.Context) error{(*bench).throughTheSDK, (*bench).creating, (*bench).manySandboxes},
}

//go:embed serve.mjs
var sdkScript []byte

const (
	bashTrue   = `{"commands":["/bin/bash","-l","-c","true"]}`
	manyBoxes  = 50
	readyBoxes = 4
)

// e2bServer is a running `wisbox serve`, with a key for it.
type e2bServer struct {
	url, key string
	cmd      *exec.Cmd
	client   *http.Client
}

func (b *bench) wisbox(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.bin, args...)
	cmd.Env = append(os.Environ(), "WISBOX_CACHE="+b.root)
	return cmd
}

func (b *bench) serve(ctx context.Context, flags ...string) (*e2bServer, error) {
	key, err := b.wisbox(ctx, "serve", "key", "create", "--sandboxes", "1000", "--per-minute", "100000", "--metrics").Output()
	if err != nil {
		return nil, err
	}
	s := &e2bServer{key: strings.TrimSpace(string(key)), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}}
	s.cmd = b.wisbox(ctx, append([]string{"serve", "--listen", "127.0.0.1:0"}, flags...)...)
	pipe, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	log := bufio.NewReader(pipe)
	for s.url == "" {
		line, err := log.ReadString('\n')
		if err != nil {
			s.stop()
			return nil, err
		}
		_, after, _ := strings.Cut(line, "serving on ")
		s.url = strings.TrimSpace(after)
	}
	go func() { _, _ = io.Copy(io.Discard, log) }()
	return s, nil
}

// stop ends the server with a signal.
func (s *e2bServer) stop() {
	s.client.CloseIdleConnections()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait()
}

// e2bBox is a sandbox with the access token of its API.
type e2bBox struct{ SandboxID, EnvdAccessToken string }

func (s *e2bServer) ask(ctx context.Context, method, path, body string, header map[string]string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("X-API-KEY", s.key)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	res, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %d %s", method, path, res.StatusCode, raw)
	}
	return raw, err
}

func (s *e2bServer) create(ctx context.Context) (made e2bBox, err error) {
	raw, err := s.ask(ctx, http.MethodPost, "/v2/sandboxes", `{"timeout":3600}`, nil)
	if err == nil {
		err = json.Unmarshal(raw, &made)
	}
	return made, err
}

func (s *e2bServer) kill(ctx context.Context, b e2bBox) error {
	_, err := s.ask(ctx, http.MethodDelete, "/sandboxes/"+b.SandboxID, "", nil)
	return err
}

// bash sends the request of the SDK's commands.run("true"), and reads the answer to its end.
func (s *e2bServer) bash(ctx context.Context, b e2bBox) error {
	const message = `{"process":{"cmd":"/bin/bash","args":["-l","-c","true"]}}`
	answer, err := s.ask(ctx, http.MethodPost, "/process.Process/Start", "\x00\x00\x00\x00"+string(rune(len(message)))+message, map[string]string{
		"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1", "X-Access-Token": b.EnvdAccessToken,
		"E2b-Sandbox-Id": b.SandboxID, "E2b-Sandbox-Port": "49983",
	})
	if err == nil && !bytes.Contains(answer, []byte(`"status":"exit status 0"`)) {
		err = fmt.Errorf("it ended so: %q", answer)
	}
	return err
}

// awaitReady waits until that many sandboxes are ready.
func (s *e2bServer) awaitReady(ctx context.Context, n int) error {
	for {
		raw, err := s.ask(ctx, http.MethodGet, "/metrics", "", nil)
		if err != nil || bytes.Contains(raw, fmt.Appendf(nil, "wisbox_serve_sandboxes{state=\"ready\"} %d", n)) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// nodeClient is the SDK in Node.js.
type nodeClient struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	at  string // the script
}

func (s *e2bServer) node(ctx context.Context) (*nodeClient, error) {
	modules, err := hosttest.InstallNode(ctx, "integration/serve/testdata/package.json")
	if err != nil {
		return nil, err
	}
	n := &nodeClient{at: filepath.Join(filepath.Dir(modules), fmt.Sprintf("bench-%d.mjs", os.Getpid()))} // where node finds the packages
	if err := os.WriteFile(n.at, sdkScript, 0o600); err != nil {
		return nil, err
	}
	n.cmd = exec.CommandContext(ctx, filepath.Join(modules, "node/bin/node"), n.at)
	n.cmd.Env = append(os.Environ(), "E2B_API_URL="+s.url, "E2B_SANDBOX_URL="+s.url, "E2B_API_KEY="+s.key)
	n.cmd.Stderr = os.Stderr
	if n.in, err = n.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	n.out = bufio.NewReader(out)
	return n, n.cmd.Start()
}

// do makes the SDK do something, and returns the time measured there.
func (n *nodeClient) do(what string) (time.Duration, error) {
	if _, err := io.WriteString(n.in, what+"\n"); err != nil {
		return 0, err
	}
	line, err := n.out.ReadString('\n')
	if err != nil {
		return 0, err
	}
	took, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		return 0, errors.New(what + " " + line)
	}
	return time.Duration(took), nil
}

func (n *nodeClient) close() {
	_ = n.in.Close()
	_ = n.cmd.Wait()
	_ = os.Remove(n.at)
}

// noteLoad reports the machine's load beforehand: the measurements wait for several processes.
func (b *bench) noteLoad() {
	if average, err := os.ReadFile("/proc/loadavg"); err == nil {
		f := strings.Fields(string(average))
		b.notes = append(b.notes, fmt.Sprintf("The machine's load before: %s, of the last minute, %s of five (beside other work where it is above 1)", f[0], f[1]))
	}
}

// throughTheSDK measures one short command through E2B's SDK, and by HTTP alone.
func (b *bench) throughTheSDK(ctx context.Context) error {
	b.noteLoad()
	server, err := b.serve(ctx)
	if err != nil {
		return err
	}
	defer server.stop()
	made, err := server.create(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = server.kill(ctx, made) }()
	node, err := server.node(ctx)
	if err != nil {
		return err
	}
	defer node.close()
	if _, err := node.do("connect " + made.SandboxID); err != nil {
		return err
	}
	s, err := b.open(ctx, &wisbox.SessionOptions{UserHome: true})
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	var inNode samples
	base := func() error { return tool(ctx, s, "shell_execute", bashTrue) }
	_, direct, err := alternate(b.n, func() error {
		took, err := node.do("run")
		inNode = append(inNode, took)
		return err
	}, base)
	if err != nil {
		return err
	}
	inNode = inNode[len(inNode)-b.n:] // without the warm-up calls
	b.add(unpromised("`commands.run(\"true\")` by E2B's SDK in Node.js", "`Session.Call` of `bash -l -c true`", inNode, direct))
	ours, direct, err := alternate(b.n, func() error { return server.bash(ctx, made) }, base)
	if err != nil {
		return err
	}
	b.add(unpromised("the same request and its answer, from Go", "the same", ours, direct))
	return nil
}

// creating measures the creation of a sandbox from the ready ones, and without these.
func (b *bench) creating(ctx context.Context) error {
	cold, err := b.created(ctx, 0)
	if err != nil {
		return err
	}
	warm, err := b.created(ctx, readyBoxes)
	if err != nil {
		return err
	}
	const most = 25 * time.Millisecond
	b.add(row{
		what: "create, one that is ready (`--ready 4`), at the server", baseName: "one that is made then", ours: warm[0], base: cold[0],
		ratio: float64(warm[0].Median()) / float64(cold[0].Median()), bar: "≤ 25 ms", met: warm[0].Median() <= most,
	}, unpromised("`Sandbox.create()` and `kill()` by the SDK in Node.js, one that is ready", "one that is made then", warm[1], cold[1]))
	b.notes = append(b.notes, "What others publish of theirs, on their machines and measured by them: E2B starts a sandbox in \"~150ms\" (https://e2b.dev/docs, its source at github.com/e2b-dev/docs), "+
		"Daytona is \"under 90ms from code to execution\" (https://www.daytona.io/docs). Both are services behind a network; neither was measured here.")
	return nil
}

// created returns the durations of creations: at the server, and through the SDK including the
// kill.
func (b *bench) created(ctx context.Context, ready int) (took [2]samples, err error) {
	server, err := b.serve(ctx, "--ready", strconv.Itoa(ready))
	if err != nil {
		return took, err
	}
	defer server.stop()
	node, err := server.node(ctx)
	if err != nil {
		return took, err
	}
	defer node.close()
	for range b.few() + 1 {
		if err := server.awaitReady(ctx, ready); err != nil {
			return took, err
		}
		began := time.Now()
		made, err := server.create(ctx)
		if err != nil {
			return took, err
		}
		took[0] = append(took[0], time.Since(began))
		if err := errors.Join(server.kill(ctx, made), server.awaitReady(ctx, ready)); err != nil {
			return took, err
		}
		sdk, err := node.do("create")
		if err != nil {
			return took, err
		}
		took[1] = append(took[1], sdk)
	}
	took[0], took[1] = took[0][1:], took[1][1:] // the first ones warm up
	return took, nil
}

// hostBash runs the same command on the host, without the user's profile.
func hostBash(int) error {
	cmd := exec.Command("/bin/bash", "-l", "-c", "true")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent"}
	return cmd.Run()
}

// manySandboxes measures the rate of commands in many sandboxes at once.
func (b *bench) manySandboxes(ctx context.Context) error {
	server, err := b.serve(ctx)
	if err != nil {
		return err
	}
	defer server.stop()
	boxes := make([]e2bBox, manyBoxes)
	var making errgroup.Group
	making.SetLimit(4)
	for i := range boxes {
		making.Go(func() (err error) {
			boxes[i], err = server.create(ctx)
			return err
		})
	}
	defer func() {
		for _, made := range boxes {
			_ = server.kill(ctx, made)
		}
	}()
	if err := making.Wait(); err != nil {
		return err
	}
	calls := 20 * b.n
	var ours, host crowd
	ours.add(calls, func(i int) error { return server.bash(ctx, boxes[i%len(boxes)]) })
	host.add(calls, hostBash)
	b.notes = append(b.notes,
		fmt.Sprintf("%d sandboxes, %d commands from %d callers: %d errors (0 must be: %s), median %.1f ms, p99 %.1f ms, %.0f commands a second (500 are asked for: %s)",
			manyBoxes, calls, callers, ours.errs, met(ours.errs == 0), ms(ours.took.Median()), ms(ours.took.At(0.99)), ours.rate(), met(ours.rate() >= 500)),
		fmt.Sprintf("as many `bash -l -c true` on the host, without any server or sandbox, from %d goroutines: median %.1f ms, p99 %.1f ms, %.0f a second; our rate is %.2f of it",
			callers, ms(host.took.Median()), ms(host.took.At(0.99)), host.rate(), ours.rate()/host.rate()))
	return nil
}
