package envd

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
)

var octets = map[string]string{"Content-Type": "application/octet-stream"}

func filesURL(path string) string { return "/files?" + url.Values{"path": {path}}.Encode() }

// put uploads a file; it returns the status and the answer.
func (b *box) put(path string, content io.Reader, header map[string]string) (int, string) {
	b.t.Helper()
	res := b.do("POST", filesURL(path), content, header)
	answer, err := io.ReadAll(res.Body)
	require.NoError(b.t, err)
	return res.StatusCode, string(answer)
}

func (b *box) get(path string) (int, string) {
	b.t.Helper()
	res := b.do("GET", filesURL(path), nil, map[string]string{"Accept-Encoding": "identity"})
	content, err := io.ReadAll(res.Body)
	require.NoError(b.t, err)
	if res.StatusCode == http.StatusOK {
		assert.Equal(b.t, fmt.Sprint(len(content)), res.Header.Get("Content-Length"))
		assert.Equal(b.t, "nosniff", res.Header.Get("X-Content-Type-Options"))
		assert.Contains(b.t, res.Header.Get("Content-Disposition"), "attachment")
	}
	return res.StatusCode, string(content)
}

func TestFilesOfAllSizesComeBack(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{})
	for path, size := range map[string]int{"empty": 0, "a/b/one": 1, "/tmp/big": 100 << 20, "~/x.bin": 65536} {
		content := bytes.Repeat([]byte{1, 0, 255}, size/3+1)[:size]
		status, answer := b.put(path, bytes.NewReader(content), octets)
		require.Equal(t, 200, status, answer)
		status, got := b.get(path)
		assert.Equal(t, 200, status)
		assert.True(t, string(content) == got, path)
	}
	status, answer := b.put("a/b/one", strings.NewReader("x"), octets)
	assert.Equal(t, 200, status)
	assert.Equal(t, `[{"name":"one","path":"/home/user/a/b/one","type":"file"}]`, answer)
	status, _ = b.get("nowhere")
	assert.Equal(t, 404, status)
	status, answer = b.get("/tmp")
	assert.Equal(t, 400, status, answer)
	status, answer = b.put("/etc/hostname", strings.NewReader("x"), octets)
	assert.Equal(t, 403, status, answer)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = io.WriteString(w, "unpacked")
	require.NoError(t, w.Close())
	half := packed.Bytes()[:packed.Len()-6]
	header := map[string]string{"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}
	status, _ = b.put("half", bytes.NewReader(half), header)
	assert.Equal(t, 400, status)
	status, _ = b.put("whole", &packed, header)
	assert.Equal(t, 200, status)
	_, got := b.get("whole")
	assert.Equal(t, "unpacked", got)
	o := b.run(`ls -A ~; stat -c %a%U a/b a/b/one`)
	assert.Equal(t, "a\nempty\nwhole\nx.bin\n755user\n644user\n", o.stdout, "nothing of what was refused")
}

func TestMultipartNamesAreWhole(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{})
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for _, name := range []string{"/tmp/deep/er/f", "täglich/日本.txt", "c"} {
		part, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="file"; filename="` + name + `"`}})
		require.NoError(t, err)
		_, _ = io.WriteString(part, "content of "+name)
	}
	require.NoError(t, w.Close())
	res := b.do("POST", "/files", &body, map[string]string{"Content-Type": w.FormDataContentType()})
	var answer []object
	require.NoError(t, json.NewDecoder(res.Body).Decode(&answer))
	assert.Equal(t, []object{
		{"name": "f", "path": "/tmp/deep/er/f", "type": "file"},
		{"name": "日本.txt", "path": "/home/user/täglich/日本.txt", "type": "file"},
		{"name": "c", "path": "/home/user/c", "type": "file"},
	}, answer)
	_, got := b.get("/tmp/deep/er/f")
	assert.Equal(t, "content of /tmp/deep/er/f", got)
}

// form is files of one multipart request.
func form(t *testing.T, files ...[2]string) (string, *bytes.Buffer) {
	t.Helper()
	body := &bytes.Buffer{}
	w := multipart.NewWriter(body)
	for _, f := range files {
		part, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="file"; filename="` + f[0] + `"`}})
		require.NoError(t, err)
		_, _ = io.WriteString(part, f[1])
	}
	require.NoError(t, w.Close())
	return w.FormDataContentType(), body
}

