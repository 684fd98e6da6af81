package audit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/internal/audit"
	_ "github.com/wisbox/wisbox/internal/properties"
)

const name = "log.jsonl"

// bench is a directory with a log.
type bench struct {
	t    testing.TB
	root *os.Root
	path string
}

func newBench(t testing.TB) bench {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	return bench{t, root, filepath.Join(dir, name)}
}

func (b bench) write(from, to int) {
	b.t.Helper()
	l, err := audit.Open(b.root, name, nil)
	require.NoError(b.t, err)
	for i := from; i <= to; i++ {
		require.NoError(b.t, l.Append(map[string]any{"n": i, "text": "line\nbreak"}))
	}
	require.NoError(b.t, l.Sync())
	require.NoError(b.t, l.Close())
}

func (b bench) change(how func(lines []string) []string) {
	b.t.Helper()
	raw, err := os.ReadFile(b.path)
	require.NoError(b.t, err)
	lines := how(strings.SplitAfter(strings.TrimSuffix(string(raw), "\n"), "\n"))
	require.NoError(b.t, os.WriteFile(b.path, []byte(strings.Join(lines, "")), 0o600))
}

// problems returns Verify's problems as "kind@line".
func (b bench) problems() []string {
	b.t.Helper()
	report, err := audit.Verify(b.root, name)
	require.NoError(b.t, err)
	found := []string{}
	for _, p := range report.Problems {
		assert.NotEmpty(b.t, p.Message)
		found = append(found, fmt.Sprintf("%s@%d", p.Kind, p.Line))
	}
	return found
}

func TestAnUntouchedLogHasNoProblem(t *testing.T) {
	b := newBench(t)
	assert.Empty(t, b.problems(), "no log at all")
	b.write(1, 3)
	b.write(4, 6)
	assert.Empty(t, b.problems())
	n := 0
	require.NoError(t, audit.Records(b.root, name, func(line []byte) error {
		n++
		var record struct{ Seq, N int }
		require.NoError(t, json.Unmarshal(line, &record))
		assert.Equal(t, n, record.Seq)
		assert.Equal(t, n, record.N)
		return nil
	}))
	assert.Equal(t, 6, n)
}

func TestWhatWasDoneToALogIsFoundWithItsPlace(t *testing.T) {
	cut := func(s string) string { return s[:len(s)/2] }
	for _, c := range []struct {
		what string
		do   func(lines []string) []string
		want []string
	}{
		{"a record changed", func(l []string) []string { l[2] = strings.Replace(l[2], `"n":3`, `"n":9`, 1); return l }, []string{"changed@4"}},
		{"the first changed", func(l []string) []string { l[0] = strings.Replace(l[0], `"n":1`, `"n":9`, 1); return l }, []string{"changed@2"}},
		{"the last changed", func(l []string) []string { l[5] = strings.Replace(l[5], `"n":6`, `"n":9`, 1); return l }, []string{"changed@6"}},
		{"one removed", func(l []string) []string { return append(l[:2:2], l[3:]...) }, []string{"removed@3"}},
		{"the first removed", func(l []string) []string { return l[1:] }, []string{"removed@1"}},
		{"the last two removed", func(l []string) []string { return l[:4] }, []string{"removed@4"}},
		{"all removed", func(l []string) []string { return nil }, []string{"removed@0"}},
		{"one added", func(l []string) []string { return append(l[:3:3], append([]string{l[1]}, l[3:]...)...) }, []string{"added@4", "removed@5"}},
		{"the last cut", func(l []string) []string { l[5] = cut(l[5]); return l }, []string{"cut@6"}},
		{"one cut in the middle", func(l []string) []string { l[2] = cut(l[2]) + "\n"; return l }, []string{"cut@3"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			b := newBench(t)
			b.write(1, 6)
			b.change(func(l []string) []string { l[len(l)-1] += "\n"; return c.do(l) })
			assert.Equal(t, c.want, b.problems())
			b.write(7, 8)
			assert.NotEmpty(t, b.problems(), "records that follow don't hide it")
		})
	}
}

func TestALogThatIsGoneIsFound(t *testing.T) {
	b := newBench(t)
	b.write(1, 3)
	require.NoError(t, os.Remove(b.path))
	assert.Equal(t, []string{"removed@0"}, b.problems())
	b.write(4, 4)
	assert.Equal(t, []string{"removed@1"}, b.problems())
}

