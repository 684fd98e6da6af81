package agent

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// barrier numbers the ping that ends what is said; no other frame has it.
const barrier = math.MaxUint32

// FuzzAgent: whatever a host says, the agent answers in frames that make sense,
// or ends; and nothing of it is left. What is said comes from a seed: no coverage
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
		appendFrame(nil, typeRun, 1, []byte("{}\n")),
		binary.BigEndian.AppendUint32(nil, 1<<30),
		bytes.Repeat([]byte{0xff}, 100),
	} {
		sayToAgent(t, garbage)
	}
}

// said is what a host says. Most of it is right, for what is wrong may end the
// agent before it comes to the rest.
var said = rapid.Custom(func(t *rapid.T) []byte {
	h := &anyHost{T: t, wild: rapid.IntRange(0, 3).Draw(t, "wild") == 0}
	all := appendFrame(nil, typeSource, 0, []byte(fuzzKey+" echo\n"+fuzzSource))
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
	wild bool
	runs uint32
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
		return appendFrame(nil, typeSource, call, []byte(pick(h, fuzzKey+" echo\n"+fuzzSource, "bad bad\nimport nosuchmodule", fuzzKey, "")))
	}
	if h.one(8) {
		return appendFrame(nil, frameType(rapid.Byte().Draw(h.T, "type")), call, h.bytes(0, 8))
	}
	switch typ := pick(h, typeRun, typeRun, typeRun, typeData, typeData, typeCredit, typeKill, typeSignal, typeResize, typePing, typeLimits); typ {
	case typeRun:
		if h.runs++; !h.one(8) {
			call = h.runs
		}
		return appendFrame(nil, typ, call, h.run())
	case typeData:
		return appendFrame(nil, typ|frameType(pick(h, chanStdin, chanCtlIn)), call, h.bytes(0, 300))
	case typeCredit:
		return appendFrame(nil, typ|frameType(pick(h, chanStdout, chanStderr, chanCtlOut)), call, h.bytes(4, 4))
	case typeKill:
		return appendFrame(nil, typ, call, []byte(pick(h, "cancelled", "disk_limit", "", "\xff\"\\")))
	case typeSignal:
		return appendFrame(nil, typ, call, h.bytes(1, 1))
	case typeResize:
		return appendFrame(nil, typ, call, h.bytes(4, 4))
	default:
		return appendFrame(nil, typ, call, h.bytes(0, 4))
	}
}

// run is a request. The programs are harmless whatever their arguments.
func (h *anyHost) run() []byte {
	head := requestHead{
		Flags:   rapid.Uint8Range(0, 31).Draw(h.T, "flags"),
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
// ends the stream.
func sayToAgent(t require.TestingT, said []byte) {
	dir, err := os.MkdirTemp("", "wisbox-agent-")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	_ = os.Chmod(dir, 0o777)
	argv := Command()
	cmd := exec.Command(argv[0], argv[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	watchdog := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer watchdog.Stop()
	require.NoError(t, handOver(stdin, (&Options{Workspace: dir}).withDefaults()))
	answered, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- listen(stdout, sync.OnceFunc(func() { close(answered) })) }()
	_, _ = stdin.Write(appendFrame(said, typePing, barrier, nil)) // an agent that has ended takes no more
	select {
	case <-answered:
	case <-time.After(200 * time.Millisecond): // the ping was taken for the rest of another frame
	}
	stdin.Close()
	require.NoError(t, <-ended)
	require.NoError(t, cmd.Wait(), "%s", stderr.String())
	require.Empty(t, stderr.String())
	requireNoOrphans(t)
}

// listen reads what the agent says until it ends, and tells of the answer to the
// last ping.
func listen(stdout io.Reader, answered func()) error {
	ended := map[uint32]bool{}
	for r := newFrameReader(stdout); ; {
		f, err := r.next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		switch typ, ch := f.split(); {
		case typ == typePong && f.call == barrier:
			answered()
		case typ == typeHello || typ == typePong || typ == typeLimitsAre:
			if typ != typePong && !json.Valid(f.payload) {
				return fmt.Errorf("%#x is no JSON: %q", typ, f.payload)
			}
		case ended[f.call]:
			return fmt.Errorf("%#x after the exit of call %d", typ, f.call)
		case typ == typeExit:
			var report exit
			if err := json.Unmarshal(f.payload, &report); err != nil {
				return fmt.Errorf("exit %q: %w", f.payload, err)
			}
			ended[f.call] = true
		case typ == typeStarted, typ == typeCredit && len(f.payload) == 4, (typ == typeData || typ == typeTail) && ch < channels:
		default:
			return fmt.Errorf("an unknown frame %#x", f.typ)
		}
	}
}

// adoptOrphans has what a child of ours leaves become ours, to be seen.
func adoptOrphans(t testing.TB) {
	require.NoError(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

func requireNoOrphans(t require.TestingT) {
	assert.Eventually(t, func() bool { return len(orphans()) == 0 }, 10*time.Second, time.Millisecond)
	require.Empty(t, orphans(), "processes are left")
}

// orphans are our children, but for those that have ended, which it reaps.
func orphans() (left []string) {
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		children, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		for _, child := range strings.Fields(string(children)) {
			pid, _ := strconv.Atoi(child)
			if got, _ := unix.Wait4(pid, nil, unix.WNOHANG, nil); got == 0 {
				args, _ := os.ReadFile("/proc/" + child + "/cmdline")
				left = append(left, child+" "+string(bytes.ReplaceAll(args, []byte{0}, []byte{' '})))
			}
		}
	}
	return left
}
