package wasm

import (
	"cmp"
	"os"
	"strconv"
	"time"

	"github.com/wisbox/wisbox/tool"
)

// Environment variables for options that are not set. The names that begin with RLM_ come from the system on which
// package rlm is modelled.
const (
	ModuleVariable = "WISBOX_WASM_PYTHON"   // path of a python.wasm
	moduleAlias    = "RLM_WASM_PYTHON_PATH" // the same; ModuleVariable has precedence
	FuelVariable   = "RLM_WASM_FUEL"        // Options.Fuel
	MemoryVariable = "RLM_WASM_MEMORY_MB"   // Options.Memory, in MiB

	TimeoutVariable = "WISBOX_WASM_TIMEOUT" // Options.Timeout, in seconds
)

// maxAddress is the maximum memory that WebAssembly can address, in bytes.
const maxAddress = 4 << 30

// bounds sets Fuel, Memory and Timeout: the option takes precedence over the variable, and that over the default.
func (o *Options) bounds() error {
	var err error
	if o.Fuel <= 0 {
		if o.Fuel, err = fromEnvironment(FuelVariable, 1<<62, DefaultFuel); err != nil {
			return err
		}
	}
	if o.Memory <= 0 {
		if o.Memory, err = fromEnvironment(MemoryVariable, maxAddress>>20, DefaultMemory>>20); err != nil {
			return err
		}
		o.Memory <<= 20
	}
	if o.Timeout <= 0 {
		const day = 24 * 60 * 60
		seconds, err := fromEnvironment(TimeoutVariable, day, int64(TimeoutFor(o.Fuel)/time.Second))
		if err != nil {
			return err
		}
		o.Timeout = time.Duration(seconds) * time.Second
	}
	if o.Memory > maxAddress {
		return tool.Errorf(tool.Invalid, "the memory for WebAssembly is %d bytes; it can't be more than 4 GiB", o.Memory).In("memory")
	}
	return nil
}

// fromEnvironment returns the value of a variable from 1 to most, or def if it isn't set.
func fromEnvironment(name string, most, def int64) (int64, error) {
	text := os.Getenv(name)
	if text == "" {
		return def, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, tool.Errorf(tool.Invalid, "the environment variable %s is %.40q; set it to a whole number from 1 to %d, or unset it", name, text, most)
	}
	return n, nil
}

// named returns the path of the module from the environment, "" if there is none.
func named() string { return cmp.Or(os.Getenv(ModuleVariable), os.Getenv(moduleAlias)) }
