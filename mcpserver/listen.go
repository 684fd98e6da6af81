package mcpserver

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Listen opens an address for [Server.Serve]: "host:port", or "unix:PATH" for a
// socket that only this user can reach. The directory of a socket must be this
// user's alone; it is made when it is missing. A socket that a dead server left
// is replaced. Addresses beyond the loopback interface need tokens and TLS.
func Listen(addr string, opts *HTTPOptions) (net.Listener, error) {
	o, err := opts.orDefaults()
	if err != nil {
		return nil, err
	}
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return listenUnix(path)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	if err := mayServe(l.Addr(), o); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// ErrNoTLS is that of an address that other machines reach, without a certificate.
var ErrNoTLS = errors.New("beyond the loopback interface TLS is needed: give a certificate and its key")

// mayServe refuses addresses that more people reach than the options allow for.
func mayServe(addr net.Addr, opts HTTPOptions) error {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return nil
	}
	if len(opts.Tokens) == 0 {
		return fmt.Errorf("listen on %s: a bearer token is needed", addr)
	}
	if !tcp.IP.IsLoopback() && (opts.CertFile == "" || opts.KeyFile == "") {
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

// isDead says whether path is a socket that nobody listens on.
func isDead(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		return false
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return true
	}
	_ = c.Close()
	return false
}

// NewToken makes a bearer token of 130 random bits.
func NewToken() string { return rand.Text() }

// ReadToken reads a bearer token from a file that only its owner may read.
func ReadToken(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s is open to other users (mode %04o); make it 0600", path, info.Mode().Perm())
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(raw))
	if len(token) < minToken {
		return "", fmt.Errorf("%s: a bearer token needs at least %d characters", path, minToken)
	}
	return token, nil
}

// WriteToken puts a token into a new file of mode 0600, in place of an old one.
func WriteToken(path, token string) error {
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
