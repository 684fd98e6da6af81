//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/engine"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool/answer"
)

// quickExec is `wisbox exec SESSION [--] CMD [ARG…]`, without flags.
func quickExec(session string, argv []string) (code int, done bool) {
	if argv[0] == "--" {
		argv = argv[1:]
	}
	if len(argv) == 0 || strings.HasPrefix(session, "-") || strings.HasPrefix(argv[0], "-") || !utf8.ValidString(strings.Join(argv, "")) {
		return 0, false
	}
	client, ok := holderOf(session)
	if !ok {
		return 0, false
	}
	raw, err := json.Marshal(map[string][]string{"argv": argv})
	if err != nil {
		return 0, false
	}
	ctx, end, signals := streams.Notify(context.Background())
	defer end(context.Canceled)
	passing, names, stop := signals.Pass(ctx)
	defer stop()
	reply := &hold.Answer{}
	err = client.Do(answer.WithProgress(passing, streams.Waits(os.Stderr)), hold.Request{Op: "run", Args: raw}, hold.Streams{
		Stdin: streams.Input(os.Stdin, false), Stdout: streams.NewOutput(os.Stdout, end), Stderr: streams.Output{File: os.Stderr, End: end}, Signals: names,
	}, reply)
	if hold.Untaken(err) && passing.Err() == nil {
		return 0, false
	}
	if passing.Err() != nil {
		return ended("exec", context.Cause(passing)), true
	}
	var res sandbox.Result
	if err == nil {
		err = json.Unmarshal(reply.Value, &res)
	}
	if err != nil {
		return reported(engine.Report{Command: "exec", Error: answer.AsError(err)}), true
	}
	if res.Status != sandbox.StatusExited || len(res.NetworkDenied)+len(res.Notices) > 0 {
		return reported(engine.Report{Command: "exec", Result: &res}), true
	}
	return res.ExitCode, true
}

// ended returns the exit code of a command that a signal or a lost output has ended.
func ended(command string, cause error) int {
	var late streams.Late
	var sig streams.Signalled
	var lost streams.Lost
	switch {
	case errors.As(cause, &late):
		fmt.Fprintln(os.Stderr, "wisbox:", late.Report())
		return sandbox.ExitSignalBase + int(late.Signal)
	case errors.As(cause, &sig):
		return sandbox.ExitSignalBase + int(sig.Signal)
	case errors.As(cause, &lost):
		return reported(engine.Report{Command: command, Error: lost.Report()})
	}
	return 1
}
