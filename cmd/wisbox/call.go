package main

import (
	"context"
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/tool"
)

func (a *app) newCallCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "call SESSION TOOL [JSON|-]",
		Short: "Call a tool of a session and print its result object",
		Long: `Calls the tool with the JSON object of its arguments, from the command line or
with - from stdin, and prints the result object. An error object goes to stderr,
with exit code 1. "wisbox tools" lists the tools.`,
		Example: `  wisbox call box ls
  wisbox call box grep '{"pattern":"TODO","glob":"*.py"}'
  wisbox call box shell_execute '{"script":"python3 -m unittest","timeout":60}'`,
		Args: exactArgs("SESSION", "TOOL", "[JSON|-]"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.runCall(cmd.Context(), args) },
	}
}

func (a *app) runCall(ctx context.Context, args []string) error {
	a.json = true // results are objects, so errors are too
	raw, err := a.arguments(ctx, args[2:])
	if err != nil {
		return err
	}
	return a.withSession(ctx, args[0], func(s *wisbox.Session) error {
		res, err := s.Call(ctx, args[1], raw)
		if err != nil {
			return err
		}
		return a.printJSON(res.Value)
	})
}

func (a *app) arguments(ctx context.Context, args []string) (json.RawMessage, error) {
	if len(args) == 0 {
		return nil, nil
	}
	if args[0] != "-" {
		return json.RawMessage(args[0]), nil
	}
	raw, err := io.ReadAll(io.LimitReader(a.stdin(ctx), tool.MaxArguments+1))
	if err != nil {
		return nil, tool.Errorf(tool.Invalid, "stdin can't be read").Because(err)
	}
	return raw, nil
}
