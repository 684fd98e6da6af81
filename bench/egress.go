package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/wisbox/wisbox/egress"
	"github.com/wisbox/wisbox/egress/policy"
	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/sandbox"
)

var egressTable = table{
	name: "egress", title: "What allowed hosts cost",
	about: "One server on the host's loopback, and one client, a Go program, that asks it in turn from inside a sandbox by its proxy, from the host by the same proxy " +
		"on loopback, and from the host without a proxy. The proxy's bound of 50 MB/s is lifted for this. The clients on the host are at nice 10, as programs of a sandbox are. The client takes the times, so no start of a program is among them.",
	parts: []func(*bench, context.Context) error{(*bench).egress},
}

const (
	egressName = "bench.example.com"
	egressSize = 256 << 20 // bytes of a download
	clientRole = "egress-client"
)

// way is how the client connects to the server.
type way struct {
	what string
	ask  func(ctx context.Context, kind string, n int) (samples, error)
}

func (b *bench) egress(ctx context.Context) error {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer server.Close()
	go func() { _ = http.Serve(server, http.HandlerFunc(egressServer)) }() //nolint:gosec // it ends with the bench
	sb, dir, err := b.egressBox(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = b.m.Backend().Remove(context.WithoutCancel(ctx), "egress") }()
	networker, ok := sandbox.As[sandbox.Networker](sb)
	if !ok {
		return errors.New("the sandbox has no network of its own")
	}
	proxy, err := openProxy(server.Addr().String())
	if err != nil {
		return err
	}
	defer proxy.Close()
	inside, err := networker.Listen(ctx, netip.MustParseAddrPort("127.0.0.1:3128"))
	if err != nil {
		return err
	}
	outside, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	for _, l := range []net.Listener{inside, outside} {
		go func() { _ = proxy.Serve(l) }()
	}
	self := filepath.Join(dir, "client")
	return b.compareWays(ctx,
		way{"sandbox", func(ctx context.Context, kind string, n int) (samples, error) {
			var out bytes.Buffer
			res, err := sb.Run(ctx, sandbox.Cmd{Argv: []string{"/workspace/client", clientRole, kind, "127.0.0.1:3128", strconv.Itoa(n)}, Stdout: &out, Stderr: os.Stderr})
			if err != nil || res.ExitCode != 0 {
				return nil, errors.Join(err, fmt.Errorf("the client in the sandbox: %+v", res))
			}
			return readSamples(&out)
		}},
		way{"proxy", hostClient(self, outside.Addr().String())}, way{"straight", hostClient(self, "straight:"+server.Addr().String())})
}

// compareWays adds the rows, alternating between the ways.
func (b *bench) compareWays(ctx context.Context, ours, proxied, straight way) error {
	measure := func(kind string, rounds, n int) (took map[string]samples, err error) {
		took = map[string]samples{}
		for range rounds {
			for _, w := range []way{ours, proxied, straight} {
				some, err := w.ask(ctx, kind, n)
				if err != nil {
					return nil, err
				}
				took[w.what] = append(took[w.what], some...)
			}
		}
		return took, nil
	}
	for _, kind := range []string{"tunnel", "http"} {
		took, err := measure(kind, max(3, b.n/20), 1)
		if err != nil {
			return err
		}
		mb := func(s samples) float64 { return egressSize / 1e6 / s.Median().Seconds() }
		a, c := took[ours.what], took[proxied.what]
		rate := mb(a) / mb(c)
		b.add(row{
			what: fmt.Sprintf("256 MiB by %s: %.0f MB/s", map[string]string{"tunnel": "a tunnel", "http": "an http:// request"}[kind], mb(a)), ours: a, base: c,
			baseName: fmt.Sprintf("the same proxy on the host's loopback: %.0f MB/s (without a proxy %.0f)", mb(c), mb(took[straight.what])),
			ratio:    1 / rate, bar: "rate ≥ 0.4 of the base's", met: rate >= 0.4,
		})
		b.notes = append(b.notes, fmt.Sprintf("256 MiB by %s: the rate is %.2f of that of the same proxy on the host's loopback", kind, rate))
	}
	for _, kind := range []string{"tunnel", "http"} {
		took, err := measure("kept-"+kind, 10, b.n)
		if err != nil {
			return err
		}
		a, c := took[ours.what], took[straight.what]
		added := a.Median() - c.Median()
		b.add(row{
			what: fmt.Sprintf("a small request on a kept connection, %s: %.2f ms are added", kind, ms(added)), ours: a, base: c, baseName: "without a proxy, on the host",
			ratio: float64(a.Median()) / float64(c.Median()), bar: "added ≤ 0.5 ms", met: added <= 500*time.Microsecond,
		})
		b.add(unpromised("the same", "the same proxy on the host's loopback", a, took[proxied.what]))
	}
	took, err := measure("new", 10, max(1, b.n/10))
	if err != nil {
		return err
	}
	b.add(unpromised("a new connection and a small request, tunnel", "the same proxy on the host's loopback", took[ours.what], took[proxied.what]))
	return nil
}

