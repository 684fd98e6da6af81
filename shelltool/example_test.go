package shelltool_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
	"github.com/wisbox/wisbox/shelltool"
)

// A script runs in the sandbox; how it ended is data in the result.
func ExampleNew() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	// A product would ask package podman for the sandbox.
	box, err := sandboxtest.NewHost().Create(ctx, sandbox.Spec{ID: "example", Image: "any", Workspace: dir})
	if err != nil {
		log.Fatal(err)
	}
	defer box.Close(ctx)
	shell, err := shelltool.New(&shelltool.Options{
		Runner: func(context.Context) (sandbox.Runner, error) { return box, nil },
		Files:  noFiles{}, // a *vfs.FS of the workspace
	})
	if err != nil {
		log.Fatal(err)
	}
	defer shell.Close()

	r, err := shell.Execute(ctx, shelltool.ExecuteParams{Command: shelltool.Command{Script: "echo hello; exit 3"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s %d %q\n", r.Status, r.ExitCode, r.Stdout)
	// Output: exited 3 "hello\n"
}
