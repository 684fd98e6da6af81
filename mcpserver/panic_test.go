package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// broken is a session whose methods panic, except those that end it.
type broken struct{}

func (broken) ID() string                  { return "b" }
func (broken) Close(context.Context) error { return nil }

func (broken) Call(context.Context, string, json.RawMessage) (*tool.Result, error) {
	panic("secret call")
}

func (broken) Watch(context.Context, string) (<-chan vfs.Change, error) { panic("secret watch") }

// TestADefectFailsItsRequestAlone: MaxCalls is one, so a slot that a request keeps would block the next.
func TestADefectFailsItsRequestAlone(t *testing.T) {
	open := func(context.Context) (Session, error) { return broken{}, nil }
	extend := func(sdk *mcp.Server) {
		sdk.AddPrompt(&mcp.Prompt{Name: "own"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			panic("secret prompt")
		})
	}
	r := startReady(t, New(newFakes().set(), &Options{Open: open, Extend: extend, MaxCalls: 1}))
	r.call(100, "wait", `{}`) // opens the session
	assert.True(t, r.next().Result.IsError)
	requests := []string{
		`"resources/read","params":{"uri":"wisbox://b/file/f"}`,
		`"resources/read","params":{"uri":"wisbox://b/digest"}`,
		`"resources/list"`,
		`"resources/subscribe","params":{"uri":"wisbox://b/file/f"}`,
		`"completion/complete","params":{"ref":{"type":"ref/resource","uri":"wisbox://{session}/file/{+path}"},"argument":{"name":"path","value":"a"}}`,
		`"prompts/get","params":{"name":"own"}`,
	}
	for i, request := range append(requests, requests...) {
		r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%s}`, i, request))
		got := r.next()
		assert.Equal(t, fmt.Sprint(i), got.ID)
		if assert.NotNil(t, got.Error, request) {
			assert.Equal(t, -32603, got.Error.Code, got.Line)
			assert.Contains(t, got.Error.Message, "internal: ")
		}
		assert.NotContains(t, got.Line, "secret")
	}
	r.end()
}
