package overlay_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/wisbox/wisbox/overlay"
)

func ExampleOpenStore() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store, err := overlay.OpenStore(filepath.Join(dir, "state"))
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	session, err := store.Create(context.Background(), &overlay.CreateOptions{ID: "box"})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	fmt.Println(session.ID())
	// Output: box
}

// A directory that programs see before a session exists becomes its workspace.
func ExampleOpenStoreWith() {
	root, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(root)
	if err := os.Mkdir(filepath.Join(root, "workspace"), 0o777); err != nil {
		log.Fatal(err)
	}
	store, err := overlay.OpenStoreWith(filepath.Clean(root), &overlay.StoreOptions{Single: true})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	session, err := store.Create(context.Background(), &overlay.CreateOptions{ID: "one"})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	fmt.Println(filepath.Base(filepath.Dir(session.WorkspacePath())) == filepath.Base(root))
	// Output: true
}
