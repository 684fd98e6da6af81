package sandbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/sandbox"
)

// able has all optional capabilities.
type able struct{ sandbox.FileSystem }

func (able) Pause(context.Context) error                                            { return nil }
func (able) Resume(context.Context) error                                           { return nil }
func (able) CPUTime(context.Context) (time.Duration, error)                         { return 0, nil }
func (able) Gauge(context.Context) (g sandbox.Gauge, err error)                     { return g, nil }
func (able) EndAll(context.Context, sandbox.Status) error                           { return nil }
func (able) KeepSecrets(context.Context, map[string][]byte) error                   { return nil }
func (able) CheapRanges(context.Context) bool                                       { return true }
func (able) OwnRange(context.Context, []sandbox.Owner) (o sandbox.Owner, err error) { return o, nil }

type (
	ableBackend struct {
		sandbox.Backend
		able
	}
	ableSandbox struct {
		sandbox.Sandbox
		able
	}
)

// Decorators that have only Unwrap.
type (
	backend struct{ sandbox.Backend }
	box     struct{ sandbox.Sandbox }
	runner  struct{ sandbox.Runner }
	process struct{ sandbox.Process }
)

func (d backend) Unwrap() sandbox.Backend { return d.Backend }
func (d box) Unwrap() sandbox.Sandbox     { return d.Sandbox }
func (d runner) Unwrap() sandbox.Runner   { return d.Runner }
func (d process) Unwrap() sandbox.Process { return d.Process }

// pauser is a process that As finds behind others.
type pauser struct{ sandbox.Process }

func (pauser) Pause(context.Context) error  { return nil }
func (pauser) Resume(context.Context) error { return nil }

func has[T any](v any) bool {
	_, ok := sandbox.As[T](v)
	return ok
}

func TestADecoratorLosesNoCapability(t *testing.T) {
	sb := ableSandbox{}
	for name, decorated := range map[string]any{
		"itself": sb, "once": box{sb}, "twice": box{box{sb}}, "as a runner": runner{runner{box{sb}}},
	} {
		assert.True(t, has[sandbox.Pauser](decorated), name)
		assert.True(t, has[sandbox.CPUTimer](decorated), name)
		assert.True(t, has[sandbox.Gauger](decorated), name)
		assert.True(t, has[sandbox.Ender](decorated), name)
		assert.True(t, has[sandbox.SecretKeeper](decorated), name)
		assert.True(t, has[sandbox.FileSystem](decorated), name)
	}
	assert.True(t, has[sandbox.Ranger](backend{backend{ableBackend{}}}))
	assert.True(t, has[sandbox.Pauser](process{pauser{}}))
}

func TestWhatNobodyCanIsNotFound(t *testing.T) {
	for _, v := range []any{nil, box{}, box{box{}}, runner{}, backend{}, process{}, 7} {
		assert.False(t, has[sandbox.Pauser](v))
		assert.False(t, has[sandbox.Ranger](v))
	}
}
