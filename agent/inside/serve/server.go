package serve

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/inside/kernel"
	"github.com/wisbox/wisbox/agent/wire"
)

const (
	overdue = 400 * time.Millisecond // time for a monitor to end its tree before the agent does it
	look    = 250 * time.Millisecond // interval of checks of unread data in sockets, while programs run
	unread  = 16 << 20               // maximum bytes of unread data
)

// Options of an agent. All but Most are required.
type Options struct {
	Control   int      // socket of messages, each of which brings a connection; its end is the agent's
	Listener  int      // listening socket for uid 0, -1 without one
	Workspace string   // directory in which programs begin
	Secrets   string   // directory for secrets
	Path      string   // search path of programs
	Monitor   []string // argv of a monitor for that workspace
	Most      int      // maximum number of programs at once, others wait; 0 means as many as the process limit allows
}

// Serve runs an agent. Its goroutine must be locked to the main thread. It returns when the control socket has ended
// and no program is left.
func Serve(opts Options) error {
	gaps := kernel.AgentRights()
	loop, err := newLoop()
	if err != nil {
		return err
	}
	s := &server{
		loop: loop, opts: opts, gaps: gaps, events: kernel.NewEvents(), conns: map[*conn]bool{}, calls: map[*call]bool{},
		pools: map[string]*pool{"": {spare: spare}}, slots: map[*slot]bool{}, own: map[int]*slot{}, leaving: map[int]*call{},
		room: make([]byte, wire.HeaderSize+wire.Chunk), detached: map[uint64]*call{},
	}
	s.nobody = &conn{server: s, lost: true}
	s.possible = fit(monitorTasks + 1)
	s.comfortable, s.mostSockets = min(fit(2*monitorTasks), s.maxSlots()), mostSockets()
	kernel.SpareThreads(1)
	s.watch(opts.Control, unix.EPOLLIN, s.hear)
	if opts.Listener >= 0 {
		s.watch(opts.Listener, unix.EPOLLIN, s.accept)
	}
	s.fill(s.pools[""])
	for !s.done {
		s.turn(s.flush())
	}
	s.shut()
	return nil
}

type server struct {
	*loop
	opts     Options
	gaps     []string
	events   *kernel.Events
	bounding string // bounding set of programs, as reported by the first monitor; "" before
	conns    map[*conn]bool
	calls    map[*call]bool // of all connections
	room     []byte         // buffer for reading
	drain    []byte         // buffer for discarded data
	looking  bool
	done     bool

	detached map[uint64]*call // programs that outlive their connections, ended ones too
	lastID   uint64
	nobody   *conn // has the programs that no host has

	pools    map[string]*pool // by key of their source, "" for plain programs
	slots    map[*slot]bool
	own      map[int]*slot // our children that are not programs, with their slot, nil for a template
	leaving  map[int]*call // those of them that must end, with the call that waits for it
	fates    map[int]fate
	rounds   int
	sweeping bool

	possible    int // maximum number of monitors at once
	comfortable int // the same while programs are short-lived
	mostSockets int // of a connection
}

// hear receives one message of the control socket: a connection's descriptors.
func (s *server) hear() {
	var kind [16]byte
	n, fds, err := kernel.Hear(s.opts.Control, kind[:])
	switch {
	case errors.Is(err, unix.EAGAIN):
	case err != nil || n == 0:
		s.unwatch(s.opts.Control)
		s.done = true
	case n == 1 && kind[0] == 'C' && (len(fds) == 1 || len(fds) == 2):
		s.connect(fds[0], fds[1:])
	default:
		kernel.CloseAll(fds)
	}
}

