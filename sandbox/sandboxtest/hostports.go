package sandboxtest

import (
	"context"
	"errors"
	"net"
	"strconv"
	"syscall"

	"github.com/wisbox/wisbox/sandbox"
)

var (
	_ sandbox.PortDialer = (*hostHandle)(nil)
	_ sandbox.PortFinder = (*hostHandle)(nil)
)

// DialPort implements [sandbox.PortDialer]: the ports are the host's own.
func (h *hostHandle) DialPort(ctx context.Context, port uint16) (net.Conn, error) {
	conn, err := h.dial(ctx, "127.0.0.1", port)
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return conn, err
	}
	if six, err := h.dial(ctx, "::1", port); err == nil {
		return six, nil
	}
	return nil, err
}

func (h *hostHandle) dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
}

// Listens implements [sandbox.PortFinder], but it connects.
func (h *hostHandle) Listens(ctx context.Context, port uint16) (bool, error) {
	conn, err := h.DialPort(ctx, port)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return false, nil
	}
	if err == nil {
		err = conn.Close()
	}
	return err == nil, err
}
