package httpguard

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool"
)

// shared is a server of several clients, whose requests name them in a header.
type shared struct {
	t    *testing.T
	g    *Guard
	addr string
	errs chan error // of handlers
	hung chan string
}

func serveShared(t *testing.T, opts Options) *shared {
	opts.OwnKeys, opts.Fair, opts.AnyAddress = true, true, true
	g, err := New(&opts)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &shared{t, g, l.Addr().String(), make(chan error, 10_000), make(chan string, 10_000)}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- g.Serve(ctx, l, g.Handler(http.HandlerFunc(s.handle)), nil) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-served)
		assert.Eventually(t, func() bool {
			g.budget.mu.Lock()
			defer g.budget.mu.Unlock()
			return g.budget.taken == [resources]int64{} && g.budget.strangers == 0 && len(g.strangers.wait) == 0
		}, 30*time.Second, time.Millisecond, "everything is given back")
	})
	return s
}

// slowly is an answer that is made while it runs.
type slowly func()

func (f slowly) MarshalJSON() ([]byte, error) { f(); return []byte("1"), nil }

func (s *shared) handle(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/health" {
		return
	}
	if r.URL.Path == "/forgotten" { // a handler that admits nobody
		_, err := io.Copy(io.Discard, r.Body)
		s.errs <- err
		return
	}
	if err := LetIn(r, Client{r.Header.Get("Client"), r.Header.Get("Part")}); err != nil {
		Refuse(w, http.StatusTooManyRequests, err.Error())
		return
	}
	switch r.URL.Path {
	case "/hang":
		s.hung <- r.Header.Get("Client")
		<-r.Context().Done()
	case "/marshal":
		_, free, err := Marshal(r.Context(), slowly(func() {
			s.hung <- r.Header.Get("Client")
			if r.Header.Get("Client") == "many" {
				<-r.Context().Done()
			}
		}))
		free()
		s.errs <- err
	case "/read":
		_, err := io.Copy(io.Discard, r.Body)
		s.errs <- err
	case "/whole":
		_, _, err := ReadBody(r, 1<<20)
		s.errs <- err
		if errors.Is(err, ErrBusy) {
			Refuse(w, http.StatusTooManyRequests, err.Error())
			return
		}
		s.hung <- ""
		<-r.Context().Done()
	case "/write":
		piece := bytes.Repeat([]byte("x"), 1<<20)
		for {
			if _, err := w.Write(piece); err != nil {
				s.errs <- err
				return
			}
		}
	case "/socket":
		conn, _, err := http.NewResponseController(w).Hijack()
		s.hung <- ""
		if err == nil {
			_, err = io.Copy(io.Discard, conn)
			conn.Close()
		}
		s.errs <- err
	}
}

// send opens a connection and sends a request, with the beginning of its body.
func (s *shared) send(path, client string, more ...string) net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { c.Close() })
	require.NoError(s.t, c.SetDeadline(time.Now().Add(30*time.Second)))
	method, rest := "GET", "\r\n"
	if len(more) > 0 {
		method, rest = "POST", strings.Join(more, "")
	}
	_, err = fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nClient: %s\r\n%s", method, path, client, rest)
	require.NoError(s.t, err)
	return c
}

// status returns the status of a short request on a new connection.
func (s *shared) status(path, client string) int {
	s.t.Helper()
	c := s.send(path, client)
	defer c.Close()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(s.t, err)
	res.Body.Close()
	return res.StatusCode
}

// hangs waits until n requests are being served.
func (s *shared) hangs(n int) {
	s.t.Helper()
	for range n {
		select {
		case <-s.hung:
		case <-time.After(30 * time.Second):
			require.Fail(s.t, "too few requests are served")
		}
	}
}

