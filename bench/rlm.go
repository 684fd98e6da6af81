package main

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/wisbox/wisbox/rlm"
)

var rlmTable = table{
	name: "rlm", title: "What operations over a large text cost",
	about: "Medians (and p99) of one operation over a bound text of 50 MB of words, without the cache of results. " +
		"The peers are processes that read the same text from a file in the page cache, in the locale C.UTF-8: their time includes their start, as it does for a caller.",
	parts: []func(*bench, context.Context) error{(*bench).operations},
}

const textBytes = 50_000_000

func (b *bench) operations(ctx context.Context) error {
	text := string(sourceText(rand.New(rand.NewPCG(3, 4)), textBytes, true))
	file := filepath.Join(filepath.Dir(b.root), "text")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	ops, err := rlm.New(nil)
	if err != nil {
		return err
	}
	if _, err := ops.Load(ctx, rlm.LoadParams{Name: "t", Text: &text}); err != nil {
		return err
	}
	python, err := hostPython()
	if err != nil {
		return err
	}
	b.notes = append(b.notes, "characters and their places are counted when a text is bound, which is not in these figures")
	const read = "import sys, json; t = open(sys.argv[1]).read(); sys.stdout.write("
	for _, one := range []struct {
		op, args, what string
		peer           []string
		peerName       string
		bar            float64
	}{
		{"count", `{"input":"t","mode":"lines"}`, "`count` of lines", []string{"wc", "-l", file}, "`wc -l`", 1},
		{"count", `{"input":"t","mode":"chars"}`, "`count` of characters", []string{"wc", "-m", file}, "`wc -m`", 1},
		{"grep", `{"input":"t","pattern":"xylophone_needle"}`, "`grep` of a literal", []string{"grep", "xylophone_needle", file}, "GNU `grep`", 1},
		{"grep", `{"input":"t","pattern":"[a-z]{9}_[a-z]{6} = [0-9]{4}"}`, "`grep` without a literal", []string{"grep", "-E", "[a-z]{9}_[a-z]{6} = [0-9]{4}", file}, "GNU `grep -E`", 1},
		{"slice", `{"input":"t","start":25000000,"end":25001000}`, "`slice` of 1,000 characters in the middle", []string{"sh", "-c", `tail -c +25000001 "$0" | head -c 1000`, file}, "`tail -c` and `head -c`", 1},
		{"split", `{"input":"t","delimiter":"\n"}`, "`split` into lines", []string{python, "-I", "-c", read + `json.dumps(t.split("\n")))`, file}, "Python's `split` and `json.dumps`", 1},
		{"chunk", `{"input":"t","n":100}`, "`chunk` into 100", []string{python, "-I", "-c", read + `json.dumps((lambda l: ["\n".join(l[i:i + -(-len(l) // 100)]) for i in range(0, len(l), -(-len(l) // 100))])(t.split("\n"))))`, file}, "the same in Python", 1},
	} {
		ours := func() error {
			_, err := ops.Do(ctx, one.op, json.RawMessage(one.args))
			return err
		}
		peer := func() error {
			cmd := exec.Command(one.peer[0], one.peer[1:]...)
			cmd.Env = append(cmd.Environ(), "LC_ALL=C.UTF-8")
			_, err := cmd.Output()
			return err
		}
		if err := b.against(one.what, one.peerName, ours, peer, one.bar); err != nil {
			return err
		}
	}
	return nil
}
