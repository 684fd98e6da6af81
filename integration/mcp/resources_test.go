package mcp

import (
	"bufio"
	"context"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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
			assert.ElementsMatch(t, []string{"digest", "bytes", "dir/a b.txt"}, slices.Collect(maps.Keys(uris)))
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

func TestTheDigestAndDiffsAreResources(t *testing.T) {
	c := newWorld(t).stdio()
	c.call("write_file", args{"file_path": "a", "content": "one\n"})
	from := c.call("snapshot_create", args{})["snapshot_id"].(string)
	c.call("write_file", args{"file_path": "a", "content": "two\n", "mode": "overwrite"})
	to := c.call("snapshot_create", args{})["snapshot_id"].(string)
	c.call("rm", args{"path": "a"})
	uris := c.resources()
	got, err := c.read(uris["digest"])
	require.NoError(t, err)
	assert.Equal(t, "text/markdown", got.MIMEType)
	got, err = c.read(uris["diff "+from])
	require.NoError(t, err)
	assert.Contains(t, got.Text, "D a\n")
	got, err = c.read(uris["diff "+from] + "/" + to)
	require.NoError(t, err)
	assert.Contains(t, got.Text, "M a\n")
	assert.Contains(t, got.Text, "\n-one\n+two\n")
	_, err = c.read(uris["diff "+from] + "x")
	assert.Error(t, err)
	done, err := c.Complete(t.Context(), &sdk.CompleteParams{
		Ref: &sdk.CompleteReference{Type: "ref/resource", URI: "wisbox://{session}/diff/{from}"}, Argument: sdk.CompleteParamsArgument{Name: "from", Value: ""},
	})
	require.NoError(t, err)
	assert.Equal(t, []string{from, to}, done.Completion.Values)
}

func TestManyFilesAreListedInPages(t *testing.T) {
	project := t.TempDir()
	for i := range 1100 {
		dir := filepath.Join(project, strconv.Itoa(i/100))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o644))
	}
	c := newWorld(t).stdio("--mount", project+":/")
	c.call("ls", args{})
	first, err := c.ListResources(t.Context(), nil)
	require.NoError(t, err)
	assert.Less(t, len(first.Resources), 1100)
	assert.NotEmpty(t, first.NextCursor)
	assert.Len(t, c.resources(), 1100+1) // the digest
	_, err = c.ListResources(t.Context(), &sdk.ListResourcesParams{Cursor: "nonsense"})
	assert.Error(t, err)
}

// told waits until a client was notified of each of these resources, and returns all notifications until then.
func told(t *testing.T, updates <-chan string, uris ...string) (all []string) {
	t.Helper()
	missing := map[string]bool{}
	for _, uri := range uris {
		missing[uri] = true
	}
	for len(missing) > 0 {
		select {
		case uri := <-updates:
			delete(missing, uri)
			all = append(all, uri)
		case <-time.After(30 * time.Second):
			require.Fail(t, "no notification of", "%v", missing)
		}
	}
	return all
}

func watcher() (*sdk.ClientOptions, <-chan string) {
	updates := make(chan string, 100)
	return &sdk.ClientOptions{ResourceUpdatedHandler: func(_ context.Context, r *sdk.ResourceUpdatedNotificationRequest) {
		updates <- r.Params.URI
	}}, updates
}

func TestChangesAreToldToWhoSubscribed(t *testing.T) {
	w := newWorld(t).needsPodman()
	for name, over := range map[string]sdk.Transport{
		"stdio": &sdk.CommandTransport{Command: w.command("mcp")}, "http": w.serve("127.0.0.1:0").transport(),
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			subscribeAndChange(t, w, over)
		})
	}
}

func subscribeAndChange(t *testing.T, w *world, over sdk.Transport) {
	opts, updates := watcher()
	c := w.connect(over, opts, &sdk.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	c.call("write_file", args{"file_path": "a", "content": "1"})
	uris := c.resources()
	for _, uri := range []string{uris["a"], uris["digest"]} {
		require.NoError(t, c.Subscribe(t.Context(), &sdk.SubscribeParams{URI: uri}))
	}
	for _, bad := range []string{"wisbox://another/file/a", "file:///etc/passwd", "", strings.Replace(uris["a"], "/file/a", "/output/x/stdout", 1)} {
		assert.Error(t, c.Subscribe(t.Context(), &sdk.SubscribeParams{URI: bad}), bad)
	}
	c.call("write_file", args{"file_path": "a", "content": "2", "mode": "overwrite"})
	told(t, updates, uris["a"], uris["digest"])
	c.call("shell_execute", args{"script": "echo 3 > b"})
	told(t, updates, uris["digest"])
	mark := strings.Replace(uris["a"], "/file/a", "/file/mark", 1)
	require.NoError(t, c.Subscribe(t.Context(), &sdk.SubscribeParams{URI: mark}))
	require.NoError(t, c.Unsubscribe(t.Context(), &sdk.UnsubscribeParams{URI: uris["a"]}))
	c.call("write_file", args{"file_path": "mark", "content": "1"})
	told(t, updates, mark) // and earlier notifications on their way
	c.call("shell_execute", args{"script": "echo 4 > a"})
	assert.NotContains(t, told(t, updates, uris["digest"]), uris["a"])
	c.call("write_file", args{"file_path": "mark", "content": "2", "mode": "overwrite"})
	assert.NotContains(t, told(t, updates, mark), uris["a"])
}

func TestOverStatelessHTTPChangesAreToldToWhoListens(t *testing.T) {
	s := newWorld(t).serve("127.0.0.1:0")
	c := s.connect("2026-07-28")
	handle := c.call("session_open", args{})["session"].(string)
	c.call("write_file", args{"session": handle, "file_path": "a", "content": "1"})
	uri := "wisbox://" + handle + "/file/a"
	lines := s.subscribe(t, uri)
	until := func(text string) {
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		require.Fail(t, "the stream ended", "without %s: %v", text, lines.Err())
	}
	until("notifications/subscriptions/acknowledged")
	c.call("write_file", args{"session": handle, "file_path": "a", "content": "2", "mode": "overwrite"})
	until("notifications/resources/updated")
	assert.Contains(t, lines.Text(), uri)
}

// subscribe subscribes to a resource's changes and returns the stream.
func (s *httpServer) subscribe(t *testing.T, uri string) *bufio.Scanner {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["` + uri + `"]},
		"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url(), strings.NewReader(body))
	require.NoError(t, err)
	for k, v := range map[string]string{
		"Authorization": "Bearer " + s.token, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen",
	} {
		r.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	return bufio.NewScanner(res.Body)
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
	project := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(project, "a-file-of-the-project"), nil, 0o644))
	s := newWorld(t).serve("127.0.0.1:0", "--mount", project+":/", "--profile", "anthropic")
	guide := func(c *client, session string) string {
		res, err := c.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "guide", Arguments: map[string]string{"task": "fix it", "session": session}})
		require.NoError(t, err)
		text := res.Messages[0].Content.(*sdk.TextContent).Text
		assert.Contains(t, text, "/workspace")
		assert.Contains(t, text, "fix it")
		assert.NotContains(t, text, "read_file", "the profile has no such tool")
		return text
	}
	c := s.connect("2026-07-28")
	assert.NotContains(t, guide(c, ""), "a-file-of-the-project")
	assert.Contains(t, guide(c, c.call("session_open", args{})["session"].(string)), "a-file-of-the-project")
}
