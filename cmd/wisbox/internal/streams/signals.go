package streams

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/patience"
)

// Signalled is the cause of a context that ended by a signal.
type Signalled struct{ Signal syscall.Signal }

func (s Signalled) Error() string { return "ended by signal " + s.Signal.String() }

// Signals handles SIGINT, SIGTERM and SIGHUP. A nil one handles none. Its methods may be called from many goroutines at
// once.
type Signals struct {
	mu   sync.Mutex
	take func(syscall.Signal) bool // may take a signal; nil takes none
	last syscall.Signal            // 0 for none yet
}

// Notify returns a context that ends at the first SIGINT, SIGTERM or SIGHUP that nobody takes, with the signal as its
// cause. The next signal ends the process. It ignores SIGPIPE, which sockets raise too: see [Output].
func Notify(parent context.Context) (context.Context, context.CancelCauseFunc, *Signals) {
	ctx, cancel := context.WithCancelCause(parent)
	s := &Signals{}
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() {
		for {
			select {
			case got := <-ch:
				if sig := got.(syscall.Signal); !s.offer(sig) {
					signal.Reset(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
					cancel(Signalled{sig})
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel, s
}

func (s *Signals) offer(sig syscall.Signal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = sig
	return s.take != nil && s.take(sig)
}

// Received returns the last signal that this process got, or 0.
func (s *Signals) Received() syscall.Signal {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// takenBy makes take decide about signals until stop is called.
func (s *Signals) takenBy(take func(syscall.Signal) bool) (stop func()) {
	if s == nil {
		return func() {}
	}
	set := func(take func(syscall.Signal) bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.take = take
	}
	set(take)
	return func() { set(nil) }
}

const (
	// oneSignal is the time within which the same signal counts once: timeout(1) sends it to this
	// process and then to its group.
	oneSignal = 200 * time.Millisecond
)

// Grace is the time that a program has after a signal before it is killed.
var Grace = patience.For(10 * time.Second)

// Pass passes the name of the first signal on to a program. The program is killed by the end of ctx if it still runs
// after the grace time, or at a second signal.
func (s *Signals) Pass(ctx context.Context) (passing context.Context, to <-chan string, stop func()) {
	passing, kill := context.WithCancelCause(ctx)
	names := make(chan string, 1)
	var first syscall.Signal
	var at time.Time
	var late *time.Timer
	leave := s.takenBy(func(sig syscall.Signal) bool {
		switch {
		case first == 0:
			first, at = sig, time.Now()
			names <- NameOf(sig)
			late = time.AfterFunc(Grace, func() { kill(Late{Signalled{sig}}) })
			return true
		case sig == first && time.Since(at) < oneSignal:
			return true
		}
		return false
	})
	return passing, names, func() {
		leave()
		if late != nil {
			late.Stop()
		}
		kill(nil)
	}
}

// Late is the cause of the end of a program that didn't end at a signal.
type Late struct{ Signalled }

// Report says it for people.
func (l Late) Report() string {
	return fmt.Sprintf("the command still ran %s after %s and was killed", Grace, NameOf(l.Signal))
}

func (l Late) Unwrap() error { return l.Signalled }

// NameOf returns a signal's name without SIG.
func NameOf(sig syscall.Signal) string { return unix.SignalName(sig)[len("SIG"):] }