// TestAllFilesOfAnUploadOrNone has uploads of many files that fail in their middle: they leave what was there before.
func TestAllFilesOfAnUploadOrNone(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{Limits: sandbox.Limits{Disk: 64 << 20}})
	status, answer := b.put("/workspace/f100", strings.NewReader("old"), octets)
	require.Equal(t, 200, status, answer)
	b.run("mkdir /workspace/dir")
	many := func(last ...[2]string) [][2]string {
		var all [][2]string
		for n := range 500 {
			all = append(all, [2]string{fmt.Sprintf("/workspace/f%d", n), "new"})
		}
		return append(all, last...)
	}
	post := func(files [][2]string, cut int) (int, string) {
		kind, body := form(t, files...)
		body.Truncate(body.Len() - cut)
		res := b.do("POST", "/files", body, map[string]string{"Content-Type": kind})
		said, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, string(said)
	}
	for _, c := range []struct {
		name   string
		files  [][2]string
		cut    int
		status int
		says   string
	}{
		{"the disk is full", many([2]string{"/workspace/big", strings.Repeat("x", 100<<20)}), 0, 507, "none of the files was written"},
		{"a directory has the name", many([2]string{"/workspace/dir", "x"}), 0, 400, `"/workspace/dir": it is a directory; none of the files was written`},
		{"a place for no file", many([2]string{"/etc/hosts/x", "x"}), 0, 400, "none of the files was written"},
		{"a read-only place", many([2]string{"/usr/new", "x"}), 0, 403, "none of the files was written"},
		{"the body ends in a header", many(), 4000, 400, "none of the files was written"},
		{"the body ends in a file", many([2]string{"/workspace/last", strings.Repeat("x", 9000)}), 4000, 400, "none of the files was written"},
		{"the last boundary is missing", many(), 70, 400, "none of the files was written"},
		{"a path that can't be", many([2]string{"a\x00b", "x"}), 0, 400, "none of the files was written"},
	} {
		status, said := post(c.files, c.cut)
		assert.Equal(t, c.status, status, c.name)
		assert.Contains(t, said, strings.ReplaceAll(c.says, `"`, `\"`), c.name)
		assert.Equal(t, "dir\nf100\nold", strings.TrimSpace(b.run("ls -A /workspace; cat /workspace/f100").stdout), c.name)
	}
	status, answer = post(many(), 0)
	require.Equal(t, 200, status, answer)
	assert.Equal(t, "501\nnew", strings.TrimSpace(b.run("ls -A /workspace | wc -l; cat /workspace/f100").stdout))
}

func sign(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

func TestSignedURLsNeedNoToken(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{})
	ask := func(method string, q url.Values) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, b.url+"/files?"+q.Encode(), strings.NewReader("x"))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/octet-stream")
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, string(body)
	}
	future, past := fmt.Sprint(time.Now().Add(time.Hour).Unix()), fmt.Sprint(time.Now().Add(-time.Hour).Unix())
	q := url.Values{"path": {"f"}, "signature": {sign("f:write::" + token)}}
	status, _ := ask("POST", q)
	assert.Equal(t, 200, status)
	status, body := ask("GET", q)
	assert.Equal(t, 401, status)
	assert.Equal(t, `{"code":401,"message":"invalid signature"}`, body)
	status, body = ask("GET", url.Values{"path": {"f"}, "username": {"user"}, "signature": {sign("f:read:user:" + token + ":" + future)}, "signature_expiration": {future}})
	assert.Equal(t, 200, status)
	assert.Equal(t, "x", body)
	status, body = ask("GET", url.Values{"path": {"f"}, "signature": {sign("f:read::" + token + ":" + past)}, "signature_expiration": {past}})
	assert.Equal(t, 401, status)
	assert.Equal(t, `{"code":401,"message":"signature is already expired"}`, body)
	status, body = ask("GET", url.Values{"path": {"f"}, "signature": {sign("f:read::" + token + ":" + past)}, "signature_expiration": {future}})
	assert.Equal(t, 401, status)
	assert.Contains(t, body, "invalid signature")
	status, _ = ask("GET", url.Values{"path": {"f"}})
	assert.Equal(t, 401, status)
	status, _ = ask("GET", url.Values{"path": {"f"}, "username": {"root"}, "signature": {sign("f:read:root:" + token)}})
	assert.Equal(t, 401, status)
}

