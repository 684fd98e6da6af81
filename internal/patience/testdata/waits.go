// Package testdata has waits of many shapes: a function whose name begins with bad ends one after a constant time.
package testdata

import (
	"context"
	"net"
	"time"

	"github.com/wisbox/wisbox/internal/patience"
)

const short = 3 * time.Second

const (
	before = iota
	long   = time.Minute
)

var (
	tested   = 2 * time.Second // a variable, as a test changes it
	patient  = patience.For(3 * time.Second)
	patient2 = 2 * patient
)

func badConstant(ctx context.Context) { context.WithTimeout(ctx, short) }

func badBlock(ctx context.Context) { context.WithTimeoutCause(ctx, long, nil) }

func badVariable(ctx context.Context) { context.WithTimeout(ctx, tested) }

func badLiteral(c net.Conn) { c.SetReadDeadline(time.Now().Add(time.Second)) }

func badSum(c net.Conn) { c.SetDeadline(time.Now().Add(2 * (short + 1))) }

func badDial() { net.DialTimeout("unix", "x", 5*time.Second) }

func goodVariable(ctx context.Context) { context.WithTimeout(ctx, patient) }

func goodTwice(ctx context.Context) { context.WithTimeout(ctx, patient2) }

func goodHere(c net.Conn) { c.SetDeadline(time.Now().Add(patience.For(time.Second))) }

func goodParameter(ctx context.Context, d time.Duration) { context.WithTimeout(ctx, d) }

func goodPast(c net.Conn) { c.SetDeadline(time.Unix(1, 0)) }

func goodPause() { time.Sleep(short) }
