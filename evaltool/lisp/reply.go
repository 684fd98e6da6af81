package lisp

import (
	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/tool"
)

// Status is the outcome of an evaluation.
type Status string

// The statuses of an [Evaluation].
const (
	StatusOK        Status = "ok"
	StatusError     Status = "error"     // a condition was not handled
	StatusTimedOut  Status = "timed_out" // the timeout of configure-limits passed
	StatusCancelled Status = "cancelled" // the caller's context ended
	StatusEnded     Status = "ended"     // SBCL died, or had to be killed: definitions are lost
)

// reply is an answer with the status and output of the process.
type reply struct {
	answer
	status         Status
	late           Status // reason for an interrupt, or ""
	stdout, stderr excerpt
	notes          []string
}

const killedNote = "the code could not be interrupted, so Lisp was ended: the definitions of this session are lost, the next call starts it again"

// reply combines the results: a is nil if the process is gone, why is set if it was interrupted.
func (p *process) reply(r request, a *answer, why Status) (*reply, error) {
	rep := &reply{late: why}
	stdout, stderr := p.Output()
	stderr.remove(runtimeNoise())
	rep.stdout, rep.stderr = stdout.excerpt(r.limit), stderr.excerpt(r.limit)
	if a == nil {
		rep.died(p, why)
		return rep, nil
	}
	if a.Outcome == outcomeNoPackage {
		return nil, tool.Errorf(tool.NotFound, "package %q not found", clip.Words(r.Package)).In("package")
	}
	rep.answer = *a
	rep.stdout.Dropped += a.OutDropped
	rep.stderr.Dropped += a.ErrDropped
	switch a.Outcome {
	case outcomeDone:
		rep.status = StatusOK
	case outcomeError:
		rep.status = StatusError
	default:
		rep.status = why
		if why == "" { // interrupted by a foreign signal
			rep.status = StatusCancelled
		}
	}
	return rep, nil
}

func (rep *reply) died(p *process, why Status) {
	rep.status = StatusEnded
	if why != "" {
		rep.notes = append(rep.notes, killedNote)
		return
	}
	rep.Error = &Condition{
		Type:    "LISP-ENDED",
		Message: "SBCL is gone: " + how(p.Result()) + "; the definitions of this session are lost, the next call starts it again",
	}
	rep.notes = append(rep.notes, p.Result().Notices...)
}