// TestAClientLeavesRoomForOthers: one that opens as many requests as it can has half of the server, two have a third
// each, and a client that comes later is served, as is a request that needs no client.
func TestAClientLeavesRoomForOthers(t *testing.T) {
	s := serveShared(t, Options{MaxConns: 80, MaxRequests: 60, MaxStrangers: 80})
	take := func(client string, most int) {
		for range most {
			s.send("/hang", client)
		}
		s.hangs(most)
		assert.Equal(t, http.StatusTooManyRequests, s.status("/hang", client), "%s has its share", client)
	}
	take("a", 30)
	take("b", 15)
	take("c", 8)
	assert.Equal(t, http.StatusOK, s.status("/none", "d"))
	assert.Equal(t, http.StatusOK, s.status("/health", ""))
}

// TestIdleConnectionsOfOneClientKeepNoOtherOut: nobody is refused for connections that do nothing.
func TestIdleConnectionsOfOneClientKeepNoOtherOut(t *testing.T) {
	// A quarter is for strangers: more than arrive here at once, as one would give way while the server is slow.
	s := serveShared(t, Options{MaxConns: 64, MaxRequests: 16, MaxStrangers: 16})
	for range 120 {
		c := s.send("/none", "idle")
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, res.StatusCode)
	}
	for range 8 {
		assert.Equal(t, http.StatusOK, s.status("/none", "other"))
		assert.Equal(t, http.StatusOK, s.status("/health", ""))
	}
	for range 4 {
		s.send("/hang", "other")
	}
	s.hangs(4)
	for range 2 {
		s.send("/hang", "third")
	}
	s.hangs(2)
}

