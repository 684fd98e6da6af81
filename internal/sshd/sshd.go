// Package sshd is the server's side of SSH for one session: programs, their terminals, SFTP and
// connections to the session's own ports. It uses a pipe that the client has created, so there is
// nobody to authenticate; it never listens on a port.
package sshd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/semaphore"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Bounds of one connection.
const (
	maxChannels = 64 // simultaneous; each can make the library keep 2 MiB
	maxSFTP     = 2  // channels with SFTP, each of which keeps up to 60 MiB and up to 3 file streams
)

// Session is the session of a client: a [wisbox.Session].
type Session interface {
	Start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error)
	Inside() sandbox.FileSystem
	Dial(ctx context.Context, port uint16) (net.Conn, error)
}

// Options of [Serve]. Session and HostKey are required.
type Options struct {
	Session Session
	// HostKey is the server's key, see the function [HostKey].
	HostKey ssh.Signer
	// Shell returns the shell of the session's image; default bash.
	Shell func(ctx context.Context) string
	// Explain describes in sentences how a program ended, if its exit code isn't enough; they go to
	// the client's standard error. Default: nothing is printed.
	Explain func(sandbox.Result) []string
	// OneAtATime makes SFTP make one change at a time, for a session that rolls back failed calls:
	// there, a file that is being written makes every other change wait.
	OneAtATime bool

	times times
}

// times are the time limits of SFTP.
type times struct {
	gap       time.Duration // for a piece of a file, after later ones have come
	idle      time.Duration // for the next read of a file, before its stream is closed
	stuck     time.Duration // for the next bytes of a file that is being written
	operation time.Duration // for everything except the bytes of a file
}

var usual = times{20 * time.Second, 2 * time.Second, time.Minute, 30 * time.Second}

// serverVersion makes OpenSSH's client say when the reader of its output has gone (eow@openssh.com), which it says to
// its own server alone.
const serverVersion = "SSH-2.0-OpenSSH_wisbox"

// Serve serves one client until it leaves or ctx ends, and ends the programs that the client has
// started. It closes conn, whose Read and Write must end then. Neither of these ends is an error; a
// client that doesn't speak SSH is.
func Serve(ctx context.Context, conn net.Conn, opts *Options) error {
	defer conn.Close()
	s := &server{opts: *opts, free: semaphore.NewWeighted(maxChannels), freeSFTP: semaphore.NewWeighted(maxSFTP)}
	if s.opts.Shell == nil {
		s.opts.Shell = func(context.Context) string { return "bash" }
	}
	if s.opts.Explain == nil {
		s.opts.Explain = func(sandbox.Result) []string { return nil }
	}
	s.opts.times = cmp.Or(s.opts.times, usual)
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer cancel()
	config := &ssh.ServerConfig{NoClientAuth: true, ServerVersion: serverVersion}
	config.AddHostKey(opts.HostKey)
	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, io.EOF) {
			return nil
		}
		return tool.Errorf(tool.Invalid, "the client breaks the SSH protocol; ssh-proxy is for OpenSSH's ProxyCommand").Because(err)
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { ssh.DiscardRequests(requests) }) // keepalive@openssh.com wants any answer
	for asked := range channels {
		if !s.free.TryAcquire(1) {
			_ = asked.Reject(ssh.ResourceShortage, fmt.Sprintf("there are %d channels, the maximum; close some first", maxChannels))
			continue
		}
		all.Go(func() {
			defer s.free.Release(1)
			s.serve(ctx, asked)
		})
	}
	return nil
}

type server struct {
	opts     Options
	free     *semaphore.Weighted // channels
	freeSFTP *semaphore.Weighted
	named    sync.Once
	user     string // of programs; set by named
}

func (s *server) serve(ctx context.Context, asked ssh.NewChannel) {
	switch asked.ChannelType() {
	case "session":
		s.serveSession(ctx, asked)
	case "direct-tcpip":
		s.forward(ctx, asked)
	default:
		_ = asked.Reject(ssh.UnknownChannelType, "wisbox serves programs, SFTP and TCP ports of the session; "+
			"it refuses sockets, agents, displays and tunnels")
	}
}
