// Package sshd is the server's side of SSH over one session: programs, their terminals,
// SFTP and connections to the session's own ports. It speaks over a pipe that the client
// has made, so there is nobody to authenticate; it listens nowhere, and never is to.
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
	maxChannels = 64 // at a time; each can make the library keep 2 MiB
	maxSFTP     = 2  // of them that speak SFTP, which keeps up to 60 MiB, and holds up to 3 streams of files
)

// Session is what a client works on: a [wisbox.Session].
type Session interface {
	Start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error)
	Inside() sandbox.FileSystem
	Dial(ctx context.Context, port uint16) (net.Conn, error)
}

// Options of [Serve]. Session and HostKey are required.
type Options struct {
	Session Session
	// HostKey is what the client knows the server by, see [HostKey].
	HostKey ssh.Signer
	// Shell names the shell of the session's image; default bash.
	Shell func(ctx context.Context) string
	// Explain says in sentences how a program ended, where its exit code doesn't; the
	// client's standard error gets them. Default: nothing is printed.
	Explain func(sandbox.Result) []string
	// OneAtATime has SFTP make one change at a time, for a session that rolls failed
	// calls back: a file that is being written keeps every other change waiting there.
	OneAtATime bool

	times times
}

// times are how long SFTP waits.
type times struct {
	gap       time.Duration // for a piece of a file, while later ones have come
	idle      time.Duration // for the next read of a file, before its stream is given back
	stuck     time.Duration // for the next bytes of a file that is being written
	operation time.Duration // for all that is not the bytes of a file
}

var usual = times{20 * time.Second, 2 * time.Second, time.Minute, 30 * time.Second}

// Serve speaks with one client until it leaves or ctx ends, and ends what the client has
// started. It closes conn, whose Read and Write must end then. Neither of these ends is an
// error; a client that doesn't speak SSH is.
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
	config := &ssh.ServerConfig{NoClientAuth: true, ServerVersion: "SSH-2.0-wisbox"}
	config.AddHostKey(opts.HostKey)
	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, io.EOF) {
			return nil
		}
		return tool.Errorf(tool.Invalid, "the client doesn't speak SSH as it should; ssh-proxy is for OpenSSH's ProxyCommand").Because(err)
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { ssh.DiscardRequests(requests) }) // keepalive@openssh.com wants any answer
	for asked := range channels {
		if !s.free.TryAcquire(1) {
			_ = asked.Reject(ssh.ResourceShortage, fmt.Sprintf("there are %d channels; close some first", maxChannels))
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
