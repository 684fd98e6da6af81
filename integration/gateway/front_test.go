package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/wisbox/wisbox/internal/far"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// frontVariable names the kubeconfig of the API server that this program is a front of.
const frontVariable = "WISBOX_TEST_FRONT"

func TestMain(m *testing.M) {
	if path := os.Getenv(frontVariable); path != "" {
		if err := runFront(path); err != nil {
			log.Fatal(err)
		}
		return
	}
	os.Exit(m.Run())
}

// front passes requests to the API server and counts them. Nodes of kwok run nothing, so it
// answers each exec itself, with a stand-in for the wisbox of a Pod. It has a process of its own
// because tests measure the memory of theirs.
type front struct {
	api http.Handler

	mu   sync.Mutex
	seen seen
}

// seen counts the requests to a front.
type seen struct {
	Asked  map[string]int // requests by verb
	Relays int            // open now
}

func runFront(kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	f := &front{seen: seen{Asked: map[string]int{}}, api: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport, FlushInterval: -1,
		ErrorLog: log.New(io.Discard, "", 0), // of clients that leave
	}}
	server := httptest.NewServer(f)
	defer server.Close()
	fmt.Println(server.URL)
	_, err = io.Copy(io.Discard, os.Stdin) // until the test ends
	server.CloseClientConnections()
	return err
}

// startFront starts a front of the tests' API server and returns its URL.
func startFront(t *testing.T, kubeconfig string) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self) //nolint:gosec // this program
	cmd.Env, cmd.Stderr = append(os.Environ(), frontVariable+"="+kubeconfig), os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		assert.NoError(t, cmd.Wait())
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(address)
}

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	verb := r.Method
	switch {
	case r.URL.Path == "/seen":
		f.mu.Lock()
		defer f.mu.Unlock()
		_ = json.NewEncoder(w).Encode(f.seen)
		return
	case strings.HasSuffix(r.URL.Path, "/exec"):
		verb = "EXEC"
	case query.Get("watch") != "" && query.Get("fieldSelector") != "":
		verb = "WATCH one"
	case query.Get("watch") != "":
		verb = "WATCH all"
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/pods"):
		verb = "LIST"
	}
	f.count(func(s *seen) { s.Asked[verb]++ })
	if verb == "EXEC" {
		f.relay(w, r)
		return
	}
	f.api.ServeHTTP(w, r)
}

func (f *front) count(change func(*seen)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.seen)
}

// relay answers an exec like the holder of a Pod.
func (f *front) relay(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"v5.channel.k8s.io"}})
	if err != nil {
		return
	}
	ws.SetReadLimit(-1)
	f.count(func(s *seen) { s.Relays++ })
	defer f.count(func(s *seen) { s.Relays-- })
	hello := far.Hello{Version: "stand-in", Protocol: "1." + hold.Version}
	_ = far.Serve(context.Background(), &execStream{ws: ws}, hello, func(ctx context.Context, c net.Conn) { hold.ServeConn(ctx, c, standIn{}) })
}

// execStream is the stdin and stdout of an exec. The first byte of a message is the number of its
// stream.
type execStream struct {
	ws   *websocket.Conn
	left []byte
}

// Read implements io.Reader.
func (s *execStream) Read(p []byte) (int, error) {
	for len(s.left) == 0 {
		_, raw, err := s.ws.Read(context.Background())
		if err != nil || len(raw) == 0 {
			return 0, errors.Join(io.EOF, err)
		}
		s.left = raw[1:]
	}
	n := copy(p, s.left)
	s.left = s.left[n:]
	return n, nil
}

// Write implements io.Writer.
func (s *execStream) Write(p []byte) (int, error) {
	return len(p), s.ws.Write(context.Background(), websocket.MessageBinary, append([]byte{1}, p...))
}

// Close implements io.Closer.
func (s *execStream) Close() error { return s.ws.CloseNow() }

// standIn is the wisbox of a Pod: its session opens, and every program succeeds.
type standIn struct{}

// Do implements hold.Session.
func (standIn) Do(_ context.Context, req hold.Request, _ hold.Streams) (*hold.Answer, error) {
	var args struct {
		Name    string
		Options json.RawMessage
	}
	if err := json.Unmarshal(req.Args, &args); err != nil {
		return nil, err
	}
	var value any
	switch req.Op {
	case "open":
		value = map[string]any{"options": args.Options}
	case "attach":
		value = map[string]any{"options": map[string]any{"name": args.Name}}
	case "run":
		value = sandbox.Result{Status: sandbox.StatusExited}
	default:
		return nil, tool.Errorf(tool.Unsupported, "the stand-in has no operation %q", req.Op)
	}
	raw, err := json.Marshal(value)
	return &hold.Answer{Value: raw}, err
}

// Start implements hold.Session.
func (standIn) Start(context.Context, hold.Request, hold.Streams) (sandbox.Process, error) {
	return nil, tool.Errorf(tool.Unsupported, "the stand-in starts no program")
}

// Busy implements hold.Session.
func (standIn) Busy() bool { return true }

// Empty implements hold.Session.
func (standIn) Empty(context.Context) error { return nil }
