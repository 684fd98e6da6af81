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
	"github.com/wisbox/wisbox/tool"
)

// quickCall is `wisbox call SESSION TOOL [JSON]`, without flags and without input.
func quickCall(session string, args []string) (code int, done bool) {
	text := strings.Join(args[1:], "")
	if len(args) > 2 || strings.HasPrefix(session, "-") || strings.HasPrefix(args[0], "-") || strings.HasPrefix(text, "-") || len(text) > tool.MaxArguments || !utf8.ValidString(args[0]+text) || text != "" && !json.Valid([]byte(text)) {
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
	answer := &hold.Answer{}
	err = client.Do(tool.WithProgress(ctx, streams.Waits(os.Stderr)), hold.Request{Op: "call", Args: raw}, hold.Streams{}, answer)
	switch {
	case hold.Untaken(err) && ctx.Err() == nil:
		return 0, false
	case ctx.Err() != nil:
		return ended("call", context.Cause(ctx)), true
	case err != nil:
		return reported(engine.Report{Command: "call", Error: tool.AsError(err)}), true
	}
	if err := streams.WriteJSON(streams.Output{File: os.Stdout, End: end}, answer.Value); err != nil && ctx.Err() == nil {
		return 1, true
	}
	if ctx.Err() != nil {
		return ended("call", context.Cause(ctx)), true
	}
	return 0, true
}
