package rlm

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/tool"
)

// Names of the operations, in the order in which models see them.
const (
	OpSlice   = "slice"
	OpGrep    = "grep"
	OpCount   = "count"
	OpChunk   = "chunk"
	OpSplit   = "split"
	OpCombine = "combine"
	OpEval    = "eval"
	OpCall    = "rlm_call" // in the protocol only
	OpMap     = "map"      // in the protocol only
)

var opNames = []string{OpSlice, OpGrep, OpCount, OpChunk, OpSplit, OpCombine, OpEval}

// pure is an operation with its arguments decoded. Its JSON form is canonical:
// all fields in one order, defaults filled in.
type pure interface {
	reads() []string // the bindings that it reads, in order
	// apply keeps its memory within the budget. Its result must not keep a larger text
	// alive.
	apply(texts []*Text, b *budget.Budget) (string, error)
}

// Apply runs one pure operation (not eval, rlm_call or map) with its arguments as
// a JSON object, within ctx and the limits of [Options]' defaults. Errors are
// *tool.Error whose field is the argument.
func Apply(ctx context.Context, op string, args json.RawMessage, bindings Bindings) (string, error) {
	decoded, err := decode(op, args)
	if err != nil {
		return "", err
	}
	texts, err := bindings.take(decoded.reads())
	if err != nil {
		return "", err
	}
	return within(ctx, DefaultMaxText, decoded, texts)
}

// within runs an operation and returns its result, of at most maxText bytes.
func within(ctx context.Context, maxText int64, op pure, texts []*Text) (string, error) {
	b := budget.New(ctx, limits(maxText))
	defer b.Close()
	if err := b.Check(); err != nil {
		return "", err
	}
	return op.apply(texts, b)
}

// limits returns the budget's defaults, with the maximum of a text for the output.
func limits(maxText int64) budget.Limits { return budget.Limits{Out: maxText} }

func decode(op string, args json.RawMessage) (pure, error) {
	switch op {
	case OpSlice:
		return take[sliceArgs](args)
	case OpGrep:
		return take[grepArgs](args)
	case OpCount:
		return take[countArgs](args)
	case OpChunk:
		return take[chunkArgs](args)
	case OpSplit:
		return take[splitArgs](args)
	case OpCombine:
		return take[combineArgs](args)
	}
	return nil, unknownOp(op)
}

func take[T pure](args json.RawMessage) (pure, error) {
	var v T
	if err := tool.Decode(args, &v); err != nil {
		return nil, err
	}
	return v, nil
}

func unknownOp(op string) error {
	if op == OpCall || op == OpMap {
		return tool.Errorf(tool.Unsupported, "%s needs a model, which only a run has; here the operations are %s", op, strings.Join(opNames, ", ")).In("op")
	}
	return tool.Errorf(tool.Invalid, "unknown op %q; the operations are %s", clip(op, 80), strings.Join(opNames, ", ")).In("op")
}

// take returns the texts of the names. It returns not_found for the first name that is
// missing.
func (b Bindings) take(names []string) ([]*Text, error) {
	texts := make([]*Text, len(names))
	for i, name := range names {
		text, known := b[name]
		if !known {
			return nil, tool.Errorf(tool.NotFound, "binding %q not found; the bindings are %s", clip(name, 80), b.list())
		}
		texts[i] = text
	}
	return texts, nil
}

func (b Bindings) names() []string {
	names := make([]string, 0, len(b))
	for name := range b {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// list returns the names of the first twenty bindings, for a message.
func (b Bindings) list() string {
	const most = 20
	names := b.names()
	if len(names) > most {
		names = append(names[:most:most], "…")
	}
	return strings.Join(names, ", ")
}

// clip shortens a caller's own words for a message.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	text, cut := NewText(strings.ToValidUTF8(s, "\uFFFD")).first(most)
	if cut {
		text += "…"
	}
	return text
}
