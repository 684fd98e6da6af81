package wasm_test

import (
	"log"

	"github.com/wisbox/wisbox/evaltool/wasm"
	"github.com/wisbox/wisbox/rlm"
)

// The engine evaluates without a container, also for operations over large texts.
func ExampleNew() {
	engine, err := wasm.New(&wasm.Options{Fuel: wasm.DefaultFuel, Memory: wasm.DefaultMemory})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := rlm.New(&rlm.Options{Eval: engine}); err != nil {
		log.Fatal(err)
	}
	// Output:
}
