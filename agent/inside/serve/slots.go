package serve

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/inside/kernel"
	"github.com/wisbox/wisbox/agent/inside/monitor"
	"github.com/wisbox/wisbox/agent/wire"
)

const (
	spare     = 1                      // number of monitors ready for the next plain program
	maxSlots  = 100                    // maximum number of programs at once
	idle      = 5 * time.Second        // time after which spare slots end
	startTime = 3 * time.Second        // a call waits for a process
	slowStart = 30 * time.Second       // the same if processes are available, but slow to start
	turn      = 200 * time.Millisecond // a call waits for another's monitor if there are many
	soon      = 50 * time.Millisecond
)

// slot is a monitor that is ready for a call, or runs one.
type slot struct {
	pool   *pool
	socket int
	orders int // socket of a plain monitor, else -1
	pid    int
	fds    []int // pipes of the next call
	call   *call
	since  time.Time
	born   bool // it has reported that it is ready
	doomed bool // it was signalled
	linger bool // it waits for descendants of its program
	gone   bool
}

// pool holds the slots of one kind: of plain programs, or of one template.
type pool struct {
	spare   int
	name    string
	source  []byte // nil for plain programs
	ready   []*slot
	waiting []*call
	size    int // all slots
	births  int // slots that aren't ready yet
	misses  int // slots that couldn't be started, or ended before they were ready
	control int // the template's socket, 0 without one
	loaded  bool
}

func (p *pool) take() *slot {
	if len(p.ready) == 0 {
		return nil
	}
	slot := p.ready[0]
	p.ready = p.ready[1:]
	return slot
}

func (p *pool) forget(c *call) {
	p.waiting = slices.DeleteFunc(p.waiting, func(other *call) bool { return other == c })
}

// wants reports whether to start another monitor. Monitors for Python programs are started ahead of requests, because
// they start slowly; those for plain programs are not, because their threads count against the process limit.
func (p *pool) wants() bool {
	coming := len(p.ready) + p.births
	return coming < len(p.waiting) || p.size < p.spare || coming == 0 && p.source != nil
}

// monitorTasks is how much a monitor's threads count against the process limit.
const monitorTasks = 5

// fit returns how many monitors fit below the process limit, if each with its program takes so many tasks: at least 2,
// at most maxSlots.
func fit(each int) int {
	limit, err := strconv.Atoi(kernel.Limits()["pids"])
	if err != nil {
		return maxSlots // no limit is enforced
	}
	const agentTasks = 8
	return max(2, min(maxSlots, (limit-agentTasks)/each))
}

// most returns the current maximum number of monitors. Short programs share a few, so that processes are left to start
// them; a call that has waited gets another monitor.
func (s *server) most(p *pool) int {
	if p.source == nil && len(p.waiting) > 0 && time.Since(p.waiting[0].began) < turn {
		return s.comfortable
	}
	return s.maxSlots()
}

// maxSlots returns the maximum number of programs at once: a further monitor would take the process that another's
// program needs.
func (s *server) maxSlots() int {
	if s.opts.Most > 0 {
		return min(s.opts.Most, s.possible)
	}
	return s.possible
}

// fill starts as many monitors as calls wait for, and the spare ones.
func (s *server) fill(p *pool) {
	for !s.done && len(s.slots) < s.most(p) && p.wants() {
		if p.source != nil && !s.hasTemplate(p) {
			return
		}
		slot, err := s.giveBirth(p)
		if err != nil {
			p.misses++
			s.after(soon, func() {
				if len(p.waiting) > 0 {
					s.fill(p)
				}
			})
			return
		}
		s.add(slot)
	}
}

func (s *server) add(slot *slot) {
	if slot.pid > 0 {
		s.own[slot.pid] = slot
	}
	slot.pool.births++
	slot.pool.size++
	s.slots[slot] = true
	s.watch(slot.socket, unix.EPOLLIN, func() { s.heard(slot) })
}

// giveBirth starts another monitor. A Python monitor reports its pid itself.
func (s *server) giveBirth(p *pool) (*slot, error) {
	mine, its, err := kernel.SocketPair()
	if err != nil {
		return nil, err
	}
	defer unix.Close(its)
	slot := &slot{pool: p, socket: mine, orders: -1}
	if p.source != nil {
		err = kernel.Tell(p.control, []byte("N"), its)
	} else {
		err = s.startMonitor(slot, its)
	}
	if err != nil {
		_ = unix.Close(mine)
		slot.closeOrders()
		return nil, err
	}
	return slot, unix.SetNonblock(mine, true)
}

