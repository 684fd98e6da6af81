package wisbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

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
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		_ = f.Close()
	}
	return errors.Is(err, fs.ErrExist)
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
