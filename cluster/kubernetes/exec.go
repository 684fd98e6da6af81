package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/tool"
)

// The exec protocol over a WebSocket: each message begins with the number of its stream.
const (
	execProtocol = "v5.channel.k8s.io"

	streamIn     = 0
	streamOut    = 1
	streamErr    = 2
	streamStatus = 3
)

const (
	pingEvery = 20 * time.Second // proxies close connections that are idle for about a minute
	chunk     = 64 << 10         // bytes per message
	maxSaid   = 4 << 10          // bytes kept of stderr, and the maximum size of a status
)

var (
	pingTime  = patience.For(30 * time.Second)
	writeTime = patience.For(60 * time.Second)
	endTime   = patience.For(2 * time.Second)
)

// relayCommand is the command that relays the session's protocol in its Pod.
var relayCommand = []string{binary, "__relay", "--pod"}

// Relay opens a stream to the wisbox of a Pod: the stdin and stdout of an exec in its holder.
// The stream outlives ctx.
func (p *Place) Relay(ctx context.Context, pod *Pod) (io.ReadWriteCloser, error) {
	now, err := p.Now(ctx, pod)
	if err != nil {
		return nil, err
	}
	return p.exec(ctx, now, holder, relayCommand)
}

func (p *Place) exec(ctx context.Context, pod *Pod, container string, command []string) (*stream, error) {
	where := p.client.Get().Namespace(p.namespace).Resource("pods").Name(object(pod).Name).SubResource("exec").VersionedParams(&corev1.PodExecOptions{
		Container: container, Command: command, Stdin: true, Stdout: true, Stderr: true,
	}, parameters).URL().String()
	ws, answer, err := websocket.Dial(ctx, where, &websocket.DialOptions{HTTPClient: p.upgrades, Subprotocols: []string{execProtocol}}) //nolint:bodyclose // the documentation of Dial: never close it
	if err != nil {
		return nil, p.errExec(ctx, pod, answer, err)
	}
	if ws.Subprotocol() != execProtocol {
		_ = ws.CloseNow()
		return nil, tool.Errorf(tool.Unsupported, "the API server of context %s is older than Kubernetes 1.30, which wisbox needs: it doesn't know the protocol %s of exec", p.context, execProtocol)
	}
	return newStream(ws), nil
}

// errExec returns the reason that an exec can't begin.
func (p *Place) errExec(ctx context.Context, pod *Pod, answer *http.Response, err error) error {
	if answer == nil || answer.StatusCode < http.StatusBadRequest {
		return p.explain(ctx, "create", "pods/exec", err)
	}
	raw, _ := io.ReadAll(io.LimitReader(answer.Body, maxSaid))
	status := metav1.Status{}
	if json.Unmarshal(raw, &status) != nil || status.Status == "" {
		status = metav1.Status{Status: metav1.StatusFailure, Code: int32(answer.StatusCode), Message: cmp.Or(string(bytes.TrimSpace(raw)), answer.Status)} //nolint:gosec // an HTTP status
	}
	failed := &apierrors.StatusError{ErrStatus: status}
	if apierrors.IsForbidden(failed) {
		verb := "create"
		if strings.Contains(status.Message, "cannot get resource") {
			verb = "get"
		}
		return p.explain(ctx, verb, "pods/exec", failed)
	}
	if answer.StatusCode == http.StatusUnauthorized {
		return p.explain(ctx, "create", "pods/exec", failed)
	}
	if notRunning(status.Message) {
		return errRestarts(pod).Because(errors.Join(err, failed))
	}
	return tool.Errorf(tool.Unavailable, "the node %s can't start the relay in the Pod of session %s: %s", object(pod).Spec.NodeName, pod.Session, oneLine(status.Message)).Because(errors.Join(err, failed))
}

// stream is the stdin and stdout of one exec.
type stream struct {
	ws   *websocket.Conn
	out  *io.PipeReader
	ends context.CancelFunc
	done chan struct{} // closed after all output was read and status and err are set

	said   []byte // the beginning of stderr
	status *metav1.Status
	err    error

	mu  sync.Mutex // serializes messages
	buf []byte
}

func newStream(ws *websocket.Conn) *stream {
	ws.SetReadLimit(-1)
	s := &stream{ws: ws, done: make(chan struct{})}
	var out *io.PipeWriter
	s.out, out = io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	s.ends = cancel
	var tasks sync.WaitGroup
	tasks.Go(func() { s.ping(ctx) })
	go func() {
		s.err = s.receive(ctx, out)
		_ = out.CloseWithError(cmp.Or(s.err, io.EOF))
		cancel()
		tasks.Wait()
		_ = ws.CloseNow()
		close(s.done)
	}()
	return s
}

