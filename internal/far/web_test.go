package far_test

import (
	"context"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/far"
	"github.com/wisbox/wisbox/tool"
)

// web returns a way to a server, with a key.
func web(t *testing.T, address, key, ca string) *far.Web {
	t.Helper()
	way, err := far.Parse(address)
	require.NoError(t, err)
	w := way.(*far.Web)
	require.NoError(t, w.Use(key, ca))
	return w
}

func relay(t *testing.T) http.Handler {
	t.Helper()
	var guests far.Guests
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+far.RemotePath, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") != "right" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		stream, err := far.AcceptWeb(w, r)
		if assert.NoError(t, err) {
			_ = guests.Serve(context.Background(), stream, hello, "owner", func(_ context.Context, c net.Conn) { _, _ = io.Copy(c, c) })
		}
	})
	return mux
}

func echo(t *testing.T, way far.Way) error {
	t.Helper()
	c := far.NewClient(way, hello)
	defer c.Close()
	conn, err := c.Dial(t.Context())
	if err != nil {
		return err
	}
	text := strings.Repeat("0123456789", 300_000) // more than the windows and a message
	go func() { _, _ = io.WriteString(conn, text) }()
	got := make([]byte, len(text))
	_, err = io.ReadFull(conn, got)
	assert.Equal(t, text, string(got))
	return err
}

// TestTheWebCarriesTheStream over TLS that is verified, and over http on the loopback interface.
func TestTheWebCarriesTheStream(t *testing.T) {
	safe := httptest.NewTLSServer(relay(t))
	defer safe.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: safe.Certificate().Raw}), 0o600))
	require.NoError(t, echo(t, web(t, safe.URL, "right", ca)))
	err := echo(t, web(t, safe.URL, "right", ""))
	require.ErrorContains(t, err, "--ca-file")
	err = echo(t, web(t, strings.Replace(safe.URL, "127.0.0.1", "localhost", 1), "right", ca))
	require.ErrorContains(t, err, "for another name")

	plain := httptest.NewServer(relay(t))
	defer plain.Close()
	require.NoError(t, echo(t, web(t, plain.URL, "right", "")))
	require.NoError(t, echo(t, web(t, plain.URL, "right\n", "")), "a file ends with a line break")
	err = echo(t, web(t, plain.URL, "wrong", ""))
	assert.Equal(t, tool.Permission, tool.KindOf(err))
	require.ErrorContains(t, err, "wisbox serve key create")
	require.NotContains(t, err.Error(), "wrong key")
}

// TestTheKeyGoesToNobodyElse: no redirection takes it along.
func TestTheKeyGoesToNobodyElse(t *testing.T) {
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Error("got", r.Header) }))
	defer thief.Close()
	s := httptest.NewServer(http.RedirectHandler(thief.URL+far.RemotePath, http.StatusTemporaryRedirect))
	defer s.Close()
	err := echo(t, web(t, s.URL, "right", ""))
	require.ErrorContains(t, err, "307")
}

