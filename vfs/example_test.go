package vfs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// exampleRoot creates and opens a directory.
func exampleRoot() (*os.Root, func()) {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		log.Fatal(err)
	}
	return root, func() { _ = root.Close(); _ = os.RemoveAll(dir) }
}

func ExampleNew() {
	workspace, end := exampleRoot()
	defer end()
	tmp, endTmp := exampleRoot()
	defer endTmp()
	files, err := vfs.New(&vfs.Options{Root: workspace, Tmp: tmp})
	if err != nil {
		log.Fatal(err)
	}
	defer files.Close()
	set := tool.NewSet(files.Tools()...)
	res, err := set.Call(context.Background(), "write_file", json.RawMessage(`{"file_path":"notes/a.txt","content":"hello"}`))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Changes[0].Path)
	// Output: notes/a.txt
}