// TestSilentConnectionsOfAPartGiveWay, such as WebSockets that nobody uses; other parts of the client keep theirs.
func TestSilentConnectionsOfAPartGiveWay(t *testing.T) {
	s := serveShared(t, Options{MaxOfPart: 3, Stalled: time.Second})
	s.send("/socket", "a", "Part: other\r\n\r\n")
	for range 3 {
		s.send("/socket", "a", "Part: box\r\n\r\n")
	}
	s.hangs(4)
	lively := s.send("/none", "a", "Part: box\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(lively), nil)
	require.NoError(t, err)
	assert.Equal(t, http.StatusTooManyRequests, res.StatusCode)
	require.Eventually(t, func() bool {
		c := s.send("/none", "a", "Part: box\r\n\r\n")
		defer c.Close()
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		return err == nil && res.StatusCode == http.StatusOK
	}, 30*time.Second, 10*time.Millisecond)
	require.Error(t, <-s.errs, "of the oldest alone")
	assert.Empty(t, s.errs)
}

// TestNoWaitForAClientHasNoEnd: one that stops sending, or taking what it asked for, has a minute.
func TestNoWaitForAClientHasNoEnd(t *testing.T) {
	s := serveShared(t, Options{Stalled: 200 * time.Millisecond, ReadTimeout: 300 * time.Millisecond})
	for name, open := range map[string]func() net.Conn{
		"a body that stops":                   func() net.Conn { return s.send("/read", "a", "Content-Length: 10\r\n\r\nx") },
		"a body in chunks":                    func() net.Conn { return s.send("/read", "a", "Transfer-Encoding: chunked\r\n\r\n5\r\nab") },
		"a body that is held whole":           func() net.Conn { return s.send("/whole", "a", "Content-Length: 10\r\n\r\nx") },
		"an answer that nobody reads":         func() net.Conn { return s.send("/write", "a") },
		"a body before which nobody is known": func() net.Conn { return s.send("/forgotten", "a", "Content-Length: 10\r\n\r\nx") },
	} {
		t.Run(name, func(t *testing.T) {
			c := open()
			select {
			case err := <-s.errs:
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			case <-time.After(30 * time.Second):
				require.Fail(t, "the server waits")
			}
			_, err := io.Copy(io.Discard, c)
			if err != nil {
				assert.ErrorContains(t, err, "reset")
			}
		})
	}
}

// TestABodyThatKeepsComingIsRead: the deadline slides.
func TestABodyThatKeepsComingIsRead(t *testing.T) {
	s := serveShared(t, Options{Stalled: 2 * time.Second, ReadTimeout: time.Second})
	c := s.send("/read", "a", "Content-Length: 10\r\n\r\n")
	for range 10 {
		time.Sleep(300 * time.Millisecond)
		_, err := io.WriteString(c, "x")
		require.NoError(t, err)
	}
	require.NoError(t, <-s.errs)
}

// TestAStrangersBodyIsReadInPart, whatever the handler wants.
func TestAStrangersBodyIsReadInPart(t *testing.T) {
	s := serveShared(t, Options{})
	c := s.send("/forgotten", "", "Transfer-Encoding: chunked\r\n\r\n")
	go func() {
		for {
			if _, err := fmt.Fprintf(c, "10000\r\n%s\r\n", strings.Repeat("x", 1<<16)); err != nil {
				return
			}
		}
	}()
	require.ErrorIs(t, <-s.errs, errStranger)
}

// TestBytesAreTakenAsTheyCome: announced ones cost nothing, those that came count until the request ends, and another
// client has its own.
func TestBytesAreTakenAsTheyCome(t *testing.T) {
	s := serveShared(t, Options{MaxBytes: 3 << 20, MaxRequests: 1000})
	for range 50 {
		s.send("/whole", "a", "Content-Length: 1000000\r\n\r\n{")
	}
	piece := strings.Repeat("x", 1_000_000)
	s.send("/whole", "a", "Content-Length: 1000000\r\n\r\n", piece)
	s.hangs(1)
	require.NoError(t, <-s.errs)
	s.send("/whole", "a", "Content-Length: 1000000\r\n\r\n", piece)
	require.ErrorIs(t, <-s.errs, ErrBusy, "it has a half")
	s.send("/whole", "b", "Content-Length: 500000\r\n\r\n", piece[:500_000])
	s.hangs(1)
	require.NoError(t, <-s.errs)
	s.send("/whole", "c", "Content-Length: 100000\r\n\r\n", "[", strings.Repeat("0,", 49_998)+"0]]")
	require.ErrorIs(t, <-s.errs, ErrBusy, "small values take more memory than text")
}

// TestHeadersCountToo: a thousand fields take more memory than their text.
func TestHeadersCountToo(t *testing.T) {
	s := serveShared(t, Options{MaxBytes: 2 << 20})
	var fields strings.Builder
	for i := range 6000 {
		fmt.Fprintf(&fields, "a%d:\r\n", i)
	}
	s.send("/hang", "a", fields.String(), "\r\n")
	s.hangs(1)
	c := s.send("/hang", "a", fields.String(), "\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	assert.Equal(t, http.StatusTooManyRequests, res.StatusCode)
}

// TestARateIsAClients: it is made slower, then refused; others are not.
func TestARateIsAClients(t *testing.T) {
	log := &lines{}
	g, err := New(&Options{OwnKeys: true, Fair: true, Rate: 1, Burst: 3, Logger: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, g.Share("a").Wait(t.Context()))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, g.Share("a").Wait(ctx), context.Canceled)
	for err == nil {
		go func() { _ = g.Share("a").Wait(ctx) }()
		if g.Share("a").rate.Tokens() < -rateWait.Seconds() {
			err = g.Share("a").Wait(t.Context())
		}
	}
	require.ErrorIs(t, err, ErrBusy)
	assert.Equal(t, tool.Limit, tool.KindOf(err))
	require.NoError(t, g.Share("b").Wait(t.Context()))
	log.await(t, "a client sends more than 1 requests a second; they wait")
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// await waits for a line, and checks that there is one.
func (l *lines) await(t *testing.T, line string) {
	t.Helper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return strings.Count(l.text.String(), line)
	}
	require.Eventually(t, func() bool { return count() > 0 }, 30*time.Second, time.Millisecond)
	assert.Equal(t, 1, count(), "at most one a minute")
}

// TestAHandlersEndOfReadsAndWritesIsFinal: it ends what is waiting and what comes later, whatever the guard's deadline.
func TestAHandlersEndOfReadsAndWritesIsFinal(t *testing.T) {
	g, err := New(&Options{OwnKeys: true})
	require.NoError(t, err)
	result := make(chan error, 2)
	h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = LetIn(r, Client{Name: "a"})
		past := time.Unix(1, 0)
		time.AfterFunc(10*time.Millisecond, func() {
			_ = http.NewResponseController(w).SetReadDeadline(past)
			_ = http.NewResponseController(w).SetWriteDeadline(past)
		})
		_, err := io.ReadAll(r.Body)
		result <- err
		_, err = w.Write(make([]byte, 1<<20))
		result <- err
	}))
	srv := httptest.NewServer(h)
	defer srv.Close()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\nx")
	require.NoError(t, err)
	require.ErrorIs(t, <-result, os.ErrDeadlineExceeded)
	require.ErrorIs(t, <-result, os.ErrDeadlineExceeded)
}

