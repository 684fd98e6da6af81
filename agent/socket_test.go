package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/sandbox"
)

// pair is a socket pair: one end as a descriptor, the other as what it was made into.
func pair(t *testing.T) (theirs int, ours socket) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	file := os.NewFile(uintptr(fds[1]), "ours")
	conn, err := net.FileConn(file)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(); file.Close(); unix.Close(fds[0]) })
	return fds[0], socket{conn.(*net.UnixConn)}
}

// TestASocketThatBlocksIsClosedAllTheSame: who shares the open socket with us may
// have it block; a Read and a Write that are stuck end with the Close.
func TestASocketThatBlocksIsClosedAllTheSame(t *testing.T) {
	theirs, s := pair(t)
	raw, err := s.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) { require.NoError(t, unix.SetNonblock(int(fd), false)) }))
	reading, ended := make(chan struct{}), make(chan error, 2)
	go func() {
		close(reading)
		_, err := s.Read(make([]byte, 1))
		ended <- err
	}()
	go func() {
		for {
			if _, err := s.Write(make([]byte, 1<<20)); err != nil {
				ended <- err
				return
			}
		}
	}()
	<-reading
	_, err = unix.Read(theirs, make([]byte, 1)) // waits for the Write
	require.NoError(t, err)
	require.NoError(t, s.Close())
	for range 2 {
		require.Error(t, <-ended)
	}
}

// TestOnlyTheAgentsSocketIsTaken: what a hello names may be anything.
func TestOnlyTheAgentsSocketIsTaken(t *testing.T) {
	inode := func(fd int) uint64 {
		var stat unix.Stat_t
		require.NoError(t, unix.Fstat(fd, &stat))
		return stat.Ino
	}
	theirs, _ := pair(t)
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	datagrams, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(datagrams)
	self := Hello{PID: os.Getpid(), Socket: [2]uint64{uint64(theirs), inode(theirs)}}
	got, err := takeSocket(os.Getpid(), self)
	require.NoError(t, err)
	require.NoError(t, got.Close())
	for name, h := range map[string]Hello{
		"another process":  {PID: self.PID + 1, Socket: self.Socket},
		"another socket":   {PID: self.PID, Socket: [2]uint64{self.Socket[0], self.Socket[1] + 1}},
		"no socket":        {PID: self.PID, Socket: [2]uint64{uint64(null.Fd()), inode(int(null.Fd()))}},
		"no stream":        {PID: self.PID, Socket: [2]uint64{uint64(datagrams), inode(datagrams)}},
		"no descriptor":    {PID: self.PID, Socket: [2]uint64{1 << 40, 1}},
		"nothing was told": {},
	} {
		_, err := takeSocket(os.Getpid(), h)
		require.Error(t, err, name)
	}
}

// TestAnImpostorBehindTheSocketIsNoAgent: what answers there must know what was
// said on the stream.
func TestAnImpostorBehindTheSocketIsNoAgent(t *testing.T) {
	for name, said := range map[string][]byte{
		"another answer": appendFrame(nil, typePong, 0, make([]byte, 16)),
		"another frame":  appendFrame(nil, typeExit, 1, []byte(`{"status":"exited"}`)),
		"garbage":        []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
		"nothing":        nil,
	} {
		t.Run(name, func(t *testing.T) {
			theirs, agents := pair(t)
			_, err := agents.Write(said)
			require.NoError(t, err)
			var stat unix.Stat_t
			require.NoError(t, unix.Fstat(theirs, &stat))
			hello, err := json.Marshal(Hello{Version: version, PID: os.Getpid(), Socket: [2]uint64{uint64(theirs), stat.Ino}})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			stream := &impostor{bytes.NewReader(appendFrame(nil, typeHello, 0, hello))}
			_, err = Dial(ctx, stream, &Options{PID: func(context.Context, Hello) (int, error) { return os.Getpid(), nil }})
			require.ErrorIs(t, err, sandbox.ErrUnavailable)
		})
	}
}
