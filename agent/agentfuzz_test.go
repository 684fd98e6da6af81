package agent

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/agent/agenttest"
	"github.com/wisbox/wisbox/agent/wire"
	_ "github.com/wisbox/wisbox/internal/properties"
)

// barrier numbers the ping that ends what is sent; no other frame has it.
const barrier = math.MaxUint32

// FuzzAgent: whatever a host says, the agent answers in frames that make sense,
// or ends; and nothing of it is left. The messages come from a seed: no coverage
// guides into another process.
func FuzzAgent(f *testing.F) {
	adoptOrphans(f)
	for seed := range 5 { // a process each
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed int) { sayToAgent(t, said.Example(seed)) })
}

func TestAgentEndsOnGarbage(t *testing.T) {
	adoptOrphans(t)
	for _, garbage := range [][]byte{
		wire.Append(nil, wire.Run, 1, []byte("{}\n")),
		binary.BigEndian.AppendUint32(nil, 1<<30),
		bytes.Repeat([]byte{0xff}, 100),
	} {
		sayToAgent(t, garbage)
	}
}

// said generates a host's bytes. Most of them are valid, since invalid ones may end the agent before it reads the rest.
var said = rapid.Custom(func(t *rapid.T) []byte {
	h := &anyHost{T: t, wild: rapid.IntRange(0, 3).Draw(t, "wild") == 0}
	all := wire.Append(nil, wire.Source, 0, []byte(fuzzKey+" echo\n"+fuzzSource))
	for range rapid.IntRange(1, 20).Draw(t, "frames") {
		all = append(all, h.frame()...)
	}
	if h.one(10) {
		all[rapid.IntRange(0, len(all)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		all = all[:rapid.IntRange(1, len(all)).Draw(t, "end")]
	}
	return all
})

const (
	fuzzKey    = "0123456789abcdef0123456789abcdef"
	fuzzSource = "def main(inp, out): out.write(inp.read())"
)

// anyHost says anything that a host can say; a wild one, what none should.
type anyHost struct {
	*rapid.T
	wild     bool
	runs     uint32 // calls so far, and those that attach, from 1000 on
	attached uint32
	sockets  uint32 // from 2000 on
}

// one is true for a wild host, once in n times.
func (h *anyHost) one(n int) bool { return h.wild && rapid.IntRange(1, n).Draw(h.T, "one") == n }

func (h *anyHost) bytes(least, most int) []byte {
	return rapid.SliceOfN(rapid.Byte(), least, most).Draw(h.T, "bytes")
}

func pick[T any](h *anyHost, from ...T) T { return rapid.SampledFrom(from).Draw(h.T, "pick") }

func (h *anyHost) frame() []byte {
	call := rapid.Uint32Range(1, h.runs+1).Draw(h.T, "call")
	if h.one(8) {
		return wire.Append(nil, wire.Source, call, []byte(pick(h, fuzzKey+" echo\n"+fuzzSource, "bad bad\nimport nosuchmodule", fuzzKey, "")))
	}
	if h.one(8) {
		return wire.Append(nil, wire.Type(rapid.Byte().Draw(h.T, "type")), call, h.bytes(0, 8))
	}
	if pick(h, true, false, false) {
		return h.socket()
	}
	switch typ := pick(h, wire.Run, wire.Run, wire.Run, wire.Data, wire.Data, wire.Credit, wire.Kill, wire.Signal, wire.Resize, wire.Ping, wire.Limits, wire.Attach, wire.List, wire.Taken, wire.Put); typ {
	case wire.Run:
		if h.runs++; !h.one(8) {
			call = h.runs
		}
		return wire.Append(nil, typ, call, h.run())
	case wire.Data:
		return wire.Append(nil, typ|wire.Type(pick(h, wire.Stdin, wire.CtlIn)), call, h.bytes(0, 300))
	case wire.Credit:
		return wire.Append(nil, typ|wire.Type(pick(h, wire.Stdout, wire.Stderr, wire.CtlOut)), call, h.bytes(4, 4))
	case wire.Kill:
		return wire.Append(nil, typ, call, []byte(pick(h, "cancelled", "disk_limit", "", "\xff\"\\")))
	case wire.Signal:
		return wire.Append(nil, typ, call, h.bytes(1, 1))
	case wire.Attach:
		h.attached++
		return wire.Append(nil, typ, 1000+h.attached, binary.BigEndian.AppendUint64(nil, uint64(rapid.IntRange(0, 4).Draw(h.T, "id"))))
	case wire.Put:
		return wire.Append(nil, typ, call, append([]byte{1, 0x20}, pick(h, "name\x00content", "\x00", "../x\x00y", "a\x00", ".b\x00", "no end")...))
	case wire.Resize:
		return wire.Append(nil, typ, call, h.bytes(4, 4))
	default:
		return wire.Append(nil, typ, call, h.bytes(0, 4))
	}
}

// socket is a frame about one. It connects to a port where nobody should listen, and to
// ports on which earlier sockets listen.
func (h *anyHost) socket() []byte {
	number := 2000 + rapid.Uint32Range(0, h.sockets).Draw(h.T, "socket")
	switch typ := pick(h, wire.SocketOpen, wire.SocketOpen, wire.SocketData, wire.SocketCredit, wire.SocketEnd, wire.SocketClose, wire.SocketReset); typ {
	case wire.SocketOpen:
		if h.sockets++; !h.one(8) {
			number = 2000 + h.sockets
		}
		what := pick(h, "listen 127.0.0.1 0", "udp 127.0.0.1 0", "connect 1", "connect 48129", "listen 127.0.0.1 48129",
			fmt.Sprintf("accept %d", 2000+rapid.Uint32Range(0, h.sockets).Draw(h.T, "listener")))
		if h.one(4) {
			what = pick(h, "", "socket", "socket6", "accept x", "connect 0", "connect 65536", "listen ::1 0", "listen a b", "udp 127.0.0.1 70000", "\xff")
		}
		return wire.Append(nil, typ, number, []byte(what))
	case wire.SocketCredit:
		return wire.Append(nil, typ, number, pick(h, []byte{0, 0, 0, 0}, h.bytes(4, 4)))
	case wire.SocketData:
		return wire.Append(nil, typ, number, h.bytes(0, 300))
	default:
		return wire.Append(nil, typ, number, nil)
	}
}

// run is a request. The programs are harmless whatever their arguments.
func (h *anyHost) run() []byte {
	head := wire.RequestHead{
		Flags:   wire.Flags(rapid.Uint8Range(0, 255).Draw(h.T, "flags")),
		Timeout: rapid.Float64Range(0, 0.1).Draw(h.T, "timeout"),
		TTY:     [2]uint16{rapid.Uint16().Draw(h.T, "columns"), rapid.Uint16().Draw(h.T, "rows")},
	}
	for i := range head.Out {
		head.Out[i] = [2]int64{rapid.Int64Range(-1, 100).Draw(h.T, "forward"), rapid.Int64Range(0, 100).Draw(h.T, "tail")}
	}
	if h.one(4) {
		head.Timeout, head.Out[0] = rapid.Float64().Draw(h.T, "timeout"), [2]int64{rapid.Int64().Draw(h.T, "forward"), rapid.Int64().Draw(h.T, "tail")}
	}
	argv := pick(h, []string{"/bin/true"}, []string{"/bin/cat"}, []string{"/bin/echo", "hi"}, []string{"/bin/sleep", "30"},
		[]string{"/bin/sh", "-c", "sleep 30 & echo hi >&2"}, []string{"\xff"}, []string{""})
	if head.Argc = uint32(len(argv)); h.one(8) {
		head.Argc = rapid.Uint32().Draw(h.T, "argc")
	}
	if pick(h, true, false, false) {
		copy(head.Python[:], fuzzKey)
	}
	payload, err := binary.Append(nil, binary.BigEndian, head)
	if err != nil {
		h.Fatal(err)
	}
	words := append([]string{pick(h, "", "", "", "..", "none", "/proc/self", "\xff")}, argv...)
	words = append(words, pick(h, nil, []string{"A=b"}, []string{"=", "A"}, []string{"PATH=", "A=\xff"})...)
	return append(payload, strings.Join(append(words, ""), "\x00")...)
}

// sayToAgent starts an agent, says something, waits until that is taken in, and
// ends the connection. The agent serves the next one, and ends on request.
func sayToAgent(t testing.TB, said []byte) {
	dir, err := os.MkdirTemp("", "wisbox-agent-")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	_ = os.Chmod(dir, 0o777)
	a := agenttest.Start(t, dir)
	watchdog := time.AfterFunc(time.Minute, func() { _ = a.Process.Kill() })
	defer watchdog.Stop()
	conn := a.Connect(t)
	answered, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- listen(conn, sync.OnceFunc(func() { close(answered) })) }()
	_, _ = conn.Write(wire.Append(said, wire.Ping, barrier, nil)) // an agent that has ended the connection takes no more
	select {
	case <-answered:
	case <-time.After(200 * time.Millisecond): // the ping was taken for the rest of another frame
	}
	_ = conn.(*net.UnixConn).CloseWrite()
	require.NoError(t, <-ended)
	conn.Close()
	next, err := Dial(t.Context(), a.Connect(t))
	require.NoError(t, err, "it serves the next host")
	require.NoError(t, next.Close())
	a.End()
	require.NoError(t, a.Wait())
	requireNoOrphans(t)
}

// listen reads what the agent says until it ends, and reports the answer to the
// last ping.
func listen(stdout io.Reader, answered func()) error {
	ended := map[uint32]bool{}
	for r := wire.NewReader(stdout); ; {
		f, err := r.Next()
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		switch typ, ch := f.Split(); {
		case typ == wire.Pong && f.Call == barrier:
			answered()
		case typ == wire.IsHello || typ == wire.Pong || typ == wire.LimitsAre || typ == wire.Listed || typ == wire.PortIs || typ == wire.SocketOpened || typ == wire.Done && len(f.Payload) > 0:
			if typ != wire.Pong && !json.Valid(f.Payload) {
				return fmt.Errorf("%#x is not JSON: %q", typ, f.Payload)
			}
		case ended[f.Call]:
			return fmt.Errorf("%#x after the exit of call %d", typ, f.Call)
		case typ == wire.Exited:
			var report wire.Exit
			if err := json.Unmarshal(f.Payload, &report); err != nil {
				return fmt.Errorf("exit %q: %w", f.Payload, err)
			}
			ended[f.Call] = true
		case typ == wire.SocketData, typ == wire.SocketEnd, typ == wire.SocketClosed, typ == wire.SocketCredit && len(f.Payload) == 4:
		case typ == wire.Started, typ == wire.Done, typ == wire.Credit && len(f.Payload) == 4, (typ == wire.Data || typ == wire.Tail) && ch < wire.Channels:
		default:
			return fmt.Errorf("an unknown frame %#x", f.Type)
		}
	}
}

// adoptOrphans has what a child of ours leaves become ours, to be seen.
func adoptOrphans(t testing.TB) {
	require.NoError(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

func requireNoOrphans(t require.TestingT) {
	assert.Eventually(t, func() bool { return len(orphans()) == 0 }, 30*time.Second, time.Millisecond)
	require.Empty(t, orphans(), "processes are left")
}

// orphans are our children, but for those that have ended, which it reaps.
func orphans() (left []string) {
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		children, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		for child := range strings.FieldsSeq(string(children)) {
			pid, _ := strconv.Atoi(child)
			if got, _ := unix.Wait4(pid, nil, unix.WNOHANG, nil); got == 0 {
				args, _ := os.ReadFile("/proc/" + child + "/cmdline")
				left = append(left, child+" "+string(bytes.ReplaceAll(args, []byte{0}, []byte{' '})))
			}
		}
	}
	return left
}
