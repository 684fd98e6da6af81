package wasm

import (
	"context"
	"maps"
	"slices"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/tool"
)

// keeper holds the names of one kept interpreter: the memory as it was after the
// last evaluation that came to its end. One that was stopped changes nothing.
type keeper struct {
	session *Session
	turn    chan struct{} // holds a token while an evaluation or a reset is on

	// guarded by turn
	image *image // nil: nothing was kept yet
	files *memoryFiles
}

func (s *Session) keeper(name string) (*keeper, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.kept[name]; k != nil {
		return k, nil
	}
	if len(s.kept) >= MaxContexts {
		return nil, tool.Errorf(tool.Limit, "there are %d kept interpreters, which is the limit; reset one", MaxContexts).In("context")
	}
	k := &keeper{session: s, turn: make(chan struct{}, 1)}
	s.kept[name] = k
	return k, nil
}

func (s *Session) keepers() []*keeper {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.kept))
}

func (k *keeper) take(ctx context.Context) error {
	select {
	case k.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return tool.AsError(ctx.Err())
	}
}

func (k *keeper) release() { <-k.turn }

func (s *Session) evaluateKept(ctx context.Context, python *interpreter, name string, t *task, stdout, stderr *evaltool.Stream) (evaltool.Response, error) {
	k, err := s.keeper(name)
	if err != nil {
		return evaltool.Response{}, err
	}
	if err := k.take(ctx); err != nil {
		return evaltool.Response{}, err
	}
	defer k.release()
	from := k.image
	if from == nil {
		from, k.files = python.image, s.workspace()
	}
	out, err := python.evaluate(ctx, t, from, k.files, k.keep)
	if err != nil {
		return evaltool.Response{}, err
	}
	resp := respond(t, out, stdout, stderr)
	if out.answer == nil {
		resp.Notes = append(resp.Notes, "the names of the kept interpreter are as they were before this call")
	}
	return resp, nil
}

// keep replaces the image.
func (k *keeper) keep(memory []byte) error {
	if err := k.session.account(int64(len(memory)) - k.size()); err != nil {
		return err
	}
	img, err := newImage(memory)
	if err != nil {
		_ = k.session.account(k.size() - int64(len(memory)))
		return tool.Errorf(tool.Unavailable, "there is no memory to keep the names in").Because(err)
	}
	if k.image != nil {
		k.image.close()
	}
	k.image = img
	return nil
}

func (k *keeper) size() int64 {
	if k.image == nil {
		return 0
	}
	return int64(k.image.size)
}

// account adds to what the session keeps, within its bound.
func (s *Session) account(bytes int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if most := 2 * s.engine.opts.Memory; bytes > 0 && s.keptBytes+bytes > most {
		return tool.Errorf(tool.Limit, "the kept interpreters would have more than %d bytes together; the names are as they were before this call: delete large values, or reset an interpreter", most).In("state")
	}
	s.keptBytes += bytes
	return nil
}

func (k *keeper) forget() {
	if k.image != nil {
		_ = k.session.account(-k.size())
		k.image.close()
	}
	k.image = nil
}

func (k *keeper) end() {
	k.turn <- struct{}{}
	defer k.release()
	k.forget()
	k.files = nil
}

// Close implements evaltool.Resetter.
func (s *Session) Close() error {
	for _, k := range s.keepers() {
		k.end()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.kept)
	return nil
}

// Reset implements evaltool.Resetter: it waits for an evaluation that is on.
func (s *Session) Reset(ctx context.Context, context string) error {
	s.mu.Lock()
	k := s.kept[context]
	s.mu.Unlock()
	if k == nil {
		return nil
	}
	if err := k.take(ctx); err != nil {
		return err
	}
	defer k.release()
	k.forget()
	k.files = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kept, context)
	return nil
}
