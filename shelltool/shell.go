package shelltool

import (
	"context"
	"errors"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// chooseShell uses sh for a script if the image has no bash, and returns a notice then.
func (s *Shell) chooseShell(ctx context.Context, c Command, cmd *sandbox.Cmd, shown []string) (notices []string, err error) {
	if c.Script == "" {
		return nil, nil
	}
	runner, err := s.opts.Runner(ctx)
	if err != nil {
		return nil, err
	}
	finder, ok := sandbox.As[sandbox.ProgramFinder](runner)
	if !ok {
		return nil, nil
	}
	for _, shell := range []string{"bash", "sh"} {
		has, err := finder.HasProgram(ctx, shell)
		switch {
		case tool.KindOf(err) == tool.Unsupported || errors.Is(err, sandbox.ErrUnsupported):
			return nil, nil // unknown: a missing bash is an error when it starts
		case err != nil:
			return nil, err
		case has && shell == "bash":
			return nil, nil
		case has:
			cmd.Argv[0], shown[0] = shell, shell
			return []string{"the image has no bash: sh ran the script"}, nil
		}
	}
	return nil, tool.Errorf(tool.Unsupported, "the image has no shell to run a script; give commands, a program and its arguments")
}
