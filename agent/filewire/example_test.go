package filewire_test

import (
	"bytes"
	"fmt"

	"github.com/wisbox/wisbox/agent/filewire"
)

func ExampleNewStream() {
	var wire bytes.Buffer
	s := filewire.NewStream(&wire, &wire)
	_ = s.PutJSON(filewire.IsAsk, &filewire.Ask{Do: filewire.Stat, Path: []byte("/a")})
	_ = s.Flush()
	typ, payload, err := s.Next()
	fmt.Printf("%c %s %v\n", typ, payload, err)
	// Output: Q {"do":"stat","path":"L2E="} <nil>
}
