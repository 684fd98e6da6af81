package images

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAStrippedProgramIsSmallerAndRuns(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	whole, err := os.ReadFile(exe)
	require.NoError(t, err)
	stripped, err := readStripped(bytes.NewReader(whole))
	require.NoError(t, err)
	require.Less(t, len(stripped), len(whole))
	path := filepath.Join(t.TempDir(), "stripped")
	require.NoError(t, os.WriteFile(path, stripped, 0o755))
	out, err := exec.Command(path, "-test.run=^$").CombinedOutput()
	require.NoError(t, err, string(out))
	f, err := elf.NewFile(bytes.NewReader(stripped))
	require.NoError(t, err)
	require.Empty(t, f.Sections)
}

func TestWhatIsNoProgramStaysWhole(t *testing.T) {
	for _, text := range []string{"", "x", "#!/bin/sh\n", "\x7fELF", strings.Repeat("long text ", 2000)} {
		got, err := readStripped(strings.NewReader(text))
		require.NoError(t, err)
		require.Equal(t, text, string(got))
	}
}

func FuzzLoadedSizeTakesAnyHeader(f *testing.F) {
	f.Add([]byte("\x7fELF\x02\x01"))
	f.Add(append([]byte("\x7fELF\x02\x01"), bytes.Repeat([]byte{0xff}, 4090)...))
	f.Add(append([]byte("\x7fELF\x02\x01"), make([]byte, 4090)...))
	f.Fuzz(func(t *testing.T, head []byte) {
		if n := loadedSize(head); n < 0 {
			t.Fatalf("size %d", n)
		}
		_, err := readStripped(bytes.NewReader(head))
		require.NoError(t, err)
	})
}
