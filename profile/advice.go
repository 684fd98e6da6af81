package profile

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

// advice replaces the advice in errors of wisbox's own tools where a profile lacks the tool or
// parameter for it.
var advice = map[string]*strings.Replacer{
	"anthropic": strings.NewReplacer(
		", or set replace_all", "", "ls shows what does", "view a directory to see what does",
		"write it in parts with mode append", "write the rest with insert", "read it with encoding base64", "use a program",
		"use base64 with offset and limit, grep, or a program", "use a program",
	),
	"openai": strings.NewReplacer(
		"ls shows what does", "the shell can list what does", "write it in parts with mode append", "add the rest with another patch",
		"read it with encoding base64", "change it with a program",
	),
	"deepagents": strings.NewReplacer(
		"use mode overwrite or append, or edit_file", "change it with edit_file", "write it in parts with mode append", "add the rest with edit_file",
	),
}

// advised is a Caller whose errors have a profile's own advice.
type advised struct {
	Caller
	words *strings.Replacer
}

func (a advised) Call(ctx context.Context, name string, raw json.RawMessage) (*tool.Result, error) {
	res, err := a.Caller.Call(ctx, name, raw)
	if err == nil {
		return res, nil
	}
	e := tool.AsError(err)
	return nil, tool.Errorf(e.Kind, "%s", a.words.Replace(e.Message)).In(e.Field).Because(err)
}
