package wasm

import (
	"context"
	"fmt"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental/table"
)

// offsetVectorcall is the offset of the table slot of vectorcall in a function object of CPython 3.12 for 32 bits:
// after the head of two words, eight fields that it shares with frames' constructors, and six of its own.
const offsetVectorcall = 64

// vectorcallSlot reads the slot from a memory.
func vectorcallSlot(memory []byte, object uint32) (uint32, error) {
	if uint64(object)+offsetVectorcall+4 > uint64(len(memory)) {
		return 0, errModule
	}
	return little.Uint32(memory[object+offsetVectorcall:]), nil
}

// driver calls the driver, a Python function without arguments, as C would.
func (j *job) driver(mod api.Module) (call func(context.Context) error, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: no function is where CPython 3.12 has it: %v", errModule, r)
		}
	}()
	i32 := api.ValueTypeI32
	fn := table.LookupFunction(mod, 0, j.function, []api.ValueType{i32, i32, i32, i32}, []api.ValueType{i32})
	return func(ctx context.Context) error {
		res, err := fn.Call(ctx, uint64(j.object), 0, 0, 0)
		if err == nil && res[0] == 0 {
			return fmt.Errorf("%w: the driver raised", errModule)
		}
		return err
	}, nil
}
