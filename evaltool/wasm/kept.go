package wasm

import (
	"context"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/internal/kept"
	"github.com/wisbox/wisbox/tool"
)

// MaxContexts is the maximum number of kept interpreters of one Session. Together they keep at most twice the memory of
// one evaluation.
const MaxContexts = kept.Max

// names holds the names of one kept interpreter: the memory after the last evaluation that finished. A stopped
// evaluation changes nothing.
type names struct {
	image *image // nil if nothing was kept yet
	files *memoryFiles
}

func (s *Session) evaluateKept(ctx context.Context, python *interpreter, req evaltool.Request, t *task, stdout, stderr *evaltool.Stream) (resp evaltool.Response, err error) {
	err = s.kept.Do(ctx, req.Context, func(ctx context.Context, n *names) error {
		defer req.Feed.ReleaseAfter(ctx, req.Timeout)()
		from := n.image
		if from == nil {
			from, n.files = python.image, s.workspace()
		}
		out, err := python.evaluate(ctx, t, from, n.files, func(memory []byte) error { return s.keep(n, memory) })
		if err != nil {
			return err
		}
		resp = respond(t, out, stdout, stderr)
		if out.answer == nil {
			resp.Notes = append(resp.Notes, "the names of the kept interpreter are as they were before this call")
		}
		return nil
	})
	return resp, err
}

// keep replaces the image.
func (s *Session) keep(n *names, memory []byte) error {
	if err := s.account(int64(len(memory)) - n.size()); err != nil {
		return err
	}
	img, err := newImage(memory)
	if err != nil {
		_ = s.account(n.size() - int64(len(memory)))
		return tool.Errorf(tool.Unavailable, "there is no memory to keep the names in").Because(err)
	}
	if n.image != nil {
		n.image.close()
	}
	n.image = img
	return nil
}

func (n *names) size() int64 {
	if n.image == nil {
		return 0
	}
	return int64(n.image.size)
}

// account adds to the session's kept bytes, up to the maximum.
func (s *Session) account(bytes int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if most := 2 * s.engine.opts.Memory; bytes > 0 && s.keptBytes+bytes > most {
		return tool.Errorf(tool.Limit, "the kept interpreters would have more than %d bytes together; the names are as they were before this call: delete large values, or reset an interpreter", most).In("state")
	}
	s.keptBytes += bytes
	return nil
}

func (s *Session) forget(n *names) {
	if n.image != nil {
		_ = s.account(-n.size())
		n.image.close()
	}
	*n = names{}
}

// Cancel implements evaltool.Resetter.
func (s *Session) Cancel(context string) {
	s.kept.Cancel(func(name string) bool { return name == context })
}

// Reset implements evaltool.Resetter: it waits for a running evaluation.
func (s *Session) Reset(ctx context.Context, context string) error {
	return s.kept.Reset(ctx, func(name string) bool { return name == context })
}

// Close implements evaltool.Resetter. It cancels a running evaluation.
func (s *Session) Close() error { return s.kept.Close() }
