package monitor

import (
	"encoding/binary"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/inside/kernel"
	"github.com/wisbox/wisbox/internal/retry"
)

// Report describes the end of a program.
type Report struct {
	Status       syscall.WaitStatus
	User, System float64 // seconds
	MaxRSS       int64   // KiB
	OrphanKilled bool    // a descendant was killed while the program ran, and not by its parent
}

// reportSize is the size of the encoding, which Python's monitors share: struct "<iddq?".
const reportSize = 4 + 8 + 8 + 8 + 1

type packed struct {
	Status       int32
	User, System float64
	MaxRSS       int64
	OrphanKilled bool
}

func (r Report) encode() []byte {
	b, _ := binary.Append(nil, binary.LittleEndian, packed{int32(r.Status), r.User, r.System, r.MaxRSS, r.OrphanKilled})
	return b
}

// DecodeReport decodes the bytes after the X of a message.
func DecodeReport(b []byte) (Report, bool) {
	var p packed
	if len(b) != reportSize {
		return Report{}, false
	}
	_, err := binary.Decode(b, binary.LittleEndian, &p)
	return Report{syscall.WaitStatus(p.Status), p.User, p.System, p.MaxRSS, p.OrphanKilled}, err == nil
}

// seeToEnd waits for the program, then kills until no descendant is left. The proof is that no child is left, because
// every orphan becomes this process's child. With only it returns when the program itself has ended; pid 0 waits for
// the descendants of such a program.
func (m *monitor) seeToEnd(pid int, only bool) (report Report) {
	m.mu.Lock()
	m.program = pid
	for _, order := range m.early {
		m.act(order)
	}
	if m.asked {
		m.act(0)
	}
	m.mu.Unlock()
	ended := false
	for rounds := 0; ; {
		if pid == 0 {
			ended = m.isAsked()
		}
		if !ended {
			waitForDeath()
		}
		got, status, usage, err := m.reap()
		switch {
		case err != nil:
			return report
		case got == pid:
			report.Status, report.MaxRSS = status, usage.Maxrss
			report.User, report.System = seconds(usage.Utime), seconds(usage.Stime)
			ended = true
			if only && !m.isAsked() {
				return report
			}
		case got > 0:
			report.OrphanKilled = report.OrphanKilled || !ended && status.Signaled() && status.Signal() == syscall.SIGKILL
		case ended:
			rounds++
			kernel.KillTrees(kernel.Children(os.Getpid()), rounds)
			if rounds >= 100 {
				pause(time.Millisecond)
			}
		}
	}
}

// left reports whether a program has left living descendants.
func (m *monitor) left() bool {
	for {
		if pid, _, _, err := m.reap(); err != nil || pid == 0 {
			return err == nil
		}
	}
}

// waitForDeath returns when a child has died, and leaves it unreaped, so that its number can't be reused.
func waitForDeath() {
	_, _ = retry.Interrupted(func() (int, error) {
		return 0, unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
	})
}

// reap reaps one dead child. From then on nobody signals it.
func (m *monitor) reap() (pid int, status syscall.WaitStatus, usage syscall.Rusage, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pid, status, usage, err = kernel.Reap()
	if pid > 0 && pid == m.program {
		m.program = 0
	}
	return pid, status, usage, err
}

func seconds(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }

// pause leaves the processor to dying processes.
func pause(d time.Duration) {
	t := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&t, nil)
}
