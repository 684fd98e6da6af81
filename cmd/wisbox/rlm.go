package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox/evaltool/wasm"
	"github.com/wisbox/wisbox/rlm"
	"github.com/wisbox/wisbox/tool"
)

type rlmOptions struct {
	question    string
	context     string
	baseURL     string
	model       string
	child       string
	keyVariable string
	temperature float64
	wasmPython  string
	limits      rlm.Limits
}

func (a *app) newRlmCmd() *cobra.Command {
	opts := &rlmOptions{}
	run := &cobra.Command{
		Use:   "run -q QUESTION -c FILE --model MODEL [--base-url URL]",
		Short: "Ask a model behind an OpenAI-compatible endpoint",
		Long: `The model never sees the text whole: it explores it by operations (slice, grep,
count, chunk, split, combine, and eval in WebAssembly where that is installed), may
ask a child model about parts, and gives a final answer. The key is read from the
environment.`,
		Example: `  wisbox rlm run -q 'Who changed the schema?' -c mail.txt --model gpt-5-mini
  wisbox rlm run -q 'How many errors?' -c app.log --base-url http://127.0.0.1:8000/v1 --model local`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var temperature *float64
			if cmd.Flags().Changed("temperature") {
				temperature = &opts.temperature
			}
			return a.runRlm(cmd.Context(), opts, temperature)
		},
	}
	flags := run.Flags()
	flags.StringVarP(&opts.question, "question", "q", "", "`TEXT` of the question")
	flags.StringVarP(&opts.context, "context", "c", "", "`FILE` with the text, - is stdin")
	flags.StringVar(&opts.baseURL, "base-url", "https://api.openai.com/v1", "`URL` of the endpoint, with its version")
	flags.StringVar(&opts.model, "model", "", "`NAME` of the model")
	flags.StringVar(&opts.child, "child-model", "", "`NAME` of the model for parts (default the same)")
	flags.StringVar(&opts.keyVariable, "key-env", "OPENAI_API_KEY", "`VARIABLE` that holds the key")
	flags.Float64Var(&opts.temperature, "temperature", 0, "temperature, a `NUMBER` (default the endpoint's)")
	flags.StringVar(&opts.wasmPython, "wasm-python", "", "`FILE` python.wasm for eval (default the installed one)")
	flags.IntVar(&opts.limits.Explore, "max-explore", 0, "at most `N` explore steps (default 20)")
	flags.IntVar(&opts.limits.Commits, "max-commits", 0, "at most `N` commits (default 5)")
	return group("rlm", "Have a model answer a question about a text larger than its context", run)
}

func (a *app) runRlm(ctx context.Context, opts *rlmOptions, temperature *float64) error {
	for _, need := range []struct{ flag, value string }{{"-q", opts.question}, {"-c", opts.context}, {"--model", opts.model}} {
		if need.value == "" {
			return usageError{fmt.Errorf("%s is missing; see: wisbox rlm run --help", need.flag)}
		}
	}
	for flag, n := range map[string]int{"max-explore": opts.limits.Explore, "max-commits": opts.limits.Commits} {
		if n < 0 {
			return usageError{fmt.Errorf("--%s is %d; it can't be negative", flag, n)}
		}
	}
	text, err := a.readText(ctx, opts.context)
	if err != nil {
		return err
	}
	run := &rlm.RunOptions{Query: opts.question, Context: text, Limits: opts.limits}
	if run.Model, err = opts.endpoint(opts.model, temperature); err != nil {
		return asUsage(err)
	}
	if opts.child != "" {
		if run.Child, err = opts.endpoint(opts.child, temperature); err != nil {
			return asUsage(err)
		}
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
	return a.print(answer, func(w io.Writer) { fmt.Fprintln(w, printable(answer.Text)) })
}

func (o *rlmOptions) endpoint(model string, temperature *float64) (rlm.Model, error) {
	return rlm.NewEndpoint(&rlm.EndpointOptions{
		BaseURL: o.baseURL, Model: model, Key: os.Getenv(o.keyVariable), Temperature: temperature,
	})
}

// engine is nil where Python in WebAssembly isn't installed: the model is then
// not told of eval.
func (o *rlmOptions) engine() (*wasm.Engine, error) {
	wo := &wasm.Options{Module: o.wasmPython}
	if !wasm.IsInstalled(wo) {
		return nil, nil
	}
	return wasm.New(wo)
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
	return string(raw), nil
}
