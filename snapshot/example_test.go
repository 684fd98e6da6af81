package snapshot_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"

	"github.com/wisbox/wisbox/snapshot"
)

// withStore calls do with the store of an empty workspace.
func withStore(do func(ctx context.Context, store *snapshot.Store) error) {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	var roots []*os.Root
	for _, name := range []string{"/workspace", "/tmp", "/snapshots"} {
		if err := os.Mkdir(dir+name, 0o700); err != nil {
			log.Fatal(err)
		}
		root, err := os.OpenRoot(dir + name)
		if err != nil {
			log.Fatal(err)
		}
		defer root.Close()
		roots = append(roots, root)
	}
	store, err := snapshot.New(&snapshot.Options{Workspace: roots[0], Tmp: roots[1], Store: roots[2]})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	if err := do(context.Background(), store); err != nil {
		log.Fatal(err)
	}
}

func ExampleNew() {
	withStore(func(ctx context.Context, store *snapshot.Store) error {
		if _, err := store.Create(ctx, nil); err != nil {
			return err
		}
		list, err := store.List(ctx)
		fmt.Println(len(list))
		return err
	})
	// Output: 1
}

// An archive carries the snapshots of a workspace to another store, with the caller's own files.
func ExampleOpenArchive() {
	var file bytes.Buffer
	withStore(func(ctx context.Context, store *snapshot.Store) error {
		_, err := store.Export(ctx, &file, map[string][]byte{"settings.json": []byte(`{"name":"box"}`)})
		return err
	})
	withStore(func(ctx context.Context, store *snapshot.Store) error {
		archive, err := snapshot.OpenArchive(&file)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", archive.Extra["settings.json"])
		if err := store.Import(ctx, archive); err != nil {
			return err
		}
		list, err := store.List(ctx)
		fmt.Println(len(list))
		return err
	})
	// Output:
	// {"name":"box"}
	// 1
}
