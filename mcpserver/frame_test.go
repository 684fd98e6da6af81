package mcpserver

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/internal/conformance"
	_ "github.com/wisbox/wisbox/internal/properties"
)

func TestLinesAreCutWhereTheyEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(rapid.StringMatching(`[a-z]{0,40}`)).Draw(t, "lines")
		const max = 20
		r := bufio.NewReaderSize(strings.NewReader(strings.Join(append(want, ""), "\n")), 16)
		for _, text := range want {
			l, err := readLine(r, max)
			if err != nil {
				t.Fatal(err)
			}
			if l.tooLong != (len(text) > max) {
				t.Fatalf("%q: too long is %v", text, l.tooLong)
			}
			if !l.tooLong && string(l.text) != text {
				t.Fatalf("%q was read as %q", text, l.text)
			}
		}
		if _, err := readLine(r, max); !errors.Is(err, io.EOF) {
			t.Fatalf("after the end: %v", err)
		}
	})
}

func TestPlainKeepsTheMeaning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text") + "\u0085é\u007f"
		raw, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		if err := json.Unmarshal(plain(raw), &got); err != nil || got != text {
			t.Fatalf("%q became %q: %v", text, got, err)
		}
	})
}

func FuzzNoLineEndsTheServer(f *testing.F) {
	for _, seed := range []string{"x", "[]", "{}", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"a"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, `{"jsonrpc":"2.0","id":"\ud800","method":"ping"}`,
		`{"jsonrpc":"2.0","id":3,"method":"initialize","params":null}`, "\x00\xff", `{"jsonrpc":"2.0","id":4,"method":"resources/read","params":{"uri":"x"}}`,
		`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"tell","arguments":{}}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, garbage []byte) {
		fakes := newFakes()
		close(fakes.release)
		r := startReady(t, New(fakes.set(), nil))
		go func() {
			_, _ = r.in.WriteString(string(garbage) + "\n" + `{"jsonrpc":"2.0","id":"the last","method":"ping"}` + "\n")
		}()
		for r.next().ID != `"the last"` {
		}
		r.end()
	})
}

func FuzzSplitSessionKeepsTheRest(f *testing.F) {
	f.Add(`{"session":"a","x":{"session":1},"y":[]}`)
	f.Add(`{"x":1,"x":2,"session":"b"}`)
	f.Fuzz(func(t *testing.T, raw string) {
		handle, rest, err := splitSession(json.RawMessage(raw))
		if err != nil {
			return
		}
		require.NotEmpty(t, handle)
		require.True(t, json.Valid(rest), "%q", rest)
	})
}

func TestListingsDescribeToolsTruly(t *testing.T) {
	r := startReady(t, New(newFakes().set(), &Options{Instructions: "be kind", Version: "1.2.3"}))
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	var list struct{ Result mcp.ListToolsResult }
	line := r.next().Line
	require.NoError(t, json.Unmarshal([]byte(line), &list))
	byName := map[string]*mcp.Tool{}
	for _, one := range list.Result.Tools {
		byName[one.Name] = one
		assert.Contains(t, one.InputSchema, "properties", one.Name)
		assert.Equal(t, false, one.InputSchema.(map[string]any)["additionalProperties"], one.Name)
		assert.NotNil(t, one.OutputSchema, one.Name)
		require.NotNil(t, one.Annotations.DestructiveHint, one.Name)
		assert.False(t, *one.Annotations.OpenWorldHint, one.Name)
	}
	assert.True(t, byName["echo"].Annotations.ReadOnlyHint)
	assert.True(t, byName["echo"].Annotations.IdempotentHint)
	assert.False(t, *byName["echo"].Annotations.DestructiveHint)
	assert.True(t, *byName["status"].Annotations.DestructiveHint)
	assert.NotContains(t, line, `"null"`)
	r.end()
}

// The conformance cases accept the messages of this package.
func TestAnswersHaveTheFormOfTheConformanceCases(t *testing.T) {
	r := startReady(t, New(newFakes().set(), nil))
	for id, c := range []struct{ tool, args, expect string }{
		{"echo", `{"text":"a"}`, `ok:text~"a" && size=1`},
		{"status", `{}`, `failed:status=timed_out && text~^it ended`},
		{"refuse", `{}`, `error:exists && field=file_path && message=a is there already`},
		{"echo", `{"text":"a","times":0}`, `error:invalid && field=times`},
	} {
		r.call(id, c.tool, c.args)
		why, err := conformance.Match(c.expect, conformance.ParseReply([]byte(r.next().Line)))
		require.NoError(t, err)
		assert.Empty(t, why, c.expect)
	}
	r.end()
}
