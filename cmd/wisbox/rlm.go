package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/evaltool/wasm"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/rlm"
	"github.com/wisbox/wisbox/tool"
)

type rlmOptions struct {
	modelFlags
	wasm     wasmFlags
	question string
	context  string
	child    string
	cacheDir string
	verbose  bool
	limits   rlm.Limits
	counts   map[string]*int // the limits, by flag
	evalTime time.Duration
}

// childVariable is the environment variable for the flag child-model.
const childVariable = "WISBOX_CHILD_MODEL"

func (a *app) newRlmCmd() *cobra.Command {
	opts := &rlmOptions{}
	run := &cobra.Command{
		Use:   "run -q QUESTION -c FILE --model MODEL [--base-url URL]",
		Short: "Ask a model over OpenAI's or Anthropic's API",
		Long: `Asks a model about a text that is larger than its context. The model explores the
text with operations (slice, grep, count, chunk, split, combine, and eval in WebAssembly
if that is installed), may ask a child model about parts, and gives a final answer. At
a limit the answer is the output of its last commit, and stderr says so. The key comes
from the environment. The cache directory keeps the results of operations.`,
		Example: `  wisbox lab rlm run -q 'Who changed the schema?' -c mail.txt --model gpt-5-mini
  wisbox lab rlm run -q 'How many?' -c app.log --base-url http://127.0.0.1:8000/v1 --model local
  wisbox lab rlm run -q 'Who signed?' -c contract.txt --api anthropic --model claude-sonnet-4-5 -v`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runRlm(cmd.Context(), opts) },
	}
	flags := run.Flags()
	opts.modelFlags.register(flags)
	flags.StringVarP(&opts.question, "question", "q", "", "`TEXT` of the question")
	flags.StringVarP(&opts.context, "context", "c", "", "`FILE` with the text, - is stdin")
	flags.StringVar(&opts.child, "child-model", "", "`NAME` of the model for parts (default $"+childVariable+", or the same)")
	flags.StringVar(&opts.cacheDir, "cache-dir", "", "`DIR` for results of operations (default the state directory, see --cache)")
	flags.BoolVarP(&opts.verbose, "verbose", "v", false, "print each move on stderr as it happens")
	opts.wasm.register(flags)
	flags.Var(timeFlag{&opts.evalTime}, "wasm-timeout", "end an eval after this `TIME` even if it has fuel left (default $"+wasm.TimeoutVariable+" seconds, then ten times as long as fuel usually lasts, at least 30s)")
	opts.registerLimits(flags)
	return group("rlm", "Ask a model about a text that is larger than its context", run)
}

func (o *rlmOptions) registerLimits(flags *pflag.FlagSet) {
	o.counts = map[string]*int{}
	for _, f := range []struct {
		name, usage string
		value       *int
	}{
		{"max-explore", "at most `N` explore steps of a conversation (default 20)", &o.limits.Explore},
		{"max-commits", "at most `N` commits of a conversation (default 5)", &o.limits.Commits},
		{"max-depth", "at most `N` conversations below one another; below them a part is asked about directly (default 1)", &o.limits.Depth},
		{"parallel", "ask about `N` parts at once (default 4)", &o.limits.Parallel},
	} {
		flags.IntVar(f.value, f.name, 0, f.usage)
		o.counts[f.name] = f.value
	}
}

// checkLimits refuses invalid limits, including an explicit 0.
func (o *rlmOptions) checkLimits() error {
	for name, n := range o.counts {
		switch {
		case *n < 0:
			return usageError{fmt.Errorf("--%s is %d; it can't be negative", name, *n)}
		case *n == 0 && o.flags.Changed(name) && n == &o.limits.Parallel:
			return usageError{errors.New("--parallel is 0; it must be at least 1")}
		case *n == 0 && o.flags.Changed(name):
			*n = -1
		}
	}
	return nil
}

func (a *app) runRlm(ctx context.Context, opts *rlmOptions) error {
	for _, need := range []struct{ flag, value string }{{"-q", opts.question}, {"-c", opts.context}, {"--model", opts.name()}} {
		if need.value == "" {
			return usageError{fmt.Errorf("%s is missing; see: wisbox lab rlm run --help", need.flag)}
		}
	}
	if err := opts.checkLimits(); err != nil {
		return err
	}
	text, err := a.readText(ctx, opts.context)
	if err != nil {
		return err
	}
	run := &rlm.RunOptions{Query: opts.question, Context: text, Limits: opts.limits}
	if run.Model, err = opts.endpoint(opts.name()); err != nil {
		return err
	}
	if child := cmp.Or(opts.child, os.Getenv(childVariable)); child != "" {
		if run.Child, err = opts.endpoint(child); err != nil {
			return err
		}
	}
	if run.Ops.Cache, err = a.operationsCache(opts.cacheDir); err != nil {
		return err
	}
	if opts.verbose {
		moves := &moveLog{out: a.err}
		run.OnOperation, run.OnTurn = moves.operation, moves.turn
	}
	engine, err := opts.engine()
	if err != nil {
		return err
	}
	if engine != nil {
		defer engine.Close()
		run.Ops.Eval = engine
	}
	answer, err := rlm.Run(ctx, run)
	if err != nil {
		return err
	}
	if answer.CutBy != "" {
		fmt.Fprintf(a.err, "wisbox: the run was cut by its limit on %s: the answer is the output of its last commit\n", answer.CutBy)
	}
	return a.print(answer, func(w io.Writer) { fmt.Fprintln(w, streams.Printable(answer.Text)) })
}

// operationsCache returns the cache of sessions, or one below a directory that the user chose.
func (a *app) operationsCache(dir string) (*rlm.Cache, error) {
	root := cmp.Or(dir, a.cache)
	if root == "" {
		var err error
		if root, err = overlay.DefaultRoot(); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, hostError(err)
	}
	cache, err := rlm.OpenCache(filepath.Join(root, "operations"), 0)
	if err != nil {
		return nil, tool.Errorf(tool.Permission, "the cache directory can't be used: it must be a directory of yours; name another with --cache-dir").In("cache-dir").Because(err)
	}
	return cache, nil
}

// engine returns nil if Python in WebAssembly isn't installed; the model then has no eval.
func (o *rlmOptions) engine() (*wasm.Engine, error) {
	wo, err := o.wasm.options()
	if err != nil {
		return nil, err
	}
	wo.Timeout = o.evalTime
	engine, err := wasm.New(&wo)
	if err != nil {
		return nil, asUsage(err)
	}
	err = engine.Find()
	if errors.Is(err, wasm.ErrNotInstalled) {
		return nil, nil
	}
	return engine, asUsage(err)
}

func (a *app) readText(ctx context.Context, path string) (string, error) {
	in, err := a.openInput(ctx, path)
	if err != nil {
		return "", err
	}
	defer in.Close()
	raw, err := io.ReadAll(io.LimitReader(in, rlm.DefaultMaxText+1))
	if err != nil {
		return "", hostError(err)
	}
	if len(raw) > rlm.DefaultMaxText {
		return "", tool.Errorf(tool.TooLarge, "the text has over %d bytes; split it", rlm.DefaultMaxText).In("context")
	}
	return strings.ToValidUTF8(string(raw), "\uFFFD"), nil
}
