package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"github.com/stretchr/testify/require"
	"io"
	"net"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// rebinding answers with the world's address once and with a private one afterwards.
type rebinding struct {
	*world
	asked *atomic.Int32
}

func (r rebinding) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if r.asked.Add(1) == 1 {
		return r.world.LookupNetIP(ctx, network, host)
	}
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// script is a connection whose other end sends some bytes and then ends.
type script struct {
	net.Conn
	in io.Reader
}

func (s script) Read(b []byte) (int, error)      { return s.in.Read(b) }
func (s script) SetReadDeadline(time.Time) error { return nil }

type sink struct {
	net.Conn
	buf *bytes.Buffer
}

func (s sink) Write(b []byte) (int, error)        { return s.buf.Write(b) }
func (s sink) Read([]byte) (int, error)           { return 0, io.EOF }
func (s sink) Close() error                       { return nil }
func (s sink) SetDeadline(time.Time) error        { return nil }
func (s sink) SetWriteDeadline(t time.Time) error { return nil }

// helloFor returns the hello of a client.
func helloFor(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	var buf bytes.Buffer
	_ = tls.Client(sink{buf: &buf}, config).Handshake()
	return buf.Bytes()
}

// withECH adds an ECH extension to a hello.
func withECH(hello []byte) []byte {
	ech := []byte{0, 0, 1, 0, 1, 7, 0, 1, 9, 0, 1, 9} // outer, cipher, config, enc, payload
	out := append(append(bytes.Clone(hello), 0xfe, 0x0d, 0, byte(len(ech))), ech...)
	more := 4 + len(ech)
	add := func(at, size int) {
		if size == 2 {
			binary.BigEndian.PutUint16(out[at:], binary.BigEndian.Uint16(out[at:])+uint16(more))
			return
		}
		binary.BigEndian.PutUint16(out[at+1:], binary.BigEndian.Uint16(out[at+1:])+uint16(more))
	}
	add(3, 2) // record
	add(6, 3) // message
	at := 5 + 4 + 2 + 32
	at += 1 + int(out[at])                           // session
	at += 2 + int(binary.BigEndian.Uint16(out[at:])) // ciphers
	at += 1 + int(out[at])                           // compression
	add(at, 2)                                       // extensions
	return out
}

func TestAHelloIsReadWhole(t *testing.T) {
	raw := helloFor(t, &tls.Config{ServerName: "example.com"})
	h, err := readHello(script{in: io.MultiReader(bytes.NewReader(raw[:1]), bytes.NewReader(raw[1:]))}, time.Second)
	assert.NoError(t, err)
	assert.Equal(t, "example.com", h.name)
	assert.Equal(t, raw, h.raw)
	_, err = readHello(script{in: bytes.NewReader(withECH(raw))}, time.Second)
	assert.ErrorIs(t, err, errECH)
	h, err = readHello(script{in: bytes.NewReader(append(bytes.Clone(raw), "behind"...))}, time.Second)
	assert.NoError(t, err)
	assert.Equal(t, raw, h.raw)
	assert.Equal(t, "behind"[:len(h.rest)], string(h.rest))
	h, err = readHello(script{in: bytes.NewReader(inRecords(raw[5:], 100))}, time.Second)
	assert.NoError(t, err)
	assert.Equal(t, inRecords(raw[5:], 100), h.raw)
	two := inRecords(append(bytes.Clone(raw[5:]), 1), 250)
	_, err = readHello(script{in: bytes.NewReader(two)}, time.Second)
	assert.ErrorIs(t, err, errNotTLS, "another message begins in its last record")
	_, err = readHello(script{in: bytes.NewReader(nil)}, time.Second)
	assert.ErrorIs(t, err, errNothing)
}

func TestAnEndlessHelloIsBounded(t *testing.T) {
	record := append([]byte{0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff}, make([]byte, 0x4000-4)...)
	endless := io.MultiReader(bytes.NewReader(record), repeat{record})
	h, err := readHello(script{in: endless}, time.Second)
	assert.ErrorIs(t, err, errNotTLS)
	assert.LessOrEqual(t, len(h.raw), maxHello)
}

type repeat struct{ b []byte }

