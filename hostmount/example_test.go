package hostmount_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/wisbox/wisbox/hostmount"
)

func ExampleCopy() {
	source := exampleDir()
	defer os.RemoveAll(source)
	if err := os.WriteFile(source+"/main.go", []byte("package main\n"), 0o600); err != nil {
		log.Fatal(err)
	}
	workspace, endWorkspace := exampleRoot()
	defer endWorkspace()
	staging, endStaging := exampleRoot()
	defer endStaging()
	report, err := hostmount.Copy(context.Background(), []hostmount.Mount{{HostPath: source, MountPath: "src"}},
		&hostmount.Options{AllowedRoots: []string{source}, Dest: workspace, Staging: staging})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Files)
	// Output: 1
}

func ExampleOpenHomes() {
	source := exampleDir()
	defer os.RemoveAll(source)
	homes, err := hostmount.OpenHomes([]hostmount.Mount{{HostPath: source, MountPath: "src", Exclude: []string{".env"}}},
		&hostmount.Options{AllowedRoots: []string{source}})
	if err != nil {
		log.Fatal(err)
	}
	defer hostmount.CloseHomes(homes)
	rel, ok := homes[0].Find("src/cmd/main.go")
	fmt.Println(rel, ok, homes[0].LeavesOut(".env"))
	// Output: cmd/main.go true excluded
}

func exampleDir() string {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	return dir
}

// exampleRoot opens a new directory.
func exampleRoot() (*os.Root, func()) {
	dir := exampleDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		log.Fatal(err)
	}
	return root, func() { _ = root.Close(); _ = os.RemoveAll(dir) }
}