func TestMetadataStaysWithTheFile(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{})
	header := map[string]string{"Content-Type": "application/octet-stream", "X-Metadata-Kind": "a b", "X-Metadata-OTHER": "ü"}
	status, answer := b.put("f", strings.NewReader("x"), header)
	require.Equal(t, 200, status, answer)
	want := object{"kind": "a b", "other": "ü"}
	assert.Contains(t, answer, `"metadata":{"kind":"a b","other":"ü"}`)
	assert.Equal(t, want, b.must("filesystem.Filesystem/Stat", object{"path": "f"})["entry"].(object)["metadata"])
	assert.Equal(t, want, b.must("filesystem.Filesystem/Move", object{"source": "f", "destination": "new/g"})["entry"].(object)["metadata"])
	assert.Equal(t, want, b.must("filesystem.Filesystem/ListDir", object{"path": "new"})["entries"].([]any)[0].(object)["metadata"])
	status, _ = b.put("new/g", strings.NewReader("y"), octets)
	require.Equal(t, 200, status)
	assert.NotContains(t, b.must("filesystem.Filesystem/Stat", object{"path": "new/g"})["entry"], "metadata")
}

func TestEntriesAreDescribed(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{})
	b.run(`mkdir -p d/e; echo hello > d/f; chmod 640 d/f; ln -s d/f link; ln -s d dirlink; ln -s nowhere broken; touch d/e/x d/z`)
	e := b.must("filesystem.Filesystem/Stat", object{"path": "d/f", "future": 1})["entry"].(object)
	when, err := time.Parse(time.RFC3339, e["modifiedTime"].(string))
	require.NoError(t, err)
	assert.False(t, when.IsZero())
	delete(e, "modifiedTime")
	assert.Equal(t, object{
		"name": "f", "type": "FILE_TYPE_FILE", "path": "/home/user/d/f", "size": "6", "mode": 416., "permissions": "-rw-r-----", "owner": "user", "group": "user",
	}, e)
	e = b.must("filesystem.Filesystem/Stat", object{"path": "/home/user/dirlink"})["entry"].(object)
	assert.Equal(t, []any{"FILE_TYPE_DIRECTORY", "/home/user/d", "Lrwxrwxrwx", 493.}, []any{e["type"], e["symlinkTarget"], e["permissions"], e["mode"]})
	e = b.must("filesystem.Filesystem/Stat", object{"path": "broken"})["entry"].(object)
	assert.NotContains(t, e, "type")
	paths := func(path string, depth int) (out []string) {
		for _, e := range b.must("filesystem.Filesystem/ListDir", object{"path": path, "depth": depth})["entries"].([]any) {
			out = append(out, e.(object)["path"].(string))
		}
		return out
	}
	assert.Equal(t, []string{"/home/user/d/e", "/home/user/d/f", "/home/user/d/z"}, paths("d", 0))
	assert.Equal(t, []string{"/home/user/d/e", "/home/user/d/e/x", "/home/user/d/f", "/home/user/d/z"}, paths("/home/user/d/", 2))
	assert.Equal(t, []string{"/home/user/dirlink/e", "/home/user/dirlink/f", "/home/user/dirlink/z"}, paths("~/dirlink", 1))
	for _, c := range []struct {
		method string
		ask    object
		status int
		code   string
	}{
		{"Stat", object{"path": "no"}, 404, "not_found"},
		{"Stat", object{"path": "d/f/below"}, 404, "not_found"},
		{"ListDir", object{"path": "no"}, 404, "not_found"},
		{"ListDir", object{"path": "d/f"}, 400, "invalid_argument"},
		{"MakeDir", object{"path": "d"}, 409, "already_exists"},
		{"Move", object{"source": "no", "destination": "x"}, 404, "not_found"},
		{"Stat", object{"path": strings.Repeat("n", 256)}, 400, "invalid_argument"},
		{"Stat", object{"path": "a\x00b"}, 400, "invalid_argument"},
	} {
		status, answer := b.call("filesystem.Filesystem/"+c.method, c.ask)
		assert.Equal(t, c.status, status, "%v", c)
		assert.Equal(t, c.code, answer["code"], "%v", c)
	}
	b.must("filesystem.Filesystem/MakeDir", object{"path": "/tmp/p/q/r"})
	b.must("filesystem.Filesystem/Remove", object{"path": "d"})
	b.must("filesystem.Filesystem/Remove", object{"path": "d"})
	status, _ := b.call("filesystem.Filesystem/Stat", object{"path": "d"})
	assert.Equal(t, 404, status)
}

