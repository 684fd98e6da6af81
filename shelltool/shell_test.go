package shelltool_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/shelltool"
	"github.com/wisbox/wisbox/tool"
)

// image is a sandbox with these programs in its image.
type image struct {
	sandbox.Sandbox
	has map[string]bool
}

func (i image) HasProgram(_ context.Context, name string) (bool, error) { return i.has[name], nil }

func withImage(t *testing.T, has map[string]bool) *bench {
	var b *bench
	b = newBench(t, func(o *shelltool.Options) {
		o.Runner = func(context.Context) (sandbox.Runner, error) { return image{b.box, has}, nil }
	})
	return b
}

func TestAScriptRunsInTheShellThatTheImageHas(t *testing.T) {
	ctx := context.Background()
	script := shelltool.ExecuteParams{Command: shelltool.Command{Script: "echo \"$0${BASH_VERSION:+ bash}\""}}

	r, err := withImage(t, map[string]bool{"bash": true, "sh": true}).shell.Execute(ctx, script)
	require.NoError(t, err)
	assert.Equal(t, "bash bash\n", r.Stdout)
	assert.Empty(t, r.Notices)

	b := withImage(t, map[string]bool{"sh": true})
	r, err = b.shell.Execute(ctx, script)
	require.NoError(t, err)
	assert.Contains(t, r.Stdout, "sh")
	assert.Equal(t, []string{"sh", "-c"}, r.Command)
	assert.Equal(t, []string{"the image has no bash: sh ran the script"}, r.Notices)
	p, err := b.shell.StartProcess(ctx, shelltool.StartParams{Command: script.Command})
	require.NoError(t, err)
	assert.Equal(t, []string{"sh", "-c"}, p.Command)

	b = withImage(t, nil)
	_, err = b.shell.Execute(ctx, script)
	assert.Equal(t, tool.Unsupported, tool.KindOf(err))
	assert.ErrorContains(t, err, "give commands")
	r, err = b.shell.Execute(ctx, shelltool.ExecuteParams{Command: shelltool.Command{Commands: []string{"echo", "hi"}}})
	require.NoError(t, err)
	assert.Equal(t, "hi\n", r.Stdout)
}
