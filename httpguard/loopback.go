package httpguard

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
)

// tries is the number of attempts to find a port that is free in both families.
const tries = 20

// Loopback listens on a TCP port of 127.0.0.1 (0 for any free port) and, if the machine has it, of ::1: clients look up
// names such as localhost in both families and may try ::1 first, so nobody else may have the other one. Its address is
// the one of IPv4.
func Loopback(port int) (net.Listener, error) {
	for try := 1; ; try++ {
		four, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return nil, err
		}
		six, err := net.Listen("tcp6", fmt.Sprintf("[::1]:%d", four.Addr().(*net.TCPAddr).Port))
		switch {
		case err == nil:
			return newFamilies(four, six), nil
		case !errors.Is(err, syscall.EADDRINUSE):
			return four, nil
		}
		_ = four.Close()
		if port != 0 || try == tries {
			return nil, err
		}
	}
}

// families is a listener of both address families.
type families struct {
	net.Listener
	six      net.Listener
	accepted chan accepted
	closed   chan struct{}
	close    func() error
	accepts  sync.WaitGroup
}

type accepted struct {
	conn net.Conn
	err  error
}

func newFamilies(four, six net.Listener) *families {
	f := &families{Listener: four, six: six, accepted: make(chan accepted), closed: make(chan struct{})}
	f.close = sync.OnceValue(func() error {
		close(f.closed)
		err := errors.Join(four.Close(), six.Close())
		f.accepts.Wait()
		return err
	})
	f.accepts.Go(func() { f.accept(four) })
	f.accepts.Go(func() { f.accept(six) })
	return f
}

// accept hands the connections and errors of l to Accept until f is closed. The next one waits in the kernel.
func (f *families) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		select {
		case f.accepted <- accepted{c, err}:
		case <-f.closed:
			if err == nil {
				_ = c.Close()
			}
			return
		}
	}
}

func (f *families) Accept() (net.Conn, error) {
	select {
	case a := <-f.accepted:
		return a.conn, a.err
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

func (f *families) Close() error { return f.close() }
