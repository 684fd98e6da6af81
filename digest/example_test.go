package digest_test

import (
	"context"
	"fmt"
	"log"
	"testing/fstest"

	"github.com/wisbox/wisbox/digest"
)

func ExampleNew() {
	d := digest.New(&digest.Options{Files: fstest.MapFS{"go.mod": {Data: []byte("module example.org/x\n")}, "main.go": {Data: []byte("package main\n")}}})
	report, err := d.Report(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Files)
	// Output: 2
}
