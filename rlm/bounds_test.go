package rlm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/rlm"
	"github.com/wisbox/wisbox/tool"
)

// slow keeps a thousand states alive at every character: the searches here would take hours.
const slow = `(?:x?.?){480}(?:x?.?){480}(?:x?.?){480}[^a-z]`

// TestCancellationReachesEveryLoop gives each operation far more work than it can do before the
// context ends.
func TestCancellationReachesEveryLoop(t *testing.T) {
	lines := strings.Repeat(strings.Repeat("x", 79)+"\n", 100_000)
	for name, c := range map[string]struct{ op, args, text string }{
		"grep over many lines":         {"grep", `{"pattern":"[xw]x` + slow[:len(slow)-6] + `y"}`, strings.ReplaceAll(lines, "\n", "y\n")},
		"grep over one line":           {"grep", `{"pattern":"` + slow + `"}`, strings.Repeat("x", 8<<20)},
		"grep by a literal":            {"grep", `{"pattern":"xx` + slow[:len(slow)-6] + `y"}`, strings.ReplaceAll(lines, "\n", "y\n")},
		"grep by a literal, one line":  {"grep", `{"pattern":"xx` + slow[:len(slow)-6] + `yz"}`, strings.Repeat("x", 8<<20) + "yz"},
		"sum of very many big numbers": {"combine", `{"inputs":"context","strategy":"sum"}`, "[" + strings.Repeat("1e-399,1e399,", 400_000) + "1]"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := rlm.Apply(ctx, c.op, json.RawMessage(c.args), bound("context", c.text))
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
}

// TestACancelledCallDoesNothing holds for every operation, over any text.
func TestACancelledCallDoesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	text := strings.Repeat("é,\n", 1<<20)
	for _, call := range []string{
		`slice {"start":1,"end":-1}`, `grep {"pattern":"."}`, `grep {"pattern":","}`, `count {}`, `count {"mode":"chars"}`, `chunk {"n":3}`, `split {}`, `split {"delimiter":"é"}`,
		`combine {"inputs":["context","context"],"strategy":"concat"}`, `combine {"inputs":"array","strategy":"vote"}`, `combine {"inputs":"array","strategy":"sum"}`,
	} {
		op, args, _ := strings.Cut(call, " ")
		_, err := rlm.Apply(ctx, op, json.RawMessage(args), bound("context", text, "array", "["+strings.Repeat("1,", 1<<20)+"1]"))
		assert.ErrorIs(t, err, context.Canceled, call)
	}
}

// heap returns the memory in use after a collection, in MiB.
func heap() int {
	var now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&now)
	return int(now.HeapAlloc >> 20)
}

// allocated returns how many MiB f allocates.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int((after.TotalAlloc - before.TotalAlloc) >> 20)
}

func TestWhatABindingDoublesIsRefusedBeforeItIsMade(t *testing.T) {
	ops := newOps(t, &rlm.Options{MaxText: 8 << 20, MaxTotal: 16 << 20})
	bind(t, ops, "x", strings.Repeat("x", 1<<10))
	var err error
	doublings := 0
	used := allocated(func() {
		for ; err == nil && doublings < 40; doublings++ {
			var out rlm.Outcome
			if out, err = ops.Do(t.Context(), "combine", json.RawMessage(`{"inputs":["x","x"],"strategy":"concat"}`)); err == nil {
				_, err = ops.Bind("x", out.Result)
			}
		}
	})
	assert.Equal(t, tool.Limit, tool.KindOf(err))
	assert.ErrorContains(t, err, "8MiB")
	assert.Equal(t, 13, doublings)
	assert.Less(t, used, 20, "MiB: the results alone")
	names := strings.Repeat(`"x",`, 500_000) + `"x"`
	assert.Less(t, allocated(func() {
		_, err = ops.Do(t.Context(), "combine", json.RawMessage(`{"inputs":[`+names+`],"strategy":"concat"}`))
	}), 200, "MiB: of 3.6 TiB")
	assert.Equal(t, tool.Limit, tool.KindOf(err))
}

