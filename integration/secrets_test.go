package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
)

const secretValue = "s3cret-0123456789-value"

func TestASecretIsAFileInATmpfsThatProgramsAloneRead(t *testing.T) {
	s := open(t, &wisbox.SessionOptions{Secrets: map[string]wisbox.Secret{"TOKEN": {Value: []byte(secretValue + "\n")}}})
	assert.Equal(t, "440 0 tmpfs\n", output(t, s, `stat -c '%a %u' /run/secrets/TOKEN | tr '\n' ' '; stat -f -c %T /run/secrets`))
	assert.Equal(t, "24\n", output(t, s, `wc -c </run/secrets/TOKEN`), "it is whole")
	assert.Equal(t, strings.Repeat("*", len(secretValue))+"\n", output(t, s, `cat /run/secrets/TOKEN`))
	assert.Equal(t, "none\n", output(t, s, `
for f in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do
	if tr '\0' '\n' <$f 2>/dev/null | grep -q "s3cret-""0123456789"; then echo $f; fi
done; echo none`))
	value := call(t, s, "evaluate_python", args{"code": "open('/run/secrets/TOKEN').read()", "sandbox": "container"})
	assert.Contains(t, value.str("value_repr"), "*****")
	assert.NotContains(t, value.str("value_repr"), "s3cret")

	call(t, s, "snapshot_create", nil)
	require.NoError(t, filepath.WalkDir(filepath.Join(env.root, "sessions", s.ID()), func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || e.Name() == "disk.img" {
			return err
		}
		raw, err := os.ReadFile(path)
		assert.NotContains(t, string(raw), secretValue, path)
		return err
	}))
}

func TestAKeptSessionsHolderKeepsItsSecrets(t *testing.T) {
	h := newHome(t)
	t.Setenv("TOKEN", secretValue)
	h.do("session", "create", "box", "--secret", "TOKEN=env")
	require.NoError(t, os.Unsetenv("TOKEN")) // the next processes don't have it
	covered := strings.Repeat("*", len(secretValue))
	assert.Equal(t, covered, h.do("exec", "box", "--", "cat", "/run/secrets/TOKEN"))
	assert.Regexp(t, `"in_use":false,"held":true`, h.do("session", "list", "--json"), "a holder alone is no use")
	record, err := os.ReadFile(filepath.Join(h.cache, "sessions/box/session.json"))
	require.NoError(t, err)
	assert.Contains(t, string(record), "TOKEN")
	assert.NotContains(t, string(record), secretValue)

	killHolder(t, "box", h)
	assert.Contains(t, h.fail("exec", "box", "--", "true"), "wisbox secret box TOKEN=FILE")
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(secretValue), 0o600))
	h.do("session", "secret", "box", "TOKEN="+file)
	h.do("exec", "box", "--", "test", "-s", "/run/secrets/TOKEN")
	killHolder(t, "box", h)
	assert.Equal(t, covered, h.do("exec", "box", "--", "cat", "/run/secrets/TOKEN"), "a file is read again")
	assert.NotContains(t, h.do("log", "box", "--json"), secretValue)
	h.do("session", "rm", "box")
	h.requireNothing()
}
