package httpguard

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var token = strings.Repeat("A", 26)

// counting is a listener that counts the server's open connections.
type counting struct {
	g *Guard
	net.Listener
	mu         sync.Mutex
	open, most int
}

type counted struct {
	net.Conn
	once sync.Once
	l    *counting
}

func (l *counting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.add(1)
	return &counted{Conn: c, l: l}, nil
}

func (l *counting) add(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open += n
	l.most = max(l.most, l.open)
}

func (c *counted) Close() error {
	c.once.Do(func() { c.l.add(-1) })
	return c.Conn.Close()
}

func serve(t *testing.T, opts *Options) (addr string, l *counting) {
	g, err := New(opts)
	require.NoError(t, err)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l = &counting{Listener: inner, g: g}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- g.Serve(ctx, l, g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") })), nil)
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-served)
		assert.Eventually(t, func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.open == 0 }, 30*time.Second, time.Millisecond)
	})
	return inner.Addr().String(), l
}

// idles waits until the server knows that n connections of clients are idle.
func (l *counting) idles(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		l.g.budget.mu.Lock()
		defer l.g.budget.mu.Unlock()
		idle := 0
		for _, s := range l.g.budget.shares {
			for c := range s.conns {
				if c.idle {
					idle++
				}
			}
		}
		return idle == n
	}, 30*time.Second, time.Millisecond)
}

func get(t *testing.T, client *http.Client, addr string) (reused bool, err error) {
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	res, err := client.Do(r)
	if err != nil {
		return reused, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && string(body) != "served" {
		err = fmt.Errorf("status %d: %s", res.StatusCode, body)
	}
	return reused, err
}

// TestIdleConnectionsKeepNobodyOut: hundreds of connections, some with half a request, are opened again whenever they
// are closed, from the working client's address.
func TestIdleConnectionsKeepNobodyOut(t *testing.T) {
	const idle, most = 300, 96
	log := &lines{}
	addr, l := serve(t, &Options{Tokens: []string{token}, MaxConns: most, MaxStrangers: 32, Logger: slog.New(slog.NewTextHandler(log, nil))})
	kept := &http.Client{Transport: &http.Transport{}}
	defer kept.CloseIdleConnections()
	_, err := get(t, kept, addr)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for i := range idle {
		all.Go(func() {
			for ctx.Err() == nil {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					continue
				}
				stop := context.AfterFunc(ctx, func() { c.Close() })
				if i%4 == 0 {
					_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n")
				}
				_, _ = io.Copy(io.Discard, c) // until the server closes it
				stop()
				c.Close()
				select { // a client that is turned away asks again later
				case <-time.After(50 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for i := range 8 {
		require.Eventually(t, func() bool { // on a slow machine, its connection may be too old before it sends
			_, err := get(t, fresh, addr)
			return err == nil
		}, 30*time.Second, time.Millisecond, "request %d", i)
		reused, err := get(t, kept, addr)
		require.NoError(t, err)
		require.True(t, reused, "a connection that proved itself is not closed for strangers")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.LessOrEqual(t, l.most, most+1, "one more while it is turned away")
	log.await(t, "too many connections without an admitted request; the oldest are closed for new ones")
}

// TestAWrongTokenIsAStranger, and its connection ends with the refusal.
func TestAWrongTokenIsAStranger(t *testing.T) {
	addr, l := serve(t, &Options{Tokens: []string{token}})
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer nonsense\r\n\r\n")
	require.NoError(t, err)
	answer, err := io.ReadAll(c)
	require.NoError(t, err)
	assert.Contains(t, string(answer), "401")
	assert.Eventually(t, func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.open == 0 }, 30*time.Second, time.Millisecond)
}

// TestIdleConnectionsGiveWay to new ones, the oldest first, even of the same client.
func TestIdleConnectionsGiveWay(t *testing.T) {
	log := &lines{}
	addr, l := serve(t, &Options{Tokens: []string{token}, MaxConns: 4, MaxStrangers: 3, Logger: slog.New(slog.NewTextHandler(log, nil))})
	var clients []*http.Client
	for i := range 4 { // one more than a client may have beside strangers
		client := &http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		_, err := get(t, client, addr)
		require.NoError(t, err)
		clients = append(clients, client)
		l.idles(t, min(i+1, 3))
	}
	for i, client := range clients[1:] {
		reused, err := get(t, client, addr)
		require.NoError(t, err)
		assert.True(t, reused, i+1)
		l.idles(t, 3)
	}
	reused, err := get(t, clients[0], addr)
	require.NoError(t, err)
	assert.False(t, reused)
	log.await(t, "a client's connections or requests are all taken; idle connections are closed for new ones")
}

// TestAdmitLetsInWithoutAToken over the loopback interface, only by the given names.
func TestAdmitLetsInWithoutAToken(t *testing.T) {
	addr, _ := serve(t, &Options{
		OnlyHosts: true, Hosts: []string{"box.localhost"}, Refusal: "come by the door",
		Admit: func(r *http.Request) bool { return r.Header.Get("Cookie") == "in" },
	})
	for _, c := range []struct {
		host, cookie, body string
		status             int
	}{
		{"box.localhost", "in", "served", 200},
		{"box.localhost", "out", "come by the door", 401},
		{"localhost", "in", "another server", 403},
		{"127.0.0.1", "in", "another server", 403},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/", nil)
		require.NoError(t, err)
		r.Host = c.host
		r.Header.Set("Cookie", c.cookie)
		res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		res.Body.Close()
		assert.Equal(t, c.status, res.StatusCode)
		assert.Contains(t, string(body), c.body)
	}
	_, err := Listen("0.0.0.0:0", &Options{Admit: func(*http.Request) bool { return true }})
	require.ErrorContains(t, err, "bearer token")
}

// TestAHandlerWithKeysOfItsOwn checks keys; the guard checks names and origins.
func TestAHandlerWithKeysOfItsOwn(t *testing.T) {
	g, err := New(&Options{
		OwnKeys: true, Below: []string{"localhost", "Example.org"}, Hosts: []string{"example.org"}, AnyAddress: true,
		AnyOrigin: func(r *http.Request) bool { return r.URL.Path == "/open" },
	})
	require.NoError(t, err)
	h := g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { assert.NoError(t, LetIn(r, Client{Name: "a"})) }))
	for _, c := range []struct {
		host, path, origin string
		status             int
	}{
		{"localhost:80", "/", "", 200},
		{"a.b.localhost", "/", "", 200},
		{"192.0.2.1:80", "/", "", 200},
		{"[2001:db8::1]:80", "/", "", 200},
		{"x.EXAMPLE.org", "/", "", 200},
		{"example.org", "/", "", 200},
		{"evil.org", "/", "", 403},
		{"notexample.org", "/", "", 403},
		{"localhost.evil.org", "/", "", 403},
		{"", "/", "", 403},
		{"localhost", "/", "https://evil.org", 403},
		{"localhost", "/open", "https://evil.org", 200},
	} {
		r := httptest.NewRequest(http.MethodPost, "http://localhost"+c.path, nil)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, c.status, w.Code, "%+v", c)
	}
	_, err = Listen("0.0.0.0:0", &Options{OwnKeys: true})
	require.ErrorIs(t, err, ErrNoTLS)
	l, err := Listen("0.0.0.0:0", &Options{OwnKeys: true, Plain: true})
	require.NoError(t, err)
	require.NoError(t, l.Close())
}