func TestTextsThatGrowAreRefusedBeforeTheyAreMade(t *testing.T) {
	const most = 4 << 20
	for name, c := range map[string]struct{ op, args, text string }{
		"very many parts":  {"split", `{}`, strings.Repeat("\n", most/2)},
		"very many groups": {"chunk", `{"n":9007199254740992}`, strings.Repeat("\n", most/2)},
		"escapes":          {"split", `{"delimiter":"x"}`, strings.Repeat("\x01", most)},
		"very many values": {"combine", `{"inputs":["context","context"],"strategy":"concat"}`, strings.Repeat("x", most-1)},
	} {
		t.Run(name, func(t *testing.T) {
			ops := newOps(t, &rlm.Options{MaxText: most})
			bind(t, ops, "context", c.text)
			var err error
			used := allocated(func() { _, err = ops.Do(t.Context(), c.op, json.RawMessage(c.args)) })
			assert.Equal(t, tool.Limit, tool.KindOf(err), err)
			assert.Less(t, used, 250, "MiB")
		})
	}
}

func TestAVoteAmongVeryManyCandidatesIsRefused(t *testing.T) {
	_, err := rlm.Apply(t.Context(), "combine", json.RawMessage(`{"inputs":"context","strategy":"vote"}`), bound("context", distinct(1_000_000)))
	assert.Equal(t, tool.Limit, tool.KindOf(err))
	assert.ErrorContains(t, err, "memory")
}

func distinct(n int) string {
	var b strings.Builder
	b.WriteString("[0")
	for i := range n {
		b.WriteString("," + strconv.Itoa(i+1))
	}
	return b.String() + "]"
}

// TestAListOfVeryManyItemsIsNotHeld, because arrays are read item by item.
func TestAListOfVeryManyItemsIsNotHeld(t *testing.T) {
	array := "[" + strings.Repeat("1,", 1<<18) + "1]"
	for strategy, want := range map[string]string{"sum": "262145", "vote": "1"} {
		ops := newOps(t, nil)
		bind(t, ops, "context", array)
		var held int
		before := heap()
		assert.Equal(t, want, do(t, ops, "combine", `{"inputs":"context","strategy":"`+strategy+`"}`).Result)
		held = heap() - before
		assert.Less(t, held, 4, "MiB")
	}
}

// TestAPartOfATextDoesNotKeepTheWhole, because otherwise small bindings would keep large texts in
// memory.
func TestAPartOfATextDoesNotKeepTheWhole(t *testing.T) {
	before := heap()
	ops := newOps(t, nil)
	for i := range 20 {
		bind(t, ops, "context", "first\n"+strings.Repeat(strings.Repeat("x", 99)+"\n", 4<<20/100)+fmt.Sprint("[\"", i, "\"]"))
		for j, call := range []string{
			`slice {"end":1}`, `grep {"pattern":"first"}`, `grep {"pattern":"[i]r"}`, `grep {"pattern":"^f|^\\["}`,
		} {
			op, args, _ := strings.Cut(call, " ")
			bind(t, ops, fmt.Sprint("part", i, "_", j), do(t, ops, op, args).Result)
		}
	}
	assert.Less(t, heap()-before, 16, "MiB, of 80 that were bound")
	runtime.KeepAlive(ops)
}

// TestARunsTextsAreBoundedTogether, including those of nested conversations.
func TestARunsTextsAreBoundedTogether(t *testing.T) {
	text := strings.Repeat("x", 1<<20)
	double := `{"mode":"explore","op":"combine","args":{"inputs":["context","context"],"strategy":"concat"},"bind":"b%d"}`
	parent := &script{says: []string{commitOf(`{"op":"map","args":{"query":"q","inputs":["context","context"]},"bind":"a"}`, "a"), final}}
	refused := 0
	child := answering(func(last string) (string, error) {
		if strings.Contains(last, "limit:") {
			refused++
			return final, nil
		}
		return fmt.Sprintf(double, len(last)%7+strings.Count(last, "a")), nil
	})
	_, err := rlm.Run(context.Background(), &rlm.RunOptions{
		Query: "q", Context: text, Model: parent, Child: child, Ops: rlm.Options{MaxTotal: 6 << 20},
	})
	require.NoError(t, err)
	assert.Equal(t, 2, refused, "each of the two, one after the other: the room of the first came back")
}
