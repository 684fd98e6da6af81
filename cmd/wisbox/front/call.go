//go:build linux

package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/engine"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/tool/answer"
)

// quickCall is `wisbox call SESSION TOOL [JSON]`, without flags and without input.
func quickCall(session string, args []string) (code int, done bool) {
	text := strings.Join(args[1:], "")
	if len(args) > 2 || strings.HasPrefix(session, "-") || strings.HasPrefix(args[0], "-") || strings.HasPrefix(text, "-") || len(text) > answer.MaxArguments || !utf8.ValidString(args[0]+text) || text != "" && !json.Valid([]byte(text)) {
		return 0, false
	}
	client, ok := holderOf(session)
	if !ok {
		return 0, false
	}
	raw, err := json.Marshal(map[string]string{"tool": args[0], "args": text})
	if err != nil {
		return 0, false
	}
	ctx, end, _ := streams.Notify(context.Background())
	defer end(context.Canceled)
	reply := &hold.Answer{}
	err = client.Do(answer.WithProgress(ctx, streams.Waits(os.Stderr)), hold.Request{Op: "call", Args: raw}, hold.Streams{}, reply)
	switch {
	case hold.Untaken(err) && ctx.Err() == nil:
		return 0, false
	case ctx.Err() != nil:
		return ended("call", context.Cause(ctx)), true
	case err != nil:
		return reported(engine.Report{Command: "call", Error: answer.AsError(err)}), true
	}
	if err := streams.WriteJSON(streams.Output{File: os.Stdout, End: end}, reply.Value); err != nil && ctx.Err() == nil {
		return 1, true
	}
	if ctx.Err() != nil {
		return ended("call", context.Cause(ctx)), true
	}
	return 0, true
}