// accept accepts a connection to the listener from uid 0 only.
func (s *server) accept() {
	fd, _, err := unix.Accept4(s.opts.Listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	if err != nil {
		return
	}
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil || int(peer.Uid) != os.Geteuid() {
		_ = unix.Close(fd)
		return
	}
	s.connect(fd, nil)
}

func (s *server) connect(fd int, more []int) {
	_ = unix.SetNonblock(fd, true)
	c := &conn{server: s, fd: fd, descriptors: -1, calls: map[uint32]*call{}, sources: map[string]bool{}, sockets: map[uint32]socket{}}
	s.conns[c] = true
	if len(more) > 0 {
		c.descriptors = more[0]
		_ = unix.SetNonblock(more[0], true)
		s.watch(more[0], unix.EPOLLIN, c.handOver)
	}
	s.watch(fd, unix.EPOLLIN, c.read)
	s.greet()
}

// greet sends hello to new hosts, once the hello is complete and no program of a lost connection runs any more: the new
// host may be the owner of that connection.
func (s *server) greet() {
	if s.bounding == "" {
		return
	}
	for c := range s.calls {
		if c.conn.lost && c.id == 0 {
			return
		}
	}
	for c := range s.conns {
		if !c.greeted {
			c.greet()
		}
	}
}

// flush writes queued data to hosts. It returns true if streams that had waited for room have added more.
func (s *server) flush() (more bool) {
	for c := range s.conns {
		c.flush()
	}
	for c := range s.conns {
		more = more || c.size() > 0 && !c.writing
	}
	return more
}

// look ends all programs if they have too much unread data in sockets, which is freed with them.
func (s *server) look() {
	s.reap()
	s.looking = len(s.calls) > 0
	if !s.looking {
		return
	}
	if kernel.Unread() > unread {
		for c := range s.calls {
			s.end(c, "oom_killed")
		}
	}
	s.after(look, s.look)
}

// end orders the end of a call's tree; the outcome follows with the report.
func (s *server) end(c *call, reason string) {
	if !s.calls[c] || c.reason != "" && !c.warned || c.report != nil {
		return
	}
	if c.reason == "" {
		c.reason = reason
	}
	c.warned = false
	slot := c.slot
	if slot == nil {
		s.pools[c.key].forget(c)
		s.finish(c)
		return
	}
	slot.doomed = true
	s.order(slot, 0)
	s.after(overdue, func() {
		if slot.call == c {
			s.giveUp(slot)
		}
	})
}

// expire ends a call at its time limit. A plain program gets SIGTERM first, and a moment to clean up.
func (s *server) expire(c *call) {
	const reason = "timed_out"
	if c.key != "" || c.control || c.slot == nil || !s.calls[c] || c.reason != "" || c.report != nil {
		s.end(c, reason)
		return
	}
	c.reason, c.warned = reason, true
	s.signal(c, int(unix.SIGTERM))
	c.deadline = s.after(termGrace, func() { s.end(c, reason) })
}

// termGrace is the time from SIGTERM to SIGKILL at a time limit. Hosts wait longer before they act themselves.
const termGrace = 2 * time.Second

// signal passes a signal on to a call's program.
func (s *server) signal(c *call, number int) {
	if c.slot != nil && number > 0 && number <= lastSignal {
		c.slot.doomed = true // a late signal must not reach the slot's next call
		s.order(c.slot, number)
	}
}

const lastSignal = 30

// ended is called when a call's tree is gone.
func (s *server) ended(c *call) {
	c.lasted = time.Since(c.began)
	c.closeStreams()
}

// finish sends a call's last frames.
func (s *server) finish(c *call) {
	delete(s.calls, c)
	s.cancel(c.deadline)
	if c.id != 0 {
		c.isOver()
		return
	}
	c.conn.last(c)
	if c.conn.lost {
		s.greet()
	}
}

// shut ends every program: each monitor kills its tree and exits. shut kills a monitor that doesn't, and then its
// remaining programs.
func (s *server) shut() {
	for slot := range s.slots {
		_ = unix.Close(slot.socket)
		slot.closeOrders()
	}
	begin := time.Now()
	for _, step := range []struct {
		signal   unix.Signal
		patience time.Duration
	}{{unix.SIGTERM, 300 * time.Millisecond}, {unix.SIGKILL, 1700 * time.Millisecond}} {
		for pid := range s.own {
			_ = unix.Kill(pid, step.signal)
		}
		for time.Since(begin) < step.patience {
			s.sweep()
			if len(kernel.Children(os.Getpid())) == 0 {
				return
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
}
