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
