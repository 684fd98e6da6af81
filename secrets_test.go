package wisbox_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

const (
	token = "tok-0123456789abcdef"
	stars = "********************"
)

var withToken = &wisbox.SessionOptions{Secrets: map[string]wisbox.Secret{"TOKEN": {Value: []byte(token + "\n")}}}

func TestSecretsAreHandedOverBeforeTheFirstProgram(t *testing.T) {
	m, host := manager(t, wisbox.Options{})
	s, err := m.Open(t.Context(), withToken)
	require.NoError(t, err)
	defer s.Close(t.Context())
	text(t, s, "shell_execute", `{"commands":["true"]}`)
	assert.Equal(t, map[string]string{"TOKEN": token + "\n"}, host.Secrets(s.ID()))

	host.Lose(s.ID())
	text(t, s, "shell_execute", `{"commands":["true"]}`)
	assert.Equal(t, map[string]string{"TOKEN": token + "\n"}, host.Secrets(s.ID()), "another sandbox gets them too")

	require.NoError(t, s.SetSecrets(t.Context(), map[string]wisbox.Secret{"MORE": {Value: []byte("another-secret")}}))
	text(t, s, "shell_execute", `{"commands":["true"]}`)
	assert.Equal(t, "another-secret", host.Secrets(s.ID())["MORE"])
}

func TestACloneHasTheSecretsOfItsSource(t *testing.T) {
	m, host := manager(t, wisbox.Options{})
	s, err := m.Open(t.Context(), withToken)
	require.NoError(t, err)
	defer s.Close(t.Context())
	clone, err := s.Clone(t.Context(), nil)
	require.NoError(t, err)
	defer clone.Close(t.Context())
	assert.Contains(t, text(t, clone, "shell_execute", `{"commands":["echo","`+token+`"]}`), stars)
	assert.Equal(t, token+"\n", host.Secrets(clone.ID())["TOKEN"])

	require.NoError(t, s.Reset(t.Context()))
	assert.Contains(t, text(t, s, "shell_execute", `{"commands":["echo","`+token+`"]}`), stars)
	assert.Equal(t, token+"\n", host.Secrets(s.ID())["TOKEN"])
}

func TestAPooledSandboxGetsTheSecretsOfItsSession(t *testing.T) {
	m, host := manager(t, wisbox.Options{Pool: wisbox.PoolOptions{Min: 1}})
	require.Eventually(t, func() bool {
		list, err := host.List(t.Context())
		return err == nil && len(list) == 1
	}, 30*time.Second, 10*time.Millisecond)
	s, err := m.Open(t.Context(), withToken)
	require.NoError(t, err)
	defer s.Close(t.Context())
	assert.NotContains(t, text(t, s, "shell_execute", `{"script":"echo `+token+`"}`), token)
	assert.Equal(t, token+"\n", host.Secrets(s.ID())["TOKEN"])
}

