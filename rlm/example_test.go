package rlm_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/wisbox/wisbox/rlm"
)

// A model never sees a large text: it asks for operations over it by name.
func ExampleNew() {
	ops, err := rlm.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := ops.Bind("context", "apple 3\npear 4\nplum 5\n"); err != nil {
		log.Fatal(err)
	}
	out, err := ops.Do(context.Background(), "grep", json.RawMessage(`{"input":"context","pattern":"^p"}`))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(out.Result)
	// Output:
	// pear 4
	// plum 5
}

// Bindings are the texts of one operation without an Ops.
func ExampleNewText() {
	text := rlm.NewText("é\nb")
	fmt.Println(text.Chars(), text.Lines())
	n, err := rlm.Apply(context.Background(), "count", json.RawMessage(`{"mode":"chars"}`), rlm.Bindings{"context": text})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n)
	// Output:
	// 3 2
	// 3
}

// A cache in a directory keeps results for the next process.
func ExampleOpenCache() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	cache, err := rlm.OpenCache(dir+"/cache", 0)
	if err != nil {
		log.Fatal(err)
	}
	key := fmt.Sprintf("%x", sha256.Sum256([]byte("what was asked")))
	if err := cache.Put(key, "result"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(cache.Get(key))
	// Output: result true
}

// The model explores what it can't see and answers; this one needs two messages.
func ExampleRun() {
	model := &script{says: []string{
		`{"mode":"explore","op":"count","args":{"mode":"lines"},"bind":"n"}`,
		`{"mode":"final","binding":"n"}`,
	}}
	answer, err := rlm.Run(context.Background(), &rlm.RunOptions{Query: "How many lines?", Context: "a\nb\nc\n", Model: model})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Text)
	// Output: 3
}
