package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/wisbox/wisbox/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	echoParams struct {
		Text  string `json:"text" jsonschema:"what to say"`
		Times int    `json:"times,omitempty" default:"1" min:"1" max:"1000000"`
	}
	echoResult struct {
		Text string `json:"text"`
		Size int    `json:"size"`
	}
	statusResult struct {
		Status string `json:"status"`
	}
	plotResult struct {
		Title string `json:"title"`
	}
)

func (r statusResult) Failed() bool { return true }
func (r statusResult) Text() string { return "it ended: " + r.Status }
func (r plotResult) Blobs() []tool.Blob {
	return []tool.Blob{{MIME: "image/png", Data: []byte("PNG")}, {MIME: "text/csv", Data: []byte("a,b")}}
}

// fakes are tools with the behaviour that a test needs.
type fakes struct {
	running atomic.Int64
	most    atomic.Int64
	cancels atomic.Int64
	release chan struct{} // ends the calls of wait
	began   chan struct{} // one for each call of wait
}

func newFakes() *fakes {
	return &fakes{release: make(chan struct{}), began: make(chan struct{}, 10000)}
}

func (f *fakes) set() *tool.Set {
	return tool.NewSet(
		tool.New(tool.Spec{Name: "echo", Title: "Echo", Description: "says it", ReadOnly: true, Idempotent: true},
			func(_ context.Context, p echoParams) (echoResult, error) {
				text := strings.Repeat(p.Text, p.Times)
				return echoResult{text, len(text)}, nil
			}),
		tool.New(tool.Spec{Name: "wait"}, f.wait),
		tool.New(tool.Spec{Name: "status", Destructive: true}, func(context.Context, struct{}) (statusResult, error) {
			return statusResult{"timed_out"}, nil
		}),
		tool.New(tool.Spec{Name: "plot"}, func(context.Context, struct{}) (plotResult, error) { return plotResult{"t"}, nil }),
		tool.New(tool.Spec{Name: "refuse"}, func(context.Context, struct{}) (struct{}, error) {
			return struct{}{}, tool.Errorf(tool.Exists, "a is there already").In("file_path")
		}),
		tool.New(tool.Spec{Name: "break"}, func(context.Context, struct{}) (struct{}, error) {
			return struct{}{}, errors.New("open /root/secret: denied")
		}),
		tool.New(tool.Spec{Name: "panic"}, func(context.Context, struct{}) (struct{}, error) { panic("as asked") }),
		tool.New(tool.Spec{Name: "tell"}, func(ctx context.Context, _ struct{}) (struct{}, error) {
			tool.Progress(ctx)("half of it")
			f.began <- struct{}{}
			<-f.release
			return struct{}{}, nil
		}),
	)
}

// pollable returns a set with a tool that returns its caller's waiting time, and a tool to poll with.
func pollable(more ...string) *tool.Set {
	tools := []tool.Tool{tool.New(tool.Spec{Name: "long"}, func(ctx context.Context, _ struct{}) (statusResult, error) {
		return statusResult{tool.Polling(ctx).String()}, nil
	})}
	for _, name := range more {
		tools = append(tools, tool.New(tool.Spec{Name: name}, func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }))
	}
	return tool.NewSet(tools...)
}

func (f *fakes) wait(ctx context.Context, _ struct{}) (struct{}, error) {
	now := f.running.Add(1)
	defer f.running.Add(-1)
	for old := f.most.Load(); now > old && !f.most.CompareAndSwap(old, now); old = f.most.Load() {
	}
	f.began <- struct{}{}
	select {
	case <-f.release:
		return struct{}{}, nil
	case <-ctx.Done():
		f.cancels.Add(1)
		return struct{}{}, ctx.Err()
	}
}

// sessions counts what a server opens and closes.
type sessions struct {
	set    *tool.Set
	fail   error
	hold   chan struct{} // a Close waits until it is closed, if it isn't nil
	mu     sync.Mutex
	opened int
	closed int
	over   chan struct{} // one for each that was closed
}

func newSessions(set *tool.Set) *sessions { return &sessions{set: set, over: make(chan struct{}, 100)} }

func (s *sessions) open(context.Context) (Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return nil, s.fail
	}
	s.opened++
	return &fakeSession{s, fmt.Sprintf("s%d", s.opened)}, nil
}

func (s *sessions) counts() (opened, closed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened, s.closed
}

type fakeSession struct {
	all *sessions
	id  string
}

func (s *fakeSession) ID() string { return s.id }

func (s *fakeSession) Call(ctx context.Context, name string, args json.RawMessage) (*tool.Result, error) {
	return s.all.set.Call(ctx, name, args)
}

func (s *fakeSession) Close(context.Context) error {
	if s.all.hold != nil {
		<-s.all.hold
	}
	s.all.mu.Lock()
	s.all.closed++
	s.all.mu.Unlock()
	s.all.over <- struct{}{}
	return nil
}