func (s *server) startMonitor(slot *slot, socket int) error {
	mine, its, err := kernel.SocketPair()
	if err != nil {
		return err
	}
	defer unix.Close(its)
	slot.orders = mine
	if err := unix.SetNonblock(mine, true); err != nil {
		return err
	}
	kernel.Relaxed(func() { slot.pid, err = s.execute("/proc/self/exe", s.opts.Monitor, socket, its) })
	return err
}

func (sl *slot) closeOrders() {
	if sl.orders >= 0 {
		_ = unix.Close(sl.orders)
		sl.orders = -1
	}
}

// env is the environment of our processes. GOMAXPROCS is 2: with 1 the runtime takes the processor away in each system
// call that waits, which costs 50 µs per call; more would need more threads.
var env = []string{"PATH=" + kernel.DefaultPath, "LANG=C.UTF-8", "GOMAXPROCS=2"}

// execute starts a process of ours with descriptors from 3 on.
func (s *server) execute(path string, argv []string, fds ...int) (int, error) {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(null)
	files := []uintptr{uintptr(null), uintptr(null), 2}
	for _, fd := range fds {
		files = append(files, uintptr(fd))
	}
	return syscall.ForkExec(path, argv, &syscall.ProcAttr{Dir: "/", Env: env, Files: files})
}

// heard receives one message of a monitor or its program. It returns false if there is none.
func (s *server) heard(slot *slot) bool {
	if slot.gone {
		return false
	}
	var buf [4096]byte
	n, fds, err := kernel.Hear(slot.socket, buf[:])
	if errors.Is(err, unix.EAGAIN) {
		return false
	}
	if err != nil || n == 0 {
		s.lose(slot)
		return true
	}
	s.message(slot, buf[0], string(buf[1:n]), fds)
	return true
}

func (s *server) message(slot *slot, kind byte, text string, fds []int) {
	call := slot.call
	switch {
	case kind == 'X':
		report, ok := monitor.DecodeReport([]byte(text))
		if !ok {
			kernel.CloseAll(fds)
			s.lose(slot)
			return
		}
		s.hasEnded(slot, report, fds)
	case kind == 'R':
		pid, bounding, native := strings.Cut(text, "\x00")
		slot.pid, _ = strconv.Atoi(pid)
		s.own[slot.pid] = slot
		if native {
			s.learn(bounding)
		}
		s.isReady(slot, fds)
	case call == nil: // from a program without a call: its end follows
		kernel.CloseAll(fds)
	case kind == 'S':
		call.begun(text)
	case kind == 'T' && len(fds) == 1:
		call.addTerminal(fds[0])
	case kind == 'C' && len(fds) == 2:
		call.addControl(fds)
	case kind == 'P':
		if call.reason == "" {
			call.reason = "pids_limit"
		}
	case kind == 'E':
		why, what, _ := strings.Cut(text, "\x00")
		call.err = &wire.StartError{Kind: why, Message: strings.ToValidUTF8(what, "?")}
	default:
		kernel.CloseAll(fds)
	}
}

// learn stores the first monitor's bounding set, which completes the hello for hosts.
func (s *server) learn(bounding string) {
	if s.bounding != "" {
		return
	}
	s.bounding = bounding
	if strings.Trim(bounding, "0") != "" {
		s.gaps = append(s.gaps, "the capability bounding set of programs is not empty")
	}
	s.greet()
}

func (s *server) isReady(slot *slot, fds []int) {
	p := slot.pool
	if !slot.born {
		p.births--
		slot.born = true
	}
	slot.fds, slot.since = fds, time.Now()
	if len(p.waiting) > 0 {
		call := p.waiting[0]
		p.waiting = p.waiting[1:]
		slot.request(call.request)
		s.dispatch(call, slot)
		return
	}
	p.ready = append(p.ready, slot)
	if len(p.ready) > p.spare {
		s.after(idle, func() { s.retire(p) })
	}
}

// hasEnded handles a report; fds are the pipes for a plain monitor's next call.
func (s *server) hasEnded(slot *slot, report monitor.Report, fds []int) {
	call := slot.call
	slot.call = nil
	if call != nil {
		call.report = &report
		s.ended(call)
		call.conn.flush()
	} else {
		slot.dropReady()
	}
	switch {
	case call != nil && call.head.Flags&wire.WithSelf != 0 && call.reason == "" && len(fds) == 0:
		slot.linger = true
		s.fill(slot.pool)
	case slot.doomed:
		kernel.CloseAll(fds)
		s.discard(slot)
	case len(fds) > 0:
		s.isReady(slot, fds)
	case slot.orders >= 0: // it ends because of its garbage
		s.fill(slot.pool)
	}
}

