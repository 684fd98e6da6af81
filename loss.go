package wisbox

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/tool"
)

// heldMark stands in a session's directory while a holder lives: found at the
// start of one, it tells that the last was killed.
const heldMark = "held"

// markHeld sets the mark and tells whether it was there.
func markHeld(dir *overlay.Dir) (killed bool) {
	path := filepath.Join(sessionPath(dir), heldMark)
	_, err := os.Lstat(path)
	_ = os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())), 0o600)
	return err == nil
}

// onlyHeld tells whether a session's holder is the only process that has it open:
// nobody uses it then, though its programs may run.
func onlyHeld(path string) bool {
	raw, err := os.ReadFile(filepath.Join(path, heldMark))
	holder, err2 := strconv.Atoi(string(raw))
	if err != nil || err2 != nil {
		return false
	}
	who, err := lockers(filepath.Join(path, "life.lock"))
	return err == nil && slices.Equal(slices.Compact(who), []int{holder})
}

// lockers are the processes that have a flock on a file, as the kernel lists them.
func lockers(path string) (pids []int, err error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return nil, err
	}
	locks, err := os.ReadFile("/proc/locks")
	for line := range strings.Lines(string(locks)) {
		f := strings.Fields(line) // 1: FLOCK ADVISORY READ 14514 fe:00:10404933 0 EOF
		if len(f) < 6 || f[1] != "FLOCK" || !strings.HasSuffix(f[5], ":"+strconv.FormatUint(st.Ino, 10)) {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, err
}

func unmarkHeld(dir *overlay.Dir) {
	_ = os.Remove(filepath.Join(sessionPath(dir), heldMark))
}

// sessionPath is the host directory of a session, which no program sees.
func sessionPath(dir *overlay.Dir) string { return filepath.Dir(dir.SnapshotsPath()) }

// lossText says what went with a holder that was killed.
const lossText = "the process that held this session was killed: the processes, kept interpreters and their names from before are lost; files are not"

// noteLoss makes the session say what was lost: inspect always, the first
// evaluation on kept state once.
func (l *local) noteLoss(killed bool) {
	l.lost = killed
	l.unsaid.Store(killed)
}

// sayLoss adds the loss to the result of a first evaluation.
func (l *local) sayLoss(res *tool.Result) *tool.Result {
	r, ok := res.Value.(evaltool.Result)
	if !ok || !l.unsaid.CompareAndSwap(true, false) {
		return res
	}
	if r.Message != "" {
		r.Message += "; "
	}
	r.Message += lossText
	said := *res
	said.Value, said.Text = r, r.Text()
	return &said
}