// A value must not come back to a caller in any way, or appear in anything that wisbox writes.
func TestAValueIsInNoAnswerAndNoFileOfTheSession(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "state")
	var mu sync.Mutex
	var said bytes.Buffer
	m, _ := manager(t, wisbox.Options{CacheDir: cache, OnEvent: func(e wisbox.Event) {
		mu.Lock()
		defer mu.Unlock()
		said.WriteString(mustJSON(t, e))
	}})
	s, err := m.Open(t.Context(), withToken)
	require.NoError(t, err)
	defer s.Close(t.Context())
	assert.Nil(t, s.Options().Secrets["TOKEN"].Value)

	answers := text(t, s, "shell_execute", `{"script":"echo a `+token+` b; printf tok-0123 >&2; sleep 0.1; printf 456789abcdef >&2; echo '`+token+`' >f"}`)
	assert.Contains(t, answers, "a "+stars+" b")
	assert.Contains(t, answers, `"stderr":"`+stars)
	for _, c := range [][2]string{
		{"read_file", `{"file_path":"f"}`}, {"grep", `{"pattern":"tok-"}`}, {"read_file", `{"file_path":"` + token + `"}`},
		{"edit_file", `{"file_path":"f","old_string":"` + token + `","new_string":"` + token + `2"}`},
		{"shell_execute", `{"script":"head -c 100000 /dev/zero | tr '\\0' x; echo ` + token + `; head -c 100000 /dev/zero | tr '\\0' y; echo ` + token + `"}`},
	} {
		res, err := call(t, s, c[0], c[1])
		answers += mustJSON(t, res) + mustJSON(t, tool.AsError(err))
	}
	cutAt := strings.Repeat("x", 290) + token // the log keeps 300 bytes of an argument
	_, _ = call(t, s, "shell_execute", `{"script":"`+cutAt+`"}`)
	_, _ = call(t, s, "read_file", `{"file_path":"`+cutAt+`"}`)
	_, _ = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true", cutAt}})
	assert.NotContains(t, said.String(), "x"+token[:5])
	var out bytes.Buffer
	_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"cat", "f"}, Stdout: &out, Stderr: &out})
	require.NoError(t, err)
	assert.Equal(t, stars+"2\n", out.String())
	answers += out.String() + said.String()
	assert.NotContains(t, answers, token)

	require.NoError(t, filepath.WalkDir(cache, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || strings.Contains(path, "/workspace/") || e.Name() == "disk.img" { // files of programs
			return err
		}
		raw, err := os.ReadFile(path)
		assert.NotContains(t, string(raw), token, path)
		return err
	}))
}

// wisbox encodes bytes itself, so it checks before that.
func TestAValueInAFileOfBytesIsCoveredInItsBase64(t *testing.T) {
	m, _ := manager(t, wisbox.Options{})
	s, err := m.Open(t.Context(), withToken)
	require.NoError(t, err)
	defer s.Close(t.Context())
	text(t, s, "shell_execute", `{"script":"printf 'a\\0\\377`+token+`z' >b"}`)
	read := func(args string) string {
		res, err := call(t, s, "read_file", args)
		require.NoError(t, err)
		var r struct{ Content string }
		require.NoError(t, json.Unmarshal([]byte(mustJSON(t, res.Value)), &r))
		raw, err := base64.StdEncoding.DecodeString(r.Content)
		require.NoError(t, err)
		assert.Contains(t, res.Text, r.Content)
		return string(raw)
	}
	assert.Equal(t, "a\x00\xff"+stars+"z", read(`{"file_path":"b","encoding":"base64"}`))
	for _, size := range []int{4, 5, 7} {
		assert.Equal(t, stars[:size], read(fmt.Sprintf(`{"file_path":"b","encoding":"base64","offset":6,"limit":%d}`, size)), "a piece of one")
	}
	n := len(token) - 3
	assert.Equal(t, stars[:n]+"z", read(`{"file_path":"b","encoding":"base64","offset":6}`), "the end of one")
	assert.Equal(t, "a\x00\xff"+stars[:n], read(fmt.Sprintf(`{"file_path":"b","encoding":"base64","limit":%d}`, 3+n)), "the beginning of one")
}

func TestAStartedProgramsStreamIsRedactedAndComesToItsEnd(t *testing.T) {
	m, _ := manager(t, wisbox.Options{})
	s, err := m.Open(t.Context(), withToken)
	require.NoError(t, err)
	defer s.Close(t.Context())
	r, w := io.Pipe()
	p, err := s.Start(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "printf 'x " + token + " tok-01'"}, Stdout: w})
	require.NoError(t, err)
	go func() {
		_, _ = p.Wait(t.Context())
		_ = w.Close()
	}()
	out, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "x "+stars+" tok-01", string(out))
}