func TestHostileNames(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{})
	long := strings.Repeat("n", 255)
	for _, name := range []string{"new\nline", long, "-rf", " ", `"quoted"`, "ünï", "a%0Ab"} {
		status, answer := b.put("h/"+name, strings.NewReader(name), octets)
		require.Equal(t, 200, status, answer)
		_, got := b.get("h/" + name)
		assert.Equal(t, name, got)
	}
	assert.Len(t, b.must("filesystem.Filesystem/ListDir", object{"path": "h"})["entries"], 7)
	b.run(`touch "$(printf 'h/\377\376')"; ln -s /proc/1/root h/out; mkfifo h/pipe; ln -s h h/loop`)
	assert.Len(t, b.must("filesystem.Filesystem/ListDir", object{"path": "h", "depth": 9})["entries"], 11, "names of any bytes are listed, links not entered")
	status, answer := b.get("h/pipe")
	assert.Equal(t, 400, status, answer)
}

func TestWatching(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{})
	b.run(`mkdir -p w/sub`)
	s := b.open("filesystem.Filesystem/WatchDir", object{"path": "w", "recursive": true, "includeEntry": true}, nil)
	require.Equal(t, object{"start": object{}}, s.want())
	status, _ := b.put("w/f", strings.NewReader("x"), octets)
	require.Equal(t, 200, status)
	b.run(`cd w; chmod 600 f; mv f g; rm g; mkdir new; echo y > new/h`)
	var seen []string
	for len(seen) == 0 || !strings.HasPrefix(seen[len(seen)-1], "new/h WRITE") {
		c := s.want()["filesystem"].(object)
		line := c["name"].(string) + " " + strings.TrimPrefix(c["type"].(string), "EVENT_TYPE_")
		if len(seen) == 0 {
			assert.Equal(t, "/home/user/w/f", c["entry"].(object)["path"])
		}
		seen = append(seen, line)
	}
	assert.Equal(t, []string{"f CREATE", "f WRITE", "f CHMOD", "f RENAME", "g CREATE", "g REMOVE", "new CREATE", "new/h CREATE", "new/h WRITE"}, seen)
}

// zeros is an upload of unknown size.
type zeros struct{ left int64 }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), z.left)
	z.left -= n
	return int(n), nil
}

func TestAFullDiskIsSaidAndLeavesNoPart(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{Limits: sandbox.Limits{Disk: 64 << 20}})
	status, answer := b.put("whole", strings.NewReader("x"), octets)
	require.Equal(t, 200, status, answer)
	for _, path := range []string{"big", "/tmp/big"} {
		status, answer := b.put(path, &zeros{2 << 30}, octets)
		assert.Equal(t, 507, status, answer)
	}
	assert.Equal(t, "whole\n", b.run(`ls -A ~ /tmp | grep -v '^$\|^/\|^home$'`).stdout)
	status, answer = b.put("after", strings.NewReader("x"), octets)
	assert.Equal(t, 200, status, answer)
}