// egressBox returns a sandbox with this program in its workspace.
func (b *bench) egressBox(ctx context.Context) (sandbox.Sandbox, string, error) {
	dir := filepath.Join(filepath.Dir(b.root), "egress")
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	owner, err := b.m.Backend().Owner(ctx)
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	if err == nil {
		err = exec.Command("cp", self, filepath.Join(dir, "client")).Run()
	}
	if err == nil {
		err = os.Chown(dir, owner.UID, owner.GID)
	}
	if err != nil {
		return nil, "", err
	}
	sb, err := b.m.Backend().Create(ctx, sandbox.Spec{ID: "egress", Image: images.Default, Workspace: dir, LowPorts: true})
	return sb, dir, err
}

// openProxy returns a proxy that allows one name, the server's.
func openProxy(server string) (*egress.Proxy, error) {
	rules, err := policy.Parse(policy.Settings{Allow: []string{"tcp:" + egressName + ":22", egressName + ":80"}})
	if err != nil {
		return nil, err
	}
	const unbounded = 1 << 40
	return egress.New(&egress.Options{
		Policy: rules, Resolver: oneName{}, Dialer: oneServer(server),
		Bounds: egress.Bounds{Rate: unbounded, In: unbounded, Out: unbounded, Dials: 100_000, Accepts: 100_000, Requests: 1_000_000},
	})
}

type oneName struct{}

func (oneName) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
}

type oneServer string

func (s oneServer) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, string(s))
}

func egressServer(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/small" {
		_, _ = io.WriteString(w, "x")
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(egressSize))
	part := make([]byte, 256<<10)
	for range egressSize / len(part) {
		if _, err := w.Write(part); err != nil {
			return
		}
	}
}

func hostClient(self, target string) func(context.Context, string, int) (samples, error) {
	return func(ctx context.Context, kind string, n int) (samples, error) {
		cmd := exec.CommandContext(ctx, "nice", "-n", "10", self, clientRole, kind, target, strconv.Itoa(n))
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("the client on the host: %w", err)
		}
		return readSamples(bytes.NewReader(out))
	}
}

func readSamples(r io.Reader) (all samples, err error) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		ns, err := strconv.ParseInt(lines.Text(), 10, 64)
		if err != nil {
			return nil, err
		}
		all = append(all, time.Duration(ns))
	}
	return all, nil
}

// egressClient is the client: it prints the nanoseconds of each of n requests.
func egressClient(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: KIND ADDRESS N")
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	kind, kept := strings.CutPrefix(args[0], "kept-")
	const warm = 20
	c := &asker{to: args[1], plain: kind == "http", path: "/large"}
	if kept || kind == "new" {
		c.path = "/small"
	}
	if kept {
		if err := c.repeat(warm, func(time.Duration) {}); err != nil {
			return err
		}
	}
	print := func(took time.Duration) { fmt.Println(took.Nanoseconds()) }
	if kept {
		return c.repeat(n, print)
	}
	for range n {
		began := time.Now()
		if err := c.repeat(1, func(time.Duration) {}); err != nil {
			return err
		}
		print(time.Since(began))
		c.close()
	}
	return nil
}

// asker sends requests to the server over one connection.
type asker struct {
	to, path string
	plain    bool
	conn     net.Conn
	r        *bufio.Reader
}

func (a *asker) repeat(n int, took func(time.Duration)) error {
	for range n {
		began := time.Now()
		if err := a.ask(); err != nil {
			return err
		}
		took(time.Since(began))
	}
	return nil
}

func (a *asker) close() {
	_ = a.conn.Close()
	a.conn = nil
}

// connect connects to the server, through a proxy's tunnel if there is one.
func (a *asker) connect() (err error) {
	server, straight := strings.CutPrefix(a.to, "straight:")
	if a.conn, err = net.Dial("tcp", server); err != nil {
		return err
	}
	a.r = bufio.NewReaderSize(a.conn, 64<<10)
	if straight || a.plain {
		return nil
	}
	if _, err := io.WriteString(a.conn, "CONNECT "+egressName+":22 HTTP/1.1\r\nHost: "+egressName+":22\r\n\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(a.r, &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // the answer to CONNECT has none
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return err
}

func (a *asker) ask() error {
	if a.conn == nil {
		if err := a.connect(); err != nil {
			return err
		}
	}
	target := a.path
	if a.plain && !strings.HasPrefix(a.to, "straight:") {
		target = "http://" + egressName + a.path
	}
	if _, err := io.WriteString(a.conn, "GET "+target+" HTTP/1.1\r\nHost: "+egressName+"\r\n\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(a.r, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{resp.Body}, make([]byte, 256<<10))
	return err
}