// receive reads messages until the end of the stream. It returns nil after a status.
func (s *stream) receive(ctx context.Context, out *io.PipeWriter) error {
	for {
		_, r, err := s.ws.Reader(ctx)
		if err != nil {
			if s.status != nil {
				return nil
			}
			return err
		}
		var kind [1]byte
		if _, err := io.ReadFull(r, kind[:]); err != nil {
			return err
		}
		into := io.Discard
		var status bytes.Buffer
		switch kind[0] {
		case streamOut:
			into = out
		case streamErr:
			into = (*firstBytes)(&s.said)
		case streamStatus:
			into = &status
			r = io.LimitReader(r, maxSaid)
		}
		if _, err := io.Copy(into, r); err != nil {
			return err
		}
		if kind[0] == streamStatus {
			s.status = &metav1.Status{}
			if err := json.Unmarshal(status.Bytes(), s.status); err != nil {
				return err
			}
			return nil
		}
	}
}

// ping keeps the connection alive, and closes it if no answer arrives.
func (s *stream) ping(ctx context.Context) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		wait, cancel := context.WithTimeout(ctx, pingTime)
		err := s.ws.Ping(wait)
		cancel()
		if err != nil {
			_ = s.ws.CloseNow()
			return
		}
	}
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) { return s.out.Read(p) }

// Write implements io.Writer.
func (s *stream) Write(p []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(p) > 0 {
		part := p[:min(len(p), chunk)]
		s.buf = append(append(s.buf[:0], streamIn), part...)
		ctx, cancel := context.WithTimeout(context.Background(), writeTime)
		err := s.ws.Write(ctx, websocket.MessageBinary, s.buf)
		cancel()
		if err != nil {
			return n, err
		}
		n, p = n+len(part), p[len(part):]
	}
	return n, nil
}

// Close ends the relay by closing its stdin.
func (s *stream) Close() error {
	s.ends()
	_ = s.out.Close()
	_ = s.ws.CloseNow()
	<-s.done
	return nil
}

// firstBytes keeps the first bytes written to it.
type firstBytes []byte

func (f *firstBytes) Write(p []byte) (int, error) {
	*f = append(*f, p[:min(len(p), maxSaid-len(*f))]...)
	return len(p), nil
}

// noProcesses reports whether a Go program or a runtime failed to create a thread. The programs
// and the holder of a Pod share its limit of processes.
func noProcesses(said []byte) bool {
	for _, words := range []string{"failed to create new OS thread", "pthread_create failed", "Resource temporarily unavailable", "goroutine "} {
		if bytes.Contains(said, []byte(words)) {
			return true
		}
	}
	return false
}

// notRunning reports whether a node's message says that a container has ended or hasn't started.
func notRunning(said string) bool {
	for _, words := range []string{"container not found", "is not running", "CONTAINER_EXITED", "no running task found"} {
		if strings.Contains(said, words) {
			return true
		}
	}
	return false
}

func errRestarts(pod *Pod) *tool.Error {
	return tool.Errorf(tool.Unavailable, "the container with the holder of session %s doesn't run; if it ended by itself, Kubernetes starts it again within seconds; kept interpreters and background processes are lost then, files are not; call again", pod.Session)
}

// Explain returns the reason that a relay's stream ended without a hello; err is the error that it
// ended with.
func (p *Place) Explain(of *Pod, opened io.ReadWriteCloser, err error) error {
	s, ok := opened.(*stream)
	if !ok {
		return tool.Errorf(tool.Unavailable, "the Pod of session %s sent no greeting of wisbox", of.Session).Because(err)
	}
	select {
	case <-s.done:
	case <-time.After(endTime):
	}
	_ = s.Close()
	said := oneLine(string(s.said[bytes.LastIndexByte(bytes.TrimSpace(s.said), '\n')+1:]))
	switch {
	case noProcesses(s.said):
		return tool.Errorf(tool.Unavailable, "the programs of session %s have taken all processes that its Pod may have; call again when they have ended, or remove the session", of.Session).Because(err)
	case s.status == nil:
		return tool.Errorf(tool.Unavailable, "the connection to the Pod of session %s broke as it began; call again", of.Session).Because(errors.Join(err, s.err))
	case said == "" && notRunning(s.status.Message):
		return errRestarts(of).Because(err)
	case said == "":
		said = cmp.Or(oneLine(s.status.Message), "it gave no reason")
	}
	return tool.Errorf(tool.Unavailable, "the relay in the Pod of session %s ended at once, so its image may have another version of wisbox: %s", of.Session, said).Because(err)
}
