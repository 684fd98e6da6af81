package wisbox

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/inside"
	"github.com/wisbox/wisbox/internal/journal"
)

// TestEventsAreDeclared: metrics and others know only the declared ones.
func TestEventsAreDeclared(t *testing.T) {
	set, err := ToolProfile("")
	require.NoError(t, err)
	variants := map[string][]operation{
		"inside":         {},
		"context_change": {changeContextOp{Change: "create"}, changeContextOp{Change: "restart"}, changeContextOp{Change: "remove"}},
		"changes":        {changesOp{For: "diff"}, changesOp{For: "apply"}, changesOp{For: "branch"}},
	}
	for _, do := range []string{inside.Stat, inside.List, inside.Open, inside.Write, inside.Move, inside.Remove, inside.Mkdir, inside.Chmod, inside.Watch} {
		variants["inside"] = append(variants["inside"], insideOp{inside.Ask{Do: do}})
	}
	for _, s := range specs {
		if s.op == nil || s.name == "call" { // a call's event names its tool
			assert.Empty(t, s.events, s.name)
			continue
		}
		all, ok := variants[s.name]
		if !ok {
			all = []operation{s.op()}
		}
		seen := map[string]bool{}
		for _, op := range all {
			name := eventOf(op).Tool
			if _, isTool := set.Lookup(name); name == "" || isTool {
				continue
			}
			seen[name] = true
			assert.Contains(t, strings.Fields(s.events), name, s.name)
		}
		for name := range strings.FieldsSeq(s.events) {
			_, isTool := set.Lookup(name)
			assert.True(t, seen[name] && !isTool, "%s has no event %s", s.name, name)
		}
	}
}

type inventedOp struct {
	N int `json:"n"`
}

func (o *inventedOp) do(context.Context, *local, journal.Call, hold.Streams) (any, journal.Outcome, error) {
	return o.N + 1, journal.Outcome{}, nil
}

// TestAnOperationIsDeclaredOnce: one declaration is enough for the wire, the tenants and the metrics.
func TestAnOperationIsDeclaredOnce(t *testing.T) {
	usual := specs
	t.Cleanup(func() {
		declare(usual)
	})
	declare(append(slices.Clone(specs), &spec{name: "invent", op: in[inventedOp](), events: "invented", output: true, atOnce: 3, tenants: withArgs("n")}))

	req, err := requestOf(journal.Call{ID: "c"}, &inventedOp{N: 1})
	require.NoError(t, err)
	assert.Equal(t, hold.Request{Op: "invent", Call: "c", Args: json.RawMessage(`{"n":1}`)}, req)
	op, err := operationOf(req)
	require.NoError(t, err)
	assert.Equal(t, &inventedOp{N: 1}, op)
	assert.Contains(t, EventTools(), "invented")

	var seen Admission
	g := &guest{m: &Manager{}, opts: TenantOptions{Tenant: &watchful{seen: &seen}}}
	s := ofSession("invent")
	_, err = g.admit(t.Context(), s, "id")
	require.NoError(t, err)
	assert.Equal(t, Admission{Op: "invent", Session: "id", AtOnce: 3}, seen)
	require.NoError(t, g.mayAsk(s, req))
	require.ErrorContains(t, g.mayAsk(s, hold.Request{Op: "invent", Args: []byte(`{"m":1}`)}), "the argument m of invent isn't offered")
	require.ErrorContains(t, s.streams(hold.Streams{}), "needs an output")
}

type watchful struct {
	Tenant
	seen *Admission
}

func (w *watchful) Admit(_ context.Context, a Admission) (func(error), error) {
	*w.seen = a
	return func(error) {}, nil
}

// TestASettingIsDeclaredOnce: its field's tags say what tenants and archives may do with it.
func TestASettingIsDeclaredOnce(t *testing.T) {
	rules := map[string][]string{"tenant": {"", "own", "first", "either", "most", "joined", "checked"}, "archive": {"-", "missing", "tighter", "left", "egress", "joined", "checked"}}
	for f := range reflect.TypeFor[SessionOptions]().Fields() {
		if !f.IsExported() || f.Tag.Get("json") == "-" {
			assert.Empty(t, f.Tag.Get("tenant")+f.Tag.Get("archive"), f.Name)
			continue
		}
		for audience, known := range rules {
			assert.Contains(t, known, f.Tag.Get(audience), "%s, %s", f.Name, audience)
		}
	}
}