func (s *server) retire(p *pool) {
	if len(p.ready) > p.spare && time.Since(p.ready[0].since) >= idle {
		s.discard(p.take())
	}
}

// order makes a monitor send a signal to its program, or, with 0, end its program's tree. A Python monitor is signalled
// itself, which is safe because only we reap it.
func (s *server) order(slot *slot, signal int) {
	if slot.orders >= 0 {
		_ = kernel.Tell(slot.orders, []byte{byte(signal)})
		return
	}
	order := unix.SIGTERM
	if signal > 0 {
		order = monitor.SignalOrder(signal)
	}
	s.kill(slot, order)
}

func (s *server) kill(slot *slot, signal syscall.Signal) {
	if slot.pid > 0 && s.own[slot.pid] == slot {
		_ = unix.Kill(slot.pid, signal)
	}
}

// discard ends an idle slot.
func (s *server) discard(slot *slot) {
	s.order(slot, 0)
	s.lose(slot)
}

// giveUp kills a monitor that doesn't end its tree. Its socket may stay open: a child that a program stopped before its
// exec has it open too.
func (s *server) giveUp(slot *slot) {
	s.kill(slot, unix.SIGKILL)
	if _, is := s.leaving[slot.pid]; !is {
		s.leaving[slot.pid] = nil
	}
	s.startSweep()
}

func (sl *slot) dropReady() {
	sl.pool.ready = slices.DeleteFunc(sl.pool.ready, func(other *slot) bool { return other == sl })
	kernel.CloseAll(sl.fds)
	sl.fds = nil
}

// lose forgets a monitor that is gone, or was ordered to exit. The descendants of a dead one become our children; its call
// ends when they are gone.
func (s *server) lose(slot *slot) {
	if slot.gone {
		return
	}
	slot.gone = true
	slot.dropReady()
	s.unwatch(slot.socket)
	_ = unix.Close(slot.socket)
	slot.closeOrders()
	delete(s.slots, slot)
	slot.pool.size--
	if !slot.born {
		slot.pool.births--
		slot.pool.misses++
	}
	if slot.pid > 0 {
		s.leaving[slot.pid], slot.call = slot.call, nil
	}
	s.startSweep()
	s.after(soon, func() { s.fill(slot.pool) })
}

// dispatch connects a call to the slot that has its request.
func (s *server) dispatch(c *call, slot *slot) {
	slot.call, c.slot = c, slot
	c.began, c.request = time.Now(), nil
	for other := range s.calls {
		if other != c && other.slot != nil && (other.head.Flags|c.head.Flags)&wire.WithAgent == 0 {
			other.shared, c.shared = true, true
		}
	}
	before := s.events.Last
	if c.shared {
		before = s.events.Read()
	}
	c.before = &before
	fds := slot.fds
	slot.fds = nil
	c.connect(fds)
	if c.head.Timeout > 0 {
		c.deadline = s.after(time.Duration(min(c.head.Timeout, 1e9)*float64(time.Second)), func() { s.expire(c) })
	}
	s.fill(slot.pool)
}

// request sends a monitor its next program.
func (sl *slot) request(payload []byte) {
	plain := sl.pool.source == nil
	if len(payload) > monitor.Inline {
		if fd, err := kernel.Memfd(payload); err == nil {
			_ = kernel.Tell(sl.socket, []byte("M"), fd)
			_ = unix.Close(fd)
		}
		return
	}
	if plain {
		payload = append([]byte("Q"), payload...)
	}
	_ = kernel.Tell(sl.socket, payload)
}

// noProcess ends a call for which no process was available. It waits longer for a monitor that is only slow to start on
// a busy machine, and for the monitors of others if no more are allowed.
func (s *server) noProcess(c *call, p *pool) {
	if !slices.Contains(p.waiting, c) {
		return
	}
	takesTurns := len(s.slots) >= s.maxSlots()
	isSlow := (p.births > 0 || takesTurns) && p.misses == c.misses && time.Since(c.began) < slowStart
	if isSlow || p.control > 0 && !p.loaded {
		s.after(startTime, func() { s.noProcess(c, p) })
		return
	}
	p.forget(c)
	c.reason = "pids_limit"
	s.finish(c)
}
