package toolerr_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

func TestErrorsOfTheSandboxHaveTheKindsOfTools(t *testing.T) {
	known := tool.Errorf(tool.NoSpace, "no room").Because(sandbox.ErrLost)
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("%w: too few", sandbox.ErrInvalid), "invalid: too few"},
		{fmt.Errorf("%w: no python3", sandbox.ErrUnsupported), "unsupported: no python3"},
		{fmt.Errorf("%w: open it", sandbox.ErrExists), "busy: open it"},
		{fmt.Errorf("%w: no podman", sandbox.ErrUnavailable), "unavailable: no podman"},
		{fmt.Errorf("%w: no box", sandbox.ErrNotFound), "unavailable: no box"},
		{fmt.Errorf("%w: it is gone", sandbox.ErrLost),
			"unavailable: it is gone; the files are there: call again, and the session makes the sandbox again"},
		{sandbox.ErrUnavailable, "unavailable: sandbox unavailable"},
		{fmt.Errorf("begin: %w", sandbox.ErrUnavailable), "unavailable: begin: sandbox unavailable"},
		{fmt.Errorf("begin: %w", known), known.Error()},
		{context.Canceled, tool.AsError(context.Canceled).Error()},
		{errors.New("dial /run/x.sock"), tool.AsError(errors.New("")).Error()},
	} {
		err := toolerr.Of(c.err)
		assert.IsType(t, &tool.Error{}, err)
		assert.EqualError(t, err, c.want)
	}
	assert.NoError(t, toolerr.Of(nil))
	assert.ErrorIs(t, toolerr.Of(fmt.Errorf("x: %w", sandbox.ErrLost)), sandbox.ErrLost, "the cause is kept for logs")
}
