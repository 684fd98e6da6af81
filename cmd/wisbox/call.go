package main

import (
	"context"
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	profiles "github.com/wisbox/wisbox/profile"
	"github.com/wisbox/wisbox/tool"
)

func (a *app) newCallCmd() *cobra.Command {
	profile := ""
	cmd := &cobra.Command{
		Use:   "call SESSION TOOL [JSON|-]",
		Short: "Call a tool of a session and print its result object",
		Long: `Calls the tool with a JSON object of its arguments, from the command line or
with - from stdin, and prints the result object. An error object goes to stderr,
with exit code 1. "wisbox tools" lists the tools. They have the names of the
session's profile, or of the one that --profile names.`,
		Example: `  wisbox call box ls
  wisbox call box grep '{"pattern":"TODO","glob":"*.py"}'
  wisbox call box shell_execute '{"script":"python3 -m unittest","timeout":60}'`,
		Args: exactArgs("SESSION", "TOOL", "[JSON|-]"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.runCall(cmd.Context(), profile, args) },
	}
	registerProfile(cmd.Flags(), &profile, "the session's")
	return cmd
}

func (a *app) runCall(ctx context.Context, profile string, args []string) error {
	a.json = true // results are objects, so errors are too
	if err := checkProfile(profile); err != nil {
		return err
	}
	raw, err := a.arguments(ctx, args[2:])
	if err != nil {
		return err
	}
	return a.withSession(ctx, args[0], func(s *wisbox.Session) error {
		call := s.Call
		if profile != "" {
			tools, err := profiles.Open(profile, wisbox.ToolSet(), profiles.CallerFunc(s.CallOwn))
			if err != nil {
				return err
			}
			defer tools.Close(context.WithoutCancel(ctx))
			call = tools.Call
		}
		res, err := call(ctx, args[1], raw)
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
