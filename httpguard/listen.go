package httpguard

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/rundir"
)

// Listen opens an address for [Guard.Serve]: "host:port", or "unix:PATH" for a
// socket that only this user can reach. The hosts localhost, 127.0.0.1 and ::1 stand for both address families of the loopback
// interface, and port 0 for a port that is free in both. A socket's directory must belong to this user, with no access for others, and
// no other user may be able to redirect its path. Listen creates a missing directory, and replaces the socket of a dead
// server. Addresses beyond the loopback interface need tokens and TLS.
func Listen(addr string, opts *Options) (net.Listener, error) {
	g, err := New(opts)
	if err != nil {
		return nil, err
	}
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return listenUnix(path)
	}
	l, err := listenTCP(addr)
	if err != nil {
		return nil, err
	}
	if err := g.mayServe(l.Addr()); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func listenTCP(addr string) (net.Listener, error) {
	if !OnLoopback(addr) {
		return net.Listen("tcp", addr)
	}
	_, port, _ := net.SplitHostPort(addr) // OnLoopback could
	number, err := net.LookupPort("tcp", port)
	if err != nil {
		return nil, &net.AddrError{Err: "no TCP port", Addr: addr}
	}
	return Loopback(number)
}

// OnLoopback reports whether an address, host:port, has a host that stands for the loopback interface. These are the
// addresses to which clients resolve localhost, and browsers names below it.
func OnLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && (ip.Unmap() == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || ip == netip.IPv6Loopback())
}

// ErrNoToken reports that an address that other users can reach has no token.
var ErrNoToken = errors.New("a bearer token is required")

// ErrNoTLS reports that an address that other machines can reach has no certificate.
var ErrNoTLS = errors.New("beyond the loopback interface TLS is required: give a certificate and its key")

// mayServe refuses addresses that more clients can reach than the options allow.
func (g *Guard) mayServe(addr net.Addr) error {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return nil
	}
	keyed := len(g.opts.Tokens) > 0 || g.opts.OwnKeys && !g.opts.Public
	if !keyed && !((g.opts.Public || g.opts.Admit != nil) && tcp.IP.IsLoopback()) {
		return fmt.Errorf("listen on %s: %w", addr, ErrNoToken)
	}
	if !tcp.IP.IsLoopback() && !g.opts.Plain && (g.opts.CertFile == "" || g.opts.KeyFile == "") {
		return fmt.Errorf("listen on %s: %w", addr, ErrNoTLS)
	}
	return nil
}

func listenUnix(path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if err := rundir.Trusted(path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if !ours(info) {
		return nil, fmt.Errorf("listen on %s: its directory belongs to another user; use one of yours", path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("listen on %s: its directory is open to other users (mode %04o); use one of mode 0700", path, info.Mode().Perm())
	}
	l, err := net.Listen("unix", path)
	if err != nil && isDead(path) {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
		l, err = net.Listen("unix", path)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// isDead reports whether path is a socket without a listener.
func isDead(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		return false
	}
	c, err := net.DialTimeout("unix", path, patience.For(time.Second))
	if err != nil {
		return true
	}
	_ = c.Close()
	return false
}

// Same compares secrets in constant time.
func Same(given, want string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// NewToken returns a bearer token of 130 random bits.
func NewToken() string { return rand.Text() }

func ours(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid()
}

// maxTokenFile is the maximum size of a token file, in bytes.
const maxTokenFile = 4 << 10

// ReadToken reads a bearer token from a file that belongs to this user and that only this user can read. No other user
// may be able to redirect its path.
func ReadToken(path string) (string, error) {
	if err := rundir.Trusted(path); err != nil {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || !ours(info) {
		return "", fmt.Errorf("%s is not a file of this user; choose another path", path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s is open to other users (mode %04o); make it 0600", path, info.Mode().Perm())
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxTokenFile))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(raw))
	if len(token) < minToken {
		return "", fmt.Errorf("%s: a bearer token needs at least %d characters", path, minToken)
	}
	return token, nil
}

// WriteToken writes a token to a new file of mode 0600, and replaces an old one. No other user may be able to redirect
// the path.
func WriteToken(path, token string) error {
	if err := rundir.Trusted(path); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".token-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(token + "\n")
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
