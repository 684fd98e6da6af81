package podman

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/wisbox/wisbox/sandbox"
)

const (
	imageTimeout = time.Hour // maximum for a build, a pull, a load or a save; the context may end it earlier
	maxLine      = 1 << 20   // bytes of one line of progress
)

// transfer is do for streams: they can't be repeated, so it checks that the service answers before it sends the first
// byte.
func (b *Backend) transfer(ctx context.Context, r request) error {
	e, err := b.living(ctx)
	if err != nil {
		return err
	}
	return e.transfer(ctx, r)
}

// living returns the current connection, after checking that the service answers.
func (b *Backend) living(ctx context.Context) (*engine, error) {
	e, err := b.engine(ctx)
	if err == nil {
		if err = e.ping(ctx); err != nil {
			b.forget(e)
			e, err = b.engine(ctx)
		}
	}
	return e, err
}

func (e *engine) transfer(ctx context.Context, r request) error {
	if r.stream != nil {
		r.stream = io.NopCloser(r.stream)
	}
	r.limit = imageTimeout
	err := e.do(ctx, r)
	if p, ok := r.sink.(*progress); ok && err == nil {
		err = p.result()
	}
	if isNotFound(err) {
		return fail(sandbox.ErrNotFound, err, "image not found")
	}
	if r.explain != nil && isAnswer(err) && ctx.Err() == nil {
		if ours := r.explain(err); ours != nil {
			return ours
		}
	}
	return explain(ctx, r.doing, err)
}

// progress reads the JSON lines that Podman streams.
type progress struct {
	line    func(string)
	partial []byte
	failed  string
}

func (p *progress) Write(data []byte) (int, error) {
	p.partial = append(p.partial, data...)
	for {
		one, rest, found := bytes.Cut(p.partial, []byte("\n"))
		if !found {
			break
		}
		p.event(string(one))
		p.partial = rest
	}
	if len(p.partial) > maxLine {
		return 0, errors.New("podman's progress is not a sequence of lines")
	}
	return len(data), nil
}

func (p *progress) event(text string) {
	var e struct {
		Stream string `json:"stream"`
		Error  any    `json:"error"`
	}
	if json.Unmarshal([]byte(text), &e) != nil {
		return
	}
	if msg, ok := e.Error.(string); ok && msg != "" {
		p.failed = msg
	}
	if p.line == nil {
		return
	}
	for lines := bufio.NewScanner(strings.NewReader(e.Stream)); lines.Scan(); {
		p.line(lines.Text())
	}
}

func (p *progress) result() error {
	p.event(string(p.partial))
	if p.failed != "" {
		return &apiError{Status: http.StatusInternalServerError, Message: p.failed}
	}
	return nil
}