func TestAHeadThatIsGoneIsSaid(t *testing.T) {
	b := newBench(t)
	b.write(1, 3)
	require.NoError(t, os.Remove(b.path+".head"))
	assert.Equal(t, []string{"no_head@3"}, b.problems())
}

func TestACutRecordIsOneAndTheNextFollowsIt(t *testing.T) {
	b := newBench(t)
	b.write(1, 3)
	f, err := os.OpenFile(b.path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"seq":4,"prev":"`)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	assert.Equal(t, []string{"cut@4"}, b.problems())
	b.write(5, 6)
	assert.Equal(t, []string{"cut@4"}, b.problems())
}

func TestRecordsThatAreNoObjectsAreKept(t *testing.T) {
	b := newBench(t)
	l, err := audit.Open(b.root, name, nil)
	require.NoError(t, err)
	defer l.Close()
	for _, v := range []any{1, "x", []int{2}, nil, map[string]int{}, struct{}{}} {
		require.NoError(t, l.Append(v))
	}
	assert.Empty(t, b.problems())
	assert.Error(t, l.Append(func() {}))
	assert.Empty(t, b.problems())
}

// writeAtOnce lets 8 writers append 50 records each, and another one append the records that still
// wait.
func (b bench) writeAtOnce(opts *audit.Options) {
	b.t.Helper()
	write := func(records int) {
		l, err := audit.Open(b.root, name, opts)
		if !assert.NoError(b.t, err) {
			return
		}
		defer l.Close()
		for i := range records {
			assert.NoError(b.t, l.Append(map[string]int{"n": i}))
		}
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { write(50) })
	}
	wg.Wait()
	write(1)
}

func TestManyWritersMakeOneChain(t *testing.T) {
	b := newBench(t)
	b.writeAtOnce(nil)
	assert.Empty(t, b.problems())
	report, err := audit.Verify(b.root, name)
	require.NoError(t, err)
	assert.Equal(t, 401, report.Records)
	assert.EqualValues(t, 401, report.Head.Seq)
}

func TestALongRecordIsFoundFromTheEnd(t *testing.T) {
	b := newBench(t)
	l, err := audit.Open(b.root, name, nil)
	require.NoError(t, err)
	require.NoError(t, l.Append(strings.Repeat("x", 200_000)))
	require.NoError(t, l.Close())
	b.write(2, 2)
	assert.Empty(t, b.problems())
}

// small makes a log rotate after every few records.
var small = &audit.Options{MaxSize: 1000, Keep: 3}

func (b bench) writeSmall(from, to int) {
	b.t.Helper()
	l, err := audit.Open(b.root, name, small)
	require.NoError(b.t, err)
	defer l.Close()
	for i := from; i <= to; i++ {
		require.NoError(b.t, l.Append(map[string]int{"n": i}))
	}
}

func (b bench) files() (names []string) {
	b.t.Helper()
	entries, err := os.ReadDir(filepath.Dir(b.path))
	require.NoError(b.t, err)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(b.t, err)
		assert.LessOrEqual(b.t, info.Size(), int64(1200))
		names = append(names, e.Name())
	}
	return names
}

func TestAFullLogGoesOnInTheNextFileAndIsOneChain(t *testing.T) {
	b := newBench(t)
	b.writeSmall(1, 20)
	b.writeSmall(21, 25) // another process
	assert.Equal(t, []string{name, name + ".1", name + ".2", name + ".head"}, b.files())
	assert.Empty(t, b.problems())
	report, err := audit.Verify(b.root, name)
	require.NoError(t, err)
	assert.Equal(t, 25, report.Records)
	n := 0
	require.NoError(t, audit.Records(b.root, name, func([]byte) error { n++; return nil }))
	assert.Equal(t, 25, n)
}

func TestTheOldestFilesGoAndThatIsNoLoss(t *testing.T) {
	b := newBench(t)
	b.writeSmall(1, 200)
	assert.Equal(t, []string{name, name + ".1", name + ".2", name + ".3", name + ".head"}, b.files())
	assert.Empty(t, b.problems())
	report, err := audit.Verify(b.root, name)
	require.NoError(t, err)
	assert.EqualValues(t, 200, report.Head.Seq)
	assert.Less(t, report.Records, 100)

	require.NoError(t, os.Rename(b.path+".3", b.path+".away"))
	assert.Equal(t, []string{"removed@1"}, b.problems(), "a whole file that something else removed")
	require.NoError(t, os.Rename(b.path+".away", b.path+".3"))

	raw, err := os.ReadFile(b.path + ".2")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(b.path+".2", bytes.Replace(raw, []byte(`"n":1`), []byte(`"n":7`), 1), 0o600))
	report, err = audit.Verify(b.root, name)
	require.NoError(t, err)
	require.Len(t, report.Problems, 1)
	assert.Equal(t, audit.Changed, report.Problems[0].Kind)
	assert.Equal(t, name+".2", report.Problems[0].File)
}

