package mcp

import (
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func (c *client) resources() map[string]string {
	c.t.Helper()
	uris := map[string]string{}
	for one, err := range c.Resources(c.t.Context(), nil) {
		require.NoError(c.t, err)
		uris[one.Name] = one.URI
	}
	return uris
}

func (c *client) read(uri string) (*sdk.ResourceContents, error) {
	res, err := c.ReadResource(c.t.Context(), &sdk.ReadResourceParams{URI: uri})
	if err != nil {
		return nil, err
	}
	require.Len(c.t, res.Contents, 1)
	return res.Contents[0], nil
}

func TestFilesAreResources(t *testing.T) {
	for _, profile := range []string{"wisbox", "openai"} {
		t.Run(profile, func(t *testing.T) {
			w := newWorld(t)
			c := w.stdio("--profile", profile)
			assert.Empty(t, c.resources(), "no session yet")
			assert.Empty(t, w.sessions(), "looking opens none")
			write(c, profile, "dir/a b.txt", "one\ntwo\n")
			write(c, profile, "bytes", "x")
			uris := c.resources()
			assert.Len(t, uris, 2)
			got, err := c.read(uris["dir/a b.txt"])
			require.NoError(t, err)
			assert.Equal(t, "one\ntwo\n", got.Text)
			for _, bad := range []string{"none", "..%2f..%2fetc%2fpasswd", "../../../etc/passwd", "", "%00"} {
				_, err := c.read(strings.Replace(uris["bytes"], "bytes", bad, 1))
				assert.Error(t, err, bad)
			}
			_, err = c.read("wisbox://another/file/bytes")
			assert.Error(t, err)
			done, err := c.Complete(t.Context(), &sdk.CompleteParams{
				Ref: &sdk.CompleteReference{Type: "ref/resource", URI: "wisbox://{session}/file/{+path}"}, Argument: sdk.CompleteParamsArgument{Name: "path", Value: "di"},
			})
			require.NoError(t, err)
			assert.Equal(t, []string{"dir/"}, done.Completion.Values)
		})
	}
}

func write(c *client, profile, path, content string) {
	if profile == "openai" {
		c.call("apply_patch", args{"input": "*** Begin Patch\n*** Add File: " + path + "\n+" + strings.ReplaceAll(strings.TrimSuffix(content, "\n"), "\n", "\n+") + "\n*** End Patch"})
		return
	}
	c.call("write_file", args{"file_path": path, "content": content})
}

func TestLongOutputAndBytesAreResources(t *testing.T) {
	c := newWorld(t).needsPodman().stdio()
	id := c.call("shell_execute", args{"script": "seq 100000; printf '\\377\\000' > bytes; mkfifo pipe"})["output_id"].(string)
	uri := c.resources()["bytes"]
	session := strings.Split(uri, "/")[2]
	got, err := c.read("wisbox://" + session + "/output/" + id + "/stdout")
	require.NoError(t, err)
	assert.Len(t, got.Text, 588895)
	got, err = c.read(uri)
	require.NoError(t, err)
	assert.Equal(t, []byte{0xff, 0}, got.Blob)
	_, err = c.read(strings.Replace(uri, "bytes", "pipe", 1))
	assert.ErrorContains(t, err, "not_regular")
	_, err = c.read("wisbox://" + session + "/output/nope/stdout")
	assert.Error(t, err)
}

func TestOverStatelessHTTPResourcesGoByHandle(t *testing.T) {
	c := newWorld(t).serve("127.0.0.1:0").connect("2026-07-28")
	handle := c.call("session_open", args{})["session"].(string)
	c.call("write_file", args{"session": handle, "file_path": "a", "content": "1"})
	got, err := c.read("wisbox://" + handle + "/file/a")
	require.NoError(t, err)
	assert.Equal(t, "1", got.Text)
	_, err = c.read("wisbox://" + strings.ToLower(handle) + "x/file/a")
	assert.Error(t, err)
}

func TestTheGuideIsAPrompt(t *testing.T) {
	c := newWorld(t).stdio()
	res, err := c.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "guide", Arguments: map[string]string{"task": "fix it"}})
	require.NoError(t, err)
	text := res.Messages[0].Content.(*sdk.TextContent).Text
	assert.Contains(t, text, "/workspace")
	assert.Contains(t, text, "fix it")
}