func (r repeat) Read(b []byte) (int, error) { return copy(b, r.b), nil }

func FuzzAHelloGivesItsNameAndAllItsBytes(f *testing.F) {
	raw := helloFor(f, &tls.Config{ServerName: "example.com"})
	f.Add(raw)
	f.Add(withECH(raw))
	f.Add(helloFor(f, &tls.Config{ServerName: "1.2.3.4", InsecureSkipVerify: true}))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		h, err := readHello(script{in: bytes.NewReader(in)}, time.Second)
		assert.True(t, bytes.HasPrefix(in, append(bytes.Clone(h.raw), h.rest...)), "the received bytes are replayed")
		if err != nil {
			return
		}
		assert.NotEmpty(t, h.name)
		assert.Equal(t, byte(tlsHandshake), in[0])
		assert.Contains(t, string(bytes.ToLower(in)), h.name[:1])
	})
}

func TestASecondHelloMustBeForTheSameHost(t *testing.T) {
	w := newWorld(t)
	s := httptest.NewUnstartedServer(text("after a retry"))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{w.certificate("example.com")}, CurvePreferences: []tls.CurveID{tls.CurveP384}}
	s.StartTLS()
	t.Cleanup(s.Close)
	w.at(w.addressOf("example.com")+":443", s.Listener.Addr().String())
	b := w.box(allow("example.com"))
	c := tls.Client(b.tunnel("example.com:443"), &tls.Config{ServerName: "example.com", RootCAs: w.roots, CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP384}})
	require.NoError(t, c.Handshake())
	assert.True(t, c.ConnectionState().HelloRetryRequest)
	_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")
	require.NoError(t, err)
	_, _, body := readAnswer(t, bufio.NewReader(c))
	assert.Equal(t, "after a retry", body)

	hello, other := helloFor(t, &tls.Config{ServerName: "example.com"}), helloFor(t, &tls.Config{ServerName: "other.example.com"})
	change := []byte{0x14, 3, 3, 0, 1, 1}
	for what, second := range map[string][]byte{
		"another host":          other,
		"behind a change":       append(bytes.Clone(change), other...),
		"a third":               append(append(bytes.Clone(change), hello...), hello...),
		"behind an empty one":   append([]byte{0x16, 3, 3, 0, 0}, other...),
		"in parts of one byte":  inRecords(other[5:], 1),
		"and one without names": helloFor(t, &tls.Config{ServerName: "1.2.3.4", InsecureSkipVerify: true}),
	} {
		got := make(chan []byte, 1)
		w.raw("443", func(c net.Conn) {
			raw, _ := io.ReadAll(c)
			got <- raw
		})
		c := b.tunnel("example.com:443")
		_, err := c.Write(append(bytes.Clone(hello), second...))
		require.NoError(t, err)
		_, err = c.Read(make([]byte, 1))
		assert.ErrorContains(t, err, "reset", what)
		assert.NotContains(t, string(<-got), "other.example.com", what)
	}
}

// inRecords cuts a message into TLS records.
func inRecords(message []byte, size int) (raw []byte) {
	for part := range slices.Chunk(message, size) {
		raw = append(append(raw, 0x16, 3, 3, 0, byte(len(part))), part...)
	}
	return raw
}

func FuzzOnlyAHelloForTheHostFollowsTheFirst(f *testing.F) {
	hello, other := helloFor(f, &tls.Config{ServerName: "example.com"}), helloFor(f, &tls.Config{ServerName: "other.example.org"})
	f.Add(hello)
	f.Add(other)
	f.Add(append([]byte{0x14, 3, 3, 0, 1, 1}, other...))
	f.Add(inRecords(other[5:], 200))
	f.Add([]byte{0x17, 3, 3, 0, 4, 1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, in []byte) {
		i := &inspected{Conn: script{in: bytes.NewReader(in)}, host: "example.com", within: time.Second, refuse: func(error) {}}
		out, err := io.ReadAll(i)
		assert.True(t, bytes.HasPrefix(in, out))
		if err == nil {
			assert.Len(t, out, len(in), "nothing is lost")
			h, err := readHello(script{in: bytes.NewReader(in)}, time.Second)
			assert.False(t, err == nil && h.name != "example.com", h.name)
		}
	})
}
