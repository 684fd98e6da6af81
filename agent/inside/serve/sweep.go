package serve

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/inside/kernel"
	"github.com/wisbox/wisbox/agent/inside/monitor"
)

const lastWords = 16 // more messages than a monitor can leave unread

const patient = 100 // rounds of a sweep, a millisecond apart; the rest is then killed

type fate = syscall.WaitStatus

func (s *server) startSweep() {
	if !s.sweeping {
		s.sweeping = true
		s.after(time.Millisecond, s.sweep)
	}
}

// sweep reaps our dead children and kills programs that lost their monitor, round by
// round, until neither is left; then the calls of those monitors have ended.
func (s *server) sweep() {
	s.rounds++
	s.reap()
	var orphans []int
	for _, pid := range kernel.Children(os.Getpid()) {
		if s.isProgram(pid) {
			orphans = append(orphans, pid)
		}
	}
	kernel.KillTrees(orphans, s.rounds)
	alive := 0
	for pid := range s.leaving {
		if _, own := s.own[pid]; own {
			alive++
			if s.rounds == patient {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
	s.sweeping = !s.done && (len(orphans) > 0 || alive > 0 || s.rounds < 3)
	if s.sweeping {
		pause := time.Millisecond
		if s.rounds >= patient {
			pause *= 20
		}
		s.after(pause, s.sweep)
		return
	}
	s.rounds = 0
	leaving, fates := s.leaving, s.fates
	s.leaving, s.fates = map[int]*call{}, nil
	for pid, c := range leaving {
		if c != nil {
			s.bury(c, fates[pid])
		}
	}
}

func (s *server) reap() {
	for {
		pid, status, _, err := kernel.Reap()
		if err != nil || pid == 0 {
			return
		}
		if s.fates == nil {
			s.fates = map[int]fate{}
		}
		s.fates[pid] = status
		slot := s.own[pid]
		delete(s.own, pid)
		s.hasDied(slot)
	}
}

// hasDied reads the last messages of a monitor that was reaped, without waiting for the end of its socket.
func (s *server) hasDied(slot *slot) {
	for heard := 0; heard < lastWords && slot != nil && s.slots[slot] && s.heard(slot); heard++ {
	}
	if slot != nil {
		s.lose(slot)
	}
}

// bury ends a call whose monitor is gone. A monitor that was killed while it started the program counts as the program.
// A monitor that ended by itself found no process when it needed one.
func (s *server) bury(c *call, status fate) {
	if status.Signaled() && c.reason == "" {
		c.report = &monitor.Report{Status: status, OrphanKilled: true}
	} else if c.reason == "" {
		c.reason = "sandbox_lost"
		if c.before != nil && s.events.Read().PIDs > c.before.PIDs {
			c.reason = "pids_limit"
		}
	}
	s.ended(c)
}

// isProgram reports whether a process is a program: all our other processes have uid 0 or are in own.
func (s *server) isProgram(pid int) bool {
	if _, own := s.own[pid]; own {
		return false
	}
	if !kernel.Root {
		for _, p := range s.pools {
			if p.births > 0 {
				return false
			}
		}
		return true
	}
	return kernel.UID(pid) > 0
}
