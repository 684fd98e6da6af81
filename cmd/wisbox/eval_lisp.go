package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
)

type evalLispOptions struct {
	sessionFlags
	session string
	file    string
	pkg     string
	time    bool
}

func (a *app) newEvalLispCmd() *cobra.Command {
	opts := &evalLispOptions{}
	cmd := &cobra.Command{
		Use:   "lisp [flags] [CODE]",
		Short: "Evaluate Common Lisp and print its output and values",
		Long: `Evaluates Common Lisp with the tool evaluate-lisp, in a new session, or with --session in
a kept one, which keeps the definitions. Prints what a model gets: output in sections, then
the values; with --json the result object. After an unhandled condition the exit code is 1.`,
		Example: `  wisbox lab eval-lisp '(format t "hello~%") (+ 1 2)'
  wisbox lab eval-lisp --session box -f defs.lisp`,
		Args: codeOr(&opts.file),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := opts.refuseFor(opts.session); err != nil {
				return err
			}
			return a.runEvalLisp(cmd.Context(), opts, args)
		},
	}
	opts.sessionFlags.register(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar(&opts.session, "session", "", "`NAME` of a kept session to evaluate in (default: a new one)")
	flags.StringVarP(&opts.file, "file", "f", "", "read the code from this `FILE`, - is stdin")
	flags.StringVar(&opts.pkg, "package", "", "`NAME` of the package to read and evaluate in (default the session's)")
	flags.BoolVar(&opts.time, "time", false, "add a line with the time and memory that it took")
	return cmd
}

func (a *app) runEvalLisp(ctx context.Context, opts *evalLispOptions, args []string) error {
	code, err := a.code(ctx, opts.file, args)
	if err != nil {
		return err
	}
	params := given(map[string]any{"package": opts.pkg, "capture-time": opts.time})
	params["code"] = code
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	res, err := a.callIn(ctx, opts.session, &opts.sessionFlags, nil, "evaluate-lisp", raw)
	if err != nil {
		return err
	}
	return errors.Join(a.print(res.Value, func(w io.Writer) { fmt.Fprintln(w, streams.Printable(res.Text)) }), failedCode(res))
}
