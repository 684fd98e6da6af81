package evaltool_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/python"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
	"github.com/wisbox/wisbox/vfs"
)

// An evaluator stands on an engine, which runs the code, and on the files of the
// workspace, which the code reads and writes.
func ExampleNew() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	root, err := os.OpenRoot(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer root.Close()
	tmp, err := root.OpenRoot(".") // for half-written files; a product has it outside the workspace
	if err != nil {
		log.Fatal(err)
	}
	defer tmp.Close()
	files, err := vfs.New(&vfs.Options{Root: root, Tmp: tmp})
	if err != nil {
		log.Fatal(err)
	}
	defer files.Close()
	// A product would ask package podman for the sandbox.
	box, err := sandboxtest.NewHost().Create(ctx, sandbox.Spec{ID: "example", Image: "any", Workspace: dir})
	if err != nil {
		log.Fatal(err)
	}
	defer box.Close(ctx)
	engine := python.New(&python.Options{Runner: func(context.Context) (sandbox.Runner, error) { return box, nil }})
	evaluator, err := evaltool.New(&evaltool.Options{Files: files, Container: engine})
	if err != nil {
		log.Fatal(err)
	}
	defer evaluator.Close()

	r, err := evaluator.Evaluate(ctx, evaltool.Params{
		Code: "print('hello')\nn * 2", Globals: map[string]string{"n": "21"},
		Writes: []evaltool.Write{{Path: "answer.txt", Content: "{n}"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s %s %q %s\n", r.Status, *r.ValueRepr, r.Stdout, r.Writes[0].Path)
	// Output: exited 42 "hello\n" answer.txt
}

func ExampleNewFeed() {
	ctx := context.Background()
	feed := evaltool.NewFeed(ctx, func(p evaltool.Part) { fmt.Printf("%q\n", p.Stdout) })
	_, _ = feed.Stdout().Write([]byte("hello\n")) // an engine does that
	feed.Close(ctx)
	// Output: "hello\n"
}