// TestHTTP2 has the same bounds for each stream, and no deadline ends a stream while its handler works.
func TestHTTP2(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	pool := writeCert(t, cert, key)
	g, err := New(&Options{Tokens: []string{token}, CertFile: cert, KeyFile: key, Stalled: 300 * time.Millisecond, ReadTimeout: 300 * time.Millisecond})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	errs := make(chan error, 1)
	h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			_, _ = io.WriteString(w, "begun")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Second)
			_, err := io.WriteString(w, " and done")
			errs <- errors.Join(err, r.Context().Err())
		case "/read":
			_, err := io.Copy(io.Discard, r.Body)
			errs <- err
		case "/write":
			_, err := w.Write(make([]byte, 64<<20))
			errs <- err
		}
	}))
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- g.Serve(ctx, l, h, nil) }()
	defer func() { cancel(); require.NoError(t, <-served) }()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	do := func(path string, body io.Reader) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+l.Addr().String()+path, body)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		res, err := client.Do(r)
		require.NoError(t, err)
		t.Cleanup(func() { res.Body.Close() })
		return res
	}
	res := do("/slow", strings.NewReader("{}"))
	assert.Equal(t, 2, res.ProtoMajor)
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	assert.Equal(t, "begun and done", string(text))
	require.NoError(t, <-errs)
	do("/write", nil) // without reading it
	require.Error(t, <-errs)
	r, w := io.Pipe()
	defer w.Close()
	go func() { _, _ = io.WriteString(w, "x") }()
	go func() {
		q, _ := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+l.Addr().String()+"/read", r)
		q.Header.Set("Authorization", "Bearer "+token)
		if res, err := client.Do(q); err == nil {
			res.Body.Close()
		}
	}()
	require.ErrorContains(t, <-errs, os.ErrDeadlineExceeded.Error())
}

func writeCert(t *testing.T, certFile, keyFile string) *x509.CertPool {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	like := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	raw, err := x509.CreateCertificate(rand.Reader, like, like, &key.PublicKey, key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	require.NoError(t, os.WriteFile(certFile, text, 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return pool
}

// TestAClientsAnswersWaitForOneAnother: those of a client who asks for many at once don't hold up those of others.
func TestAClientsAnswersWaitForOneAnother(t *testing.T) {
	s := serveShared(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ask := func(ctx context.Context, client string) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+"/marshal", nil)
		assert.NoError(t, err)
		r.Header.Set("Client", client)
		if res, err := http.DefaultClient.Do(r); err == nil {
			_ = res.Body.Close()
		}
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for range 4 * runtime.GOMAXPROCS(0) {
		all.Go(func() { ask(ctx, "many") })
	}
	require.Equal(t, "many", <-s.hung)
	ask(t.Context(), "other")
	require.Equal(t, "other", <-s.hung)
	require.NoError(t, <-s.errs)
}
