package mcp

import (
	"context"
	"maps"
	"testing"

	mcpgo "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	protocol "github.com/mark3labs/mcp-go/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// second is a client that shares no code with the server: mark3labs/mcp-go.
type second struct {
	*mcpgo.Client
	t       *testing.T
	session args // additional arguments of every call over stateless HTTP
}

func newSecond(t *testing.T, over transport.Interface, revision string) *second {
	t.Helper()
	c := &second{mcpgo.NewClient(over, mcpgo.WithProtocolVersion(revision)), t, args{}}
	require.NoError(t, c.Start(context.WithoutCancel(t.Context()))) // it kills the server when that ends
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	hello := protocol.InitializeRequest{}
	hello.Params.ClientInfo = protocol.Implementation{Name: "second", Version: "1"}
	got, err := c.Initialize(t.Context(), hello)
	require.NoError(t, err)
	require.Equal(t, revision, got.ProtocolVersion)
	assert.Contains(t, got.Instructions, "/workspace")
	return c
}

func (c *second) call(name string, arguments args) *protocol.CallToolResult {
	c.t.Helper()
	maps.Copy(arguments, c.session)
	request := protocol.CallToolRequest{}
	request.Params.Name, request.Params.Arguments = name, arguments
	res, err := c.CallTool(c.t.Context(), request)
	require.NoError(c.t, err, name)
	return res
}

func (c *second) value(name string, arguments args) args {
	c.t.Helper()
	res := c.call(name, arguments)
	require.False(c.t, res.IsError, "%s: %v", name, res.Content)
	return res.StructuredContent.(args)
}

func TestTheSecondGoClient(t *testing.T) {
	w := newWorld(t).needsPodman()
	s := w.serve("127.0.0.1:0")
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run("stdio "+revision, func(t *testing.T) {
			c := newSecond(t, transport.NewStdio(w.bin, []string{"WISBOX_CACHE=" + w.cache}, "mcp"), revision)
			c.tryAll()
		})
		t.Run("http "+revision, func(t *testing.T) {
			over, err := transport.NewStreamableHTTP(s.url(), transport.WithHTTPHeaders(map[string]string{"Authorization": "Bearer " + s.token}))
			require.NoError(t, err)
			c := newSecond(t, over, revision)
			if revision == "2026-07-28" {
				c.session = c.value("session_open", args{})
				defer c.value("session_close", args{})
			}
			c.tryAll()
		})
	}
}

func (c *second) tryAll() {
	tools, err := c.ListTools(c.t.Context(), protocol.ListToolsRequest{})
	require.NoError(c.t, err)
	assert.Greater(c.t, len(tools.Tools), 10)
	c.value("write_file", args{"file_path": "a.txt", "content": "one\n"})
	assert.Equal(c.t, "one\n", c.value("shell_execute", args{"commands": []string{"cat", "a.txt"}})["stdout"])
	wrong := c.call("read_file", args{"file_path": "../x"})
	assert.True(c.t, wrong.IsError)
	assert.Contains(c.t, wrong.Content[0].(protocol.TextContent).Text, "invalid: ")
	prompts, err := c.ListPrompts(c.t.Context(), protocol.ListPromptsRequest{})
	require.NoError(c.t, err)
	assert.Len(c.t, prompts.Prompts, 1)
	c.readBack()
}

// readBack reads the file by its URI, which it takes from the listing if the connection has a session.
func (c *second) readBack() {
	uri := ""
	if handle, ok := c.session["session"].(string); ok {
		uri = "wisbox://" + handle + "/file/a.txt"
	} else {
		list, err := c.ListResources(c.t.Context(), protocol.ListResourcesRequest{})
		require.NoError(c.t, err)
		uri = list.Resources[len(list.Resources)-1].URI
	}
	read := protocol.ReadResourceRequest{}
	read.Params.URI = uri
	got, err := c.ReadResource(c.t.Context(), read)
	require.NoError(c.t, err)
	assert.Equal(c.t, "one\n", got.Contents[0].(protocol.TextResourceContents).Text)
}
