package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
)

// traps are scripts that a program runs before a secret is replaced.
var traps = map[string]string{
	"a link where the new file is written": `ln -s /workspace/leak TOKEN.new`,
	"a link to a file in /tmp":             `ln -s /tmp/leak TOKEN.new; touch /tmp/leak; chmod 666 /tmp/leak`,
	"a link to a directory":                `mkdir /workspace/d; chmod 777 /workspace/d; rm -f TOKEN; ln -s /workspace/d TOKEN`,
	"a link to a file":                     `touch /workspace/leak; chmod 666 /workspace/leak; rm -f TOKEN; ln -s /workspace/leak TOKEN`,
	"a directory":                          `rm -f TOKEN; mkdir -p TOKEN/x TOKEN.new/x; chmod 0 TOKEN`,
	"a FIFO":                               `rm -f TOKEN; mkfifo TOKEN TOKEN.new`,
	"a hard link":                          `ln TOKEN other; ln TOKEN TOKEN.new; ln TOKEN /run/secrets/.x`,
	"a file of its own":                    `rm -f TOKEN; echo mine >TOKEN; chmod 444 TOKEN; echo mine >TOKEN.new`,
	"another mode":                         `chmod 666 TOKEN; echo mine >TOKEN; chmod 0 TOKEN; chmod 0 .`,
	"another directory":                    `mv /run/secrets /run/old; mkdir /run/secrets`,
	"a mount":                              `unshare -rm sh -c 'mount -t tmpfs x /run/secrets'; mount --bind /workspace /run/secrets`,
	"a full directory":                     `head -c 2M /dev/zero >fill; for i in $(seq 3000); do : >f$i; done`,
	"locks and watches":                    `(exec 9<TOKEN; flock -x 9; sleep 1000) & (exec 9<TOKEN; python3 -c 'import fcntl; fcntl.fcntl(9, 1024, 1)'; sleep 1000) &`,
}

func rotate(t *testing.T, s *wisbox.Session, value string) error {
	return s.SetSecrets(t.Context(), map[string]wisbox.Secret{"TOKEN": {Value: []byte(value)}})
}

func sumOf(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:])
}

// requireUnspilled checks that a value isn't in any file that programs of the session can write.
func requireUnspilled(t *testing.T, s *wisbox.Session, value string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(filepath.Join(env.root, "sessions", s.ID()), func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || e.Name() == "disk.img" {
			return err
		}
		raw, err := os.ReadFile(path)
		assert.NotContains(t, string(raw), value, path)
		if os.IsNotExist(err) {
			return nil
		}
		return err
	}))
	head, tail := value[:8], value[8:]
	assert.Empty(t, output(t, s, fmt.Sprintf(`grep -rlF -- '%s''%s' /tmp /dev/shm /workspace 2>/dev/null; true`, head, tail)))
}

// TestAProgramCantDivertASecret: whatever a program has prepared, a successful rotation gives the new value to
// programs, and writes it nowhere else.
func TestAProgramCantDivertASecret(t *testing.T) {
	for name, trap := range traps {
		t.Run(name, func(t *testing.T) {
			s := open(t, &wisbox.SessionOptions{Secrets: map[string]wisbox.Secret{"TOKEN": {Value: []byte(secretValue)}}})
			script(t, s, "exec 8</run/secrets/TOKEN; cd /run/secrets; "+trap)
			for round := range 2 {
				value := fmt.Sprintf("rotated-%d-9876543210", round)
				require.NoError(t, rotate(t, s, value))
				assert.Equal(t, sumOf(value)+"  -\n", output(t, s, "sha256sum </run/secrets/TOKEN"))
				requireUnspilled(t, s, value)
			}
			assert.Equal(t, "TOKEN\n", output(t, s, "ls -A /run/secrets"))
		})
	}
}

