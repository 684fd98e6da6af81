package shelltool

import (
	"io"

	"github.com/wisbox/wisbox/internal/capture"
	"github.com/wisbox/wisbox/sandbox"
)

// record keeps the two streams of one call.
type record struct {
	outputs  *outputs
	id       string
	out, err *capture.Stream // nil when nothing is captured
}

func (o *outputs) record() *record { return &record{outputs: o, id: newID()} }

func (r *record) options(stream string) *capture.Options {
	opts := &capture.Options{}
	if r.outputs.root != nil {
		opts.Open = func() (io.WriteCloser, error) { return r.outputs.create(r.id, stream) }
	}
	return opts
}

func (r *record) attach(cmd *sandbox.Cmd) {
	out, errs := r.options(streamOut), r.options(streamErr)
	r.out, r.err = capture.NewStream(out), capture.NewStream(errs)
	cmd.Stdout, cmd.Stderr, cmd.Capture = r.out, r.err, out.Source()
}

// abandon closes the outputs of a call that failed.
func (r *record) abandon() {
	if r.out == nil {
		return
	}
	r.out.Finish(sandbox.Stream{})
	r.err.Finish(sandbox.Stream{})
	r.outputs.remove(r.id)
}

// finish puts the streams into the result, and cut ones into the store.
func (r *record) finish(res sandbox.Result, to *ExecuteResult) {
	if r.out == nil {
		to.StdoutDropped, to.StderrDropped = res.Stdout.Bytes, res.Stderr.Bytes
		return
	}
	cut := r.out.Cut(res.Stdout) || r.err.Cut(res.Stderr)
	if cut {
		r.out.SpillAll()
		r.err.SpillAll()
	}
	out, errs := r.out.Finish(res.Stdout), r.err.Finish(res.Stderr)
	to.Stdout, to.StdoutDropped = out.Text, out.Dropped
	to.Stderr, to.StderrDropped = errs.Text, errs.Dropped
	if !cut || r.outputs.root == nil {
		return
	}
	if err := r.outputs.commit(r.id, out.Total, errs.Total); err != nil {
		to.Notices = append(to.Notices, "the missing output could not be stored on the host's disk")
		r.outputs.remove(r.id)
		return
	}
	to.OutputID = r.id
}
