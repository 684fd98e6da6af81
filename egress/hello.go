package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// hello is the first message of a TLS client.
type hello struct {
	name string // SNI
	raw  []byte // its records
	rest []byte // bytes read after them
}

var (
	errNotTLS  = errors.New("it begins with neither TLS nor HTTP; to allow any bytes, write a rule tcp:HOST:PORT")
	errPlainH2 = errors.New("it begins with HTTP/2 without TLS, which the proxy doesn't read; use HTTP/1.1 or TLS, or allow any bytes with a rule tcp:HOST:PORT")
	errNothing = errors.New("the program sent nothing")
	errSilent  = errors.New("the program sent nothing")
	errNoSNI   = errors.New("the TLS hello names no host (SNI)")
	errECH     = errors.New("the TLS hello hides its host (ECH)")
)

const (
	tlsHandshake = 0x16
	maxHello     = 128 << 10
	extensionECH = 0xfe0d
	olderECH     = 0xffce // ESNI
)

// protocol names the language of a connection, by its first bytes.
type protocol int

const (
	isTLS protocol = iota
	isHTTP
)

// longestMethod has room for all methods of HTTP and its extensions.
const longestMethod = 32

// peek reads the beginning of a program's connection, as far as needed to recognise its protocol. It can be read again
// from the connection that peek returns.
func peek(c net.Conn, within time.Duration) (*handed, protocol, error) {
	_ = c.SetReadDeadline(time.Now().Add(within))
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	head := make([]byte, 0, longestMethod)
	for {
		n, err := c.Read(head[len(head):cap(head)])
		head = head[:len(head)+n]
		if len(head) > 0 && head[0] == tlsHandshake {
			return &handed{Conn: c, head: head}, isTLS, nil
		}
		method, _, whole := strings.Cut(string(head), " ")
		switch {
		case strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "":
			return nil, 0, errNotTLS
		case whole && method == "PRI":
			return nil, 0, errPlainH2
		case whole && method != "":
			return &handed{Conn: c, head: head}, isHTTP, nil
		case err == nil && len(head) < cap(head) && !whole:
		case len(head) > 0:
			return nil, 0, errNotTLS
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, 0, fmt.Errorf("%w for %s", errSilent, within)
		default:
			return nil, 0, errNothing
		}
	}
}

// readHello reads a TLS hello without answering it.
func readHello(c net.Conn, within time.Duration) (hello, error) {
	_ = c.SetReadDeadline(time.Now().Add(within))
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	h, err := parseHello(&recording{Conn: c})
	return h, err
}

func parseHello(rec *recording) (hello, error) {
	var seen *tls.ClientHelloInfo
	_ = tls.Server(rec, &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		seen = info
		return nil, errNotTLS // nothing else is needed
	}}).HandshakeContext(context.Background())
	h := hello{raw: rec.seen.Bytes()}
	switch {
	case len(h.raw) == 0:
		return h, errNothing
	case seen == nil:
		return h, errNotTLS
	}
	h.name = strings.ToLower(seen.ServerName)
	end := helloEnd(h.raw)
	h.raw, h.rest = h.raw[:end], h.raw[end:]
	switch {
	case end == 0:
		return h, errNotTLS
	case slices.Contains(seen.Extensions, extensionECH), slices.Contains(seen.Extensions, olderECH):
		return h, errECH
	case h.name == "":
		return h, errNoSNI
	}
	return h, nil
}

// helloEnd returns the end of a hello's records, or 0 if they contain more than the hello.
func helloEnd(raw []byte) int {
	var message []byte
	for pos := 0; pos+5 <= len(raw) && raw[pos] == tlsHandshake; {
		size := int(raw[pos+3])<<8 | int(raw[pos+4])
		pos += 5
		if pos+size > len(raw) {
			return 0
		}
		message = append(message, raw[pos:pos+size]...)
		pos += size
		if len(message) < 4 {
			continue
		}
		whole := 4 + (int(message[1])<<16 | int(message[2])<<8 | int(message[3]))
		switch {
		case len(message) == whole:
			return pos
		case len(message) > whole:
			return 0
		}
	}
	return 0
}

// inspected is a program's side of a tunnel after its hello. A server may request a second hello (HelloRetryRequest),
// also in clear text, which must be for the same host. Later bytes are encrypted, or aren't a hello.
type inspected struct {
	net.Conn
	host   string
	within time.Duration
	refuse func(error)
	ready  []byte
	hellos int
	done   bool
}

func (i *inspected) NetConn() net.Conn { return i.Conn }
func (i *inspected) CloseWrite() error { return closeWrite(i.Conn) }

func (i *inspected) Read(b []byte) (int, error) {
	for len(i.ready) == 0 && !i.done {
		if err := i.next(); err != nil {
			return 0, err
		}
	}
	if len(i.ready) > 0 {
		n := copy(b, i.ready)
		i.ready = i.ready[n:]
		return n, nil
	}
	return i.Conn.Read(b)
}

const (
	tlsChangeCipher = 0x14
	clientHello     = 1
)

// next reads the beginning of a record, and all of a hello.
func (i *inspected) next() error {
	head := make([]byte, 6) // its type, version, length and first byte
	n, err := io.ReadFull(i.Conn, head)
	i.ready = head[:n]
	switch {
	case err != nil && n > 0:
		i.done = true // less than a record, so it isn't a hello
		return nil
	case err != nil:
		return err
	case head[0] == tlsChangeCipher && head[3] == 0 && head[4] == 1:
		return nil // a whole record; the second hello may follow
	case head[0] != tlsHandshake || head[5] != clientHello:
		i.done = head[0] != tlsHandshake || head[3] != 0 || head[4] != 0
		if !i.done {
			err = errNotTLS // an empty record, which hides the first byte of the next one
		}
	default:
		err = i.again(head)
	}
	if err != nil {
		i.refuse(err)
		return errReset
	}
	return nil
}

func (i *inspected) again(head []byte) error {
	h, err := readHello(&handed{Conn: i.Conn, head: head}, i.within)
	i.ready = h.raw
	i.Conn = &handed{Conn: i.Conn, head: h.rest}
	if i.hellos++; err == nil && (h.name != i.host || i.hellos > 1) {
		err = fmt.Errorf("a later TLS hello is for %s", clean(h.name, 253))
	}
	return err
}

// recording is a connection that records reads and discards writes.
type recording struct {
	net.Conn
	seen bytes.Buffer
}

func (r *recording) Read(b []byte) (int, error) {
	left := maxHello - r.seen.Len()
	if left <= 0 {
		return 0, io.EOF
	}
	n, err := r.Conn.Read(b[:min(len(b), left)])
	r.seen.Write(b[:n])
	return n, err
}

func (r *recording) Write(b []byte) (int, error)      { return len(b), nil }
func (r *recording) Close() error                     { return nil }
func (r *recording) SetDeadline(time.Time) error      { return nil }
func (r *recording) SetWriteDeadline(time.Time) error { return nil }