// TestProgramsOnlyReadSecrets: they own neither the files nor the directory.
func TestProgramsOnlyReadSecrets(t *testing.T) {
	s := open(t, &wisbox.SessionOptions{Secrets: map[string]wisbox.Secret{"TOKEN": {Value: []byte(secretValue)}}})
	assert.Equal(t, "755 0 0\n440 0 1000\n", output(t, s, `stat -c '%a %u %g' /run/secrets /run/secrets/TOKEN`))
	for _, change := range []string{
		"echo x >TOKEN", "echo x >>TOKEN", "rm -f TOKEN", "mv TOKEN x", "chmod 644 TOKEN", "chmod 777 .", "ln TOKEN /run/secrets/x", "ln -s / x",
		"touch x", "mkdir x", "mkfifo x", "touch -d 2020-01-01 TOKEN", "setfattr -n user.x -v y TOKEN", "truncate -s 0 TOKEN", "ln TOKEN /tmp/x",
	} {
		a := script(t, s, "cd /run/secrets && "+change)
		assert.NotZero(t, a.num("exit_code"), "%s: %v", change, a)
	}
	assert.Equal(t, sumOf(secretValue)+"  -\n", output(t, s, "sha256sum </run/secrets/TOKEN"))
}

// TestADescriptorOfAnOldSecretStaysOld: a new value is a new file.
func TestADescriptorOfAnOldSecretStaysOld(t *testing.T) {
	s := open(t, &wisbox.SessionOptions{Secrets: map[string]wisbox.Secret{"TOKEN": {Value: []byte(secretValue)}}})
	started := call(t, s, "process_start", args{"script": "exec 8</run/secrets/TOKEN; touch opened; while [ ! -e go ]; do sleep 0.02; done; sha256sum <&8 >sum; sleep 100"})
	require.NotEmpty(t, started.str("process_id"), "%v", started)
	output(t, s, "until [ -e opened ]; do sleep 0.02; done")
	require.NoError(t, rotate(t, s, "rotated-value-0123456789"))
	assert.Equal(t, sumOf(secretValue)+"  -\n", output(t, s, "touch go; while [ ! -s sum ]; do sleep 0.02; done; cat sum"))
}

// raceRounds is the number of rotations while programs attack them.
const raceRounds = 200

// TestARotationWinsEveryRace: programs at full speed can neither copy a value elsewhere, nor hide a value after its
// rotation was reported.
func TestARotationWinsEveryRace(t *testing.T) {
	s := open(t, &wisbox.SessionOptions{Secrets: map[string]wisbox.Secret{"TOKEN": {Value: []byte(secretValue)}}})
	call(t, s, "write_file", args{"file_path": "race.py", "content": `
import os, sys
os.chdir("/run/secrets")
os.makedirs("/workspace/d", exist_ok=True)
def tries():
    for n in ("TOKEN", "TOKEN.new"):
        yield lambda: os.symlink("/workspace/leak", n)
        yield lambda: os.unlink(n)
        yield lambda: os.symlink("/workspace/d", n)
        yield lambda: os.rename(n, "/run/secrets/x")
        yield lambda: os.link(n, "/run/secrets/y")
        yield lambda: os.mkdir(n)
        yield lambda: os.chmod(n, 0o666)
        yield lambda: os.close(os.open(n, os.O_WRONLY | os.O_TRUNC))
while True:
    for attempt in tries():
        try: attempt()
        except OSError: pass
`})
	for range 2 {
		call(t, s, "process_start", args{"commands": []string{"python3", "/workspace/race.py"}})
	}
	for round := range raceRounds {
		value := fmt.Sprintf("raced-%06d-%s", round, strings.Repeat("x", round*97%5000))
		require.NoError(t, rotate(t, s, value), "round %d", round)
		require.Equal(t, sumOf(value)+"  -\n", output(t, s, "sha256sum </run/secrets/TOKEN"), "round %d", round)
		_, err := os.Stat(filepath.Join(env.root, "sessions", s.ID(), "workspace", "leak"))
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	requireUnspilled(t, s, "raced-000")
}
