package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// signalled is the cause of a context that ended by a signal.
type signalled struct{ sig syscall.Signal }

func (s signalled) Error() string { return "ended by signal " + s.sig.String() }

// signals handles SIGINT, SIGTERM and SIGHUP.
type signals struct {
	mu   sync.Mutex
	take func(syscall.Signal) bool // may take a signal; nil takes none
	last syscall.Signal            // 0 for none yet
}

// notifySignals returns a context that ends at the first SIGINT, SIGTERM or SIGHUP that nobody
// takes, with the signal as its cause. The next signal ends the process. It ignores SIGPIPE, which
// sockets raise too: see [output].
func notifySignals(parent context.Context) (context.Context, context.CancelCauseFunc, *signals) {
	ctx, cancel := context.WithCancelCause(parent)
	s := &signals{}
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() {
		for {
			select {
			case got := <-ch:
				if sig := got.(syscall.Signal); !s.offer(sig) {
					signal.Reset(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
					cancel(signalled{sig})
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel, s
}

func (s *signals) offer(sig syscall.Signal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = sig
	return s.take != nil && s.take(sig)
}

// received returns the last signal that this process got, or 0.
func (s *signals) received() syscall.Signal {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// takenBy makes take decide about signals until stop is called.
func (s *signals) takenBy(take func(syscall.Signal) bool) (stop func()) {
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
	// signalGrace is the time that a program has after a signal before it is killed.
	signalGrace = 10 * time.Second
	// oneSignal is the time within which the same signal counts once: timeout(1) sends it to this
	// process and then to its group.
	oneSignal = 200 * time.Millisecond
)

// passSignals passes the first signal on to a program. The program is killed by the end of ctx if it
// still runs after the grace time, or at a second signal.
func (a *app) passSignals(ctx context.Context) (passing context.Context, to <-chan string, stop func()) {
	passing, kill := context.WithCancelCause(ctx)
	names := make(chan string, 1)
	var first syscall.Signal
	var at time.Time
	var late *time.Timer
	leave := a.signals.takenBy(func(sig syscall.Signal) bool {
		switch {
		case first == 0:
			first, at = sig, time.Now()
			names <- signalName(sig)
			late = time.AfterFunc(signalGrace, func() { kill(lateAfter{signalled{sig}}) })
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

// lateAfter is the cause of the end of a program that didn't end at a signal.
type lateAfter struct{ signalled }

func (l lateAfter) Unwrap() error { return l.signalled }

// signalName returns a signal's name without SIG.
func signalName(sig syscall.Signal) string { return unix.SignalName(sig)[len("SIG"):] }