func TestACrashBetweenTheStepsOfARotationLosesNothing(t *testing.T) {
	for _, c := range []struct {
		what  string
		crash func(b bench)
	}{
		{"the oldest moved over, the log not yet moved", func(b bench) {
			require.NoError(b.t, os.Rename(b.path+".2", b.path+".3"))
			require.NoError(b.t, os.Rename(b.path+".1", b.path+".2"))
		}},
		{"no next file yet", func(b bench) {
			for n := 2; n > 0; n-- {
				require.NoError(b.t, os.Rename(fmt.Sprintf("%s.%d", b.path, n), fmt.Sprintf("%s.%d", b.path, n+1)))
			}
			require.NoError(b.t, os.Rename(b.path, b.path+".1"))
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			b := newBench(t)
			for n := 1; len(b.files()) < 4; n++ { // the log, two older ones, the head
				b.writeSmall(n, n)
			}
			before, err := audit.Verify(b.root, name)
			require.NoError(t, err)
			c.crash(b)
			assert.Empty(t, b.problems())
			b.writeSmall(1, 1)
			assert.Empty(t, b.problems())
			after, err := audit.Verify(b.root, name)
			require.NoError(t, err)
			assert.Equal(t, before.Records+1, after.Records)
		})
	}
}

func TestManyWritersRotateOneLog(t *testing.T) {
	b := newBench(t)
	b.writeAtOnce(small)
	assert.Empty(t, b.problems())
	report, err := audit.Verify(b.root, name)
	require.NoError(t, err)
	assert.EqualValues(t, 401, report.Head.Seq)
}

// writerEnv turns this test binary into a writer that is killed.
const writerEnv = "AUDIT_TEST_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerEnv); dir != "" {
		writeForever(dir)
	}
	os.Exit(m.Run())
}

func writeForever(dir string) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		panic(err)
	}
	l, err := audit.Open(root, name, &audit.Options{MaxSize: 100_000, Keep: 1000})
	if err != nil {
		panic(err)
	}
	for i := 0; ; i++ {
		if err := l.Append(map[string]any{"n": i}); err != nil {
			panic(err)
		}
		if i%20 == 0 {
			fmt.Println(i)
		}
	}
}

func TestKilledWritersCutOneRecordAtMost(t *testing.T) {
	b := newBench(t)
	for range 10 {
		var writers []*exec.Cmd
		for range 2 {
			cmd := exec.Command("/proc/self/exe", "-test.run=^$")
			cmd.Env = append(os.Environ(), writerEnv+"="+filepath.Dir(b.path))
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			_, err = out.Read(make([]byte, 1))
			require.NoError(t, err)
			writers = append(writers, cmd)
		}
		for _, cmd := range writers {
			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait()
		}
	}
	report, err := audit.Verify(b.root, name)
	require.NoError(t, err)
	assert.Greater(t, report.Records, 19)
	assert.LessOrEqual(t, len(report.Problems), 20)
	for _, p := range report.Problems {
		assert.Equal(t, audit.Cut, p.Kind)
	}
}

// Verification finds a change of any single byte of a log.
func TestAnyChangedByteIsFound(t *testing.T) {
	b := newBench(t)
	b.write(1, 5)
	whole, err := os.ReadFile(b.path)
	require.NoError(t, err)
	rapid.Check(t, func(r *rapid.T) {
		at := rapid.IntRange(0, len(whole)-2).Draw(r, "at") // the last newline isn't covered
		to := rapid.Byte().Filter(func(c byte) bool { return c != whole[at] }).Draw(r, "to")
		changed := bytes.Clone(whole)
		changed[at] = to
		require.NoError(r, os.WriteFile(b.path, changed, 0o600))
		report, err := audit.Verify(b.root, name)
		require.NoError(r, err)
		require.NotEmpty(r, report.Problems)
	})
}
