// Package monitor is the process that runs one program after the other and ends the tree of each. As a child subreaper
// it inherits every orphan of its program, including double forks and new sessions: when it has no children, nothing of
// the program is left.
//
// It always stays uid 0, so no program can signal or trace it. Programs are forked with
// vfork semantics: the child shares this process's memory until it has executed the
// program, and changes its user in between. From then on the kernel denies other processes of that user access to the
// memory, because a change of IDs makes it not dumpable.
//
// Descriptor 3 is a socket for messages, from the agent
//
//	Q payload    a run frame's payload; M with a descriptor that holds one
//
// and to it:
//
//	R pid NUL bounding set, with three pipes' ends: ready for a first program
//	S pid        the program has begun, if the request wants to know
//	T, C         with the terminal's end; with both ends of the control pipes
//	E kind NUL text    the program can't be started as requested
//	P            no process was available for it
//	X report     the tree is gone; with the next program's pipes, or none if
//	             this monitor ends. If descendants may stay and do, it ends with the
//	             last of them, and its program has ended before
//
// Descriptor 4 is a socket for orders, which are read while a program runs: a byte is a signal for its process group; 0
// and the socket's end mean that its tree must end.
//
// Python's monitors have no descriptor 4: SIGTERM is the order to end, SIGRTMIN+n the order for signal n.
//
// A monitor has as few threads as possible, because they count against the process limit. So it doesn't collect
// garbage, and ends if there is too much.
package monitor

import (
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/inside/kernel"
	"github.com/wisbox/wisbox/agent/wire"
)

const (
	// Socket is the descriptor of the agent's messages.
	Socket = 3
	// Inline is the size of a request that fits in a message; a larger one comes in a file.
	Inline = 64 << 10

	rtMin    = 34              // SIGRTMIN of the C libraries, on which Python's monitors base their orders
	patience = 3 * time.Second // maximum wait for a process
	waste    = 4 << 20         // bytes of garbage after which a monitor ends
)

// Orders is the descriptor of the agent's orders.
const Orders = 4

// SignalOrder returns the signal that makes a Python program's monitor send signal n to its program's group.
func SignalOrder(n int) syscall.Signal { return syscall.Signal(rtMin + n) }

// Run runs a monitor. workspace is the directory in which programs begin.
func Run(workspace string) {
	kernel.Name("wisbox-monitor")
	kernel.CloseOnExec()
	debug.SetGCPercent(-1)
	m := &monitor{workspace: workspace, heard: make([]byte, Inline+1)}
	hears := make(chan struct{})
	go m.heed(hears)
	<-hears // now both have a thread; if no process were left, they couldn't get one
	runtime.LockOSThread()
	kernel.Punctual()
	kernel.MonitorRights()
	kernel.LowerRank()
	if !m.ready() {
		return
	}
	for m.next != nil && m.serve() {
	}
}

type monitor struct {
	workspace string
	next      *pipes
	heard     []byte // room for a message
	used      int    // bytes of garbage, approximately

	mu      sync.Mutex
	program int    // its pid until it is reaped, else 0
	running bool   // a program's tree exists
	asked   bool   // the agent has ordered its end
	early   []byte // orders that came before the program was started
}

// pipes holds the ends of the next program's pipes.
type pipes struct{ fds []int }

// ready announces this monitor to the agent, with its first program's pipes.
func (m *monitor) ready() bool {
	ours, err := m.prepare()
	if err != nil {
		return false
	}
	defer kernel.CloseAll(ours)
	bounding := kernel.Status()["CapBnd"]
	return kernel.Tell(Socket, []byte("R"+strconv.Itoa(os.Getpid())+"\x00"+bounding), ours...) == nil
}

// prepare makes the next program's pipes and returns our ends of them.
func (m *monitor) prepare() (ours []int, err error) {
	m.next = nil
	kernel.AsUser(func() {
		var theirs []int
		if ours, theirs, err = kernel.Pipes(kernel.Streams...); err == nil {
			m.next = &pipes{theirs}
		}
	})
	return ours, err
}

// serve runs one program; it returns false if this monitor must end.
func (m *monitor) serve() bool {
	payload, ok := m.hear()
	if !ok {
		return false
	}
	m.begin()
	start := &start{m: m, stdio: m.next.fds, code: 127}
	pid := start.run(payload)
	start.begun()
	ours, err := m.prepare()
	report := Report{Status: syscall.WaitStatus(start.code << 8)}
	if pid > 0 {
		if start.notify {
			_ = kernel.Tell(Socket, []byte("S"+strconv.Itoa(pid)))
		}
		report = m.seeToEnd(pid, start.self)
	}
	if start.self && m.left() {
		return m.linger(start, report, ours)
	}
	m.used += 4*len(payload) + 16<<10
	asked := m.end()
	if err != nil || asked || m.used > waste {
		kernel.CloseAll(ours)
		ours, m.next = nil, nil
	}
	_ = kernel.Tell(Socket, append([]byte("X"), report.encode()...), ours...)
	kernel.CloseAll(ours)
	start.close()
	return true
}

// linger sends the report while descendants may stay, and ends with the last of them.
func (m *monitor) linger(s *start, report Report, unused []int) bool {
	kernel.CloseAll(append(unused, m.next.fds...))
	_ = kernel.Tell(Socket, append([]byte("X"), report.encode()...))
	s.close()
	m.seeToEnd(0, false)
	return false
}

// hear waits for a request. The payload is valid until the next one.
func (m *monitor) hear() (payload []byte, ok bool) {
	buf := m.heard
	n, fds, err := kernel.Hear(Socket, buf)
	if err != nil || n == 0 {
		return nil, false
	}
	if buf[0] == 'Q' && len(fds) == 0 {
		return buf[1:n], true
	}
	if buf[0] != 'M' || len(fds) != 1 {
		return nil, false
	}
	file := os.NewFile(uintptr(fds[0]), "request")
	defer file.Close()
	payload, err = io.ReadAll(io.LimitReader(file, wire.MaxFrame+1))
	return payload, err == nil
}

func (m *monitor) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = true
}

// end reports whether the agent has ordered the end.
func (m *monitor) end() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = false
	return m.asked
}

// heed executes the agent's orders, while the main goroutine waits for the program. It blocks a thread.
func (m *monitor) heed(hears chan<- struct{}) {
	close(hears)
	var order [16]byte
	for {
		n, fds, err := kernel.Hear(Orders, order[:])
		kernel.CloseAll(fds)
		if err != nil || n != 1 {
			order[0] = 0
		}
		m.obey(order[0])
		if err != nil || n == 0 {
			return
		}
	}
}

func (m *monitor) obey(order byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.act(order)
}

// act executes an order of the agent. The caller holds m.mu.
func (m *monitor) act(order byte) {
	if order != 0 {
		if m.program > 0 {
			_ = unix.Kill(-m.program, unix.Signal(order))
		} else { // a monitor that was signalled runs no further program
			m.early = append(m.early, order)
		}
		return
	}
	m.asked = true
	if !m.running {
		os.Exit(0)
	}
	if m.program > 0 {
		_ = unix.Kill(-m.program, unix.SIGKILL)
		_ = unix.Kill(m.program, unix.SIGKILL)
	} else { // main waits for the remaining descendants
		kernel.KillTrees(kernel.Children(os.Getpid()), 0)
	}
}