// TestWhatAServerRefusesSaysWhatToDo checks the error for each status, and that of a server other than wisbox.
func TestWhatAServerRefusesSaysWhatToDo(t *testing.T) {
	for status, says := range map[int]string{
		http.StatusNotFound: "--allow-remote", http.StatusForbidden: "--domain", http.StatusServiceUnavailable: "no room now: so many",
		http.StatusTooManyRequests: "try again later", http.StatusOK: "status 200", http.StatusBadGateway: "a proxy in front",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"message":"so many"}`)
		}))
		require.ErrorContains(t, echo(t, web(t, s.URL, "right", "")), says)
		s.Close()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.ErrorContains(t, echo(t, web(t, "http://"+l.Addr().String(), "right", "")), "can't be reached")
}

// TestAddressesOfTheWeb have a host and nothing else, and without TLS one of this machine.
func TestAddressesOfTheWeb(t *testing.T) {
	for _, good := range []string{"https://boxes.example.com", "https://10.0.0.1:8443/", "http://localhost:3000", "http://127.0.0.1", "http://[::1]:3000"} {
		_, err := far.Parse(good)
		require.NoError(t, err, good)
	}
	for bad, says := range map[string]string{
		"http://boxes.example.com": "https://boxes.example.com", "http://10.0.0.1:3000": "this machine alone", "http://127.0.0.1.example.com": "this machine alone",
		"http://localhost.example.com": "this machine alone", "http://0.0.0.0:3000": "this machine alone",
		"https://user:pw@host": "leave it out", "https://host/path": "more than a host", "https://host?key=x": "more than a host", "https://": "no host",
	} {
		_, err := far.Parse(bad)
		assert.Equal(t, tool.Invalid, tool.KindOf(err), bad)
		require.ErrorContains(t, err, says, bad)
	}
	t.Setenv(far.KeyVariable, "")
	way, err := far.Parse("https://host")
	require.NoError(t, err)
	require.ErrorContains(t, way.(*far.Web).Use("", ""), "set WISBOX_API_KEY")
	require.ErrorContains(t, way.(*far.Web).Use("a\nb", ""), "line break")
	require.ErrorContains(t, way.(*far.Web).Use("key", filepath.Join(t.TempDir(), "no")), "--ca-file")
}

// TestAGuestOpensNoMoreConnectionsThanAnyWisboxDoes, or loses the stream.
func TestAGuestOpensNoMoreConnectionsThanAnyWisboxDoes(t *testing.T) {
	s := httptest.NewServer(relay(t))
	defer s.Close()
	var first []net.Conn
	got := make([]byte, 1)
	for n := range 3 { // each has fewer than the maximum
		c := far.NewClient(web(t, s.URL, "right", ""), hello)
		defer c.Close()
		for i := range 200 {
			conn, err := c.Dial(t.Context())
			if err == nil {
				_, _ = conn.Write([]byte("x"))
				_, err = io.ReadFull(conn, got) // it has been accepted: the stream that ends is the one that opens too many
			}
			if err != nil {
				require.Equal(t, 2, n, "the last one ends")
				break
			}
			if i == 0 {
				first = append(first, conn)
			}
		}
	}
	_, err := io.ReadAll(first[2])
	require.NoError(t, err, "the last one ended")
	_, err = first[0].Write([]byte("y"))
	require.NoError(t, err)
	_, err = io.ReadFull(first[0], got)
	require.NoError(t, err)
	assert.Equal(t, "y", string(got), "the others did not")
}

// TestABookKeepsTheNameOfAKeysFile and not the key.
func TestABookKeepsTheNameOfAKeysFile(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	require.NoError(t, os.WriteFile(key, []byte("e2b_secret\n"), 0o600))
	b, err := far.Read(filepath.Join(dir, "book.json"))
	require.NoError(t, err)
	require.NoError(t, b.Add("team", far.Remote{Address: "https://host", KeyFile: key}))
	require.ErrorContains(t, b.Add("big", far.Remote{Address: "ssh://host", KeyFile: key}), "https://")
	require.NoError(t, b.Write(filepath.Join(dir, "book.json")))
	raw, err := os.ReadFile(filepath.Join(dir, "book.json"))
	require.NoError(t, err)
	assert.NotContains(t, string(raw), "e2b_secret")
	r, err := b.Find("team")
	require.NoError(t, err)
	text, err := r.Key()
	require.NoError(t, err)
	assert.Equal(t, "e2b_secret", text)
	for _, wrong := range []string{"", " \n", strings.Repeat("x", 5000)} {
		require.NoError(t, os.WriteFile(key, []byte(wrong), 0o600))
		_, err = r.Key()
		require.ErrorContains(t, err, "has no API key")
	}
	require.NoError(t, os.Remove(key))
	_, err = r.Key()
	require.ErrorContains(t, err, "can't be read")
}