func TestASecretOfAFileIsReadAgainForEachSandbox(t *testing.T) {
	m, host := manager(t, wisbox.Options{})
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte("first-value"), 0o600))
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true, Secrets: map[string]wisbox.Secret{"T": {File: path}}})
	require.NoError(t, err)
	text(t, s, "shell_execute", `{"commands":["true"]}`)
	require.NoError(t, s.Close(t.Context()))
	host.Lose("box")

	require.NoError(t, os.WriteFile(path, []byte("second-value"), 0o600))
	s, err = m.Attach(t.Context(), "box")
	require.NoError(t, err)
	assert.Contains(t, text(t, s, "shell_execute", `{"script":"echo second-value"}`), "************")
	assert.Equal(t, "second-value", host.Secrets("box")["T"])
	host.Lose("box")
	require.NoError(t, os.Remove(path))
	_, err = call(t, s, "shell_execute", `{"commands":["true"]}`)
	assert.Equal(t, tool.Unavailable, tool.KindOf(err))
	assert.NotContains(t, err.Error(), path)
	require.NoError(t, s.Close(t.Context()))
}

func TestAValueThatWasOnlyInMemoryIsAskedForAgain(t *testing.T) {
	m, host := manager(t, wisbox.Options{})
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true, Secrets: withToken.Secrets})
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))

	s, err = m.Attach(t.Context(), "box")
	require.NoError(t, err)
	defer s.Close(t.Context())
	_, err = call(t, s, "shell_execute", `{"commands":["true"]}`)
	assert.Equal(t, tool.Unavailable, tool.KindOf(err))
	assert.ErrorContains(t, err, "wisbox secret box TOKEN=FILE")
	text(t, s, "write_file", `{"file_path":"f","content":"files need no secrets"}`)
	in, err := s.Inspect(t.Context())
	require.NoError(t, err)
	assert.Contains(t, strings.Join(in.Gaps, "\n"), "TOKEN")

	require.NoError(t, s.SetSecrets(t.Context(), withToken.Secrets))
	text(t, s, "shell_execute", `{"commands":["true"]}`)
	assert.Equal(t, token+"\n", host.Secrets("box")["TOKEN"])
}

func TestBadSecretsAreRefusedAndNothingIsMade(t *testing.T) {
	m, _ := manager(t, wisbox.Options{})
	for what, secrets := range map[string]map[string]wisbox.Secret{
		"too short to be found": {"A": {Value: []byte("1234567")}},
		"empty":                 {"A": {}},
		"a path for a name":     {"../A": {Value: []byte(token)}},
		"too large":             {"A": {Value: bytes.Repeat([]byte("x"), 64<<10+1)}},
		"no such file":          {"A": {File: "/nonexistent/file"}},
		"both":                  {"A": {File: "/etc/passwd", Value: []byte(token)}},
	} {
		_, err := m.Open(t.Context(), &wisbox.SessionOptions{Secrets: secrets})
		require.Error(t, err, what)
		assert.NotContains(t, err.Error(), token)
		assert.NotContains(t, err.Error(), "/nonexistent")
	}
	entries, err := m.List(t.Context())
	require.NoError(t, err)
	assert.Empty(t, entries)
}

// TestAValueInANameIsCovered: names of files are text like any other.
func TestAValueInANameIsCovered(t *testing.T) {
	m, _ := manager(t, wisbox.Options{})
	s, err := m.Open(t.Context(), withToken)
	require.NoError(t, err)
	defer s.Close(t.Context())
	text(t, s, "shell_execute", `{"script":"mkdir d-`+token+`; echo needle >d-`+token+`/f-`+token+`"}`)
	for _, c := range [][2]string{
		{"ls", `{}`}, {"ls", `{"path":"d-` + token + `"}`}, {"glob", `{"pattern":"**"}`}, {"grep", `{"pattern":"needle"}`},
		{"read_file", `{"file_path":"d-` + token + `/f-` + token + `"}`}, {"shell_execute", `{"script":"find ."}`},
	} {
		got := text(t, s, c[0], c[1])
		assert.NotContains(t, got, token, c[0])
		assert.Contains(t, got, stars, c[0])
	}
}
