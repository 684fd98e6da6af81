package wasm

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"
)

// Prices of host functions in fuel: about as much as the program could have used itself in that time. File system
// functions also charge for the bytes that they move.
const (
	priceCall  = 100
	priceVec   = 4  // for each buffer of a list
	perUnit    = 16 // bytes copied or cleared per unit
	priceEntry = 16 // for each directory entry
	priceOpen  = 2_000
	priceHost  = 20_000 // for a request to the session's workspace
)

// Limits of the arguments.
const (
	maxPath = 4096 // bytes
	maxVecs = 1024
)

// Error numbers of WASI used here.
const (
	errnoFault   = 21
	errnoInval   = 28
	errnoMfile   = 33
	errnoTooLong = 37
)

// errHost replaces a panic in a host function, whose text would be Go's.
var errHost = errors.New("a function of the host failed")

// arguments describes the parameters of a host function that are lengths, because its work grows with them.
type arguments struct {
	paths []int // bytes of a path
	vecs  int   // number of buffers; 0 means none
	bytes int   // bytes of a buffer that is always filled; 0 means none
	opens bool  // it opens a file, whose number is limited
}

var lengths = map[string]arguments{
	"fd_read":                 {vecs: 2},
	"fd_pread":                {vecs: 2},
	"fd_write":                {vecs: 2},
	"fd_pwrite":               {vecs: 2},
	"sock_recv":               {vecs: 2},
	"sock_send":               {vecs: 2},
	"random_get":              {bytes: 1},
	"path_create_directory":   {paths: []int{2}},
	"path_filestat_get":       {paths: []int{3}},
	"path_filestat_set_times": {paths: []int{3}},
	"path_link":               {paths: []int{3, 6}},
	"path_open":               {paths: []int{3}, opens: true},
	"path_readlink":           {paths: []int{2}},
	"path_remove_directory":   {paths: []int{2}},
	"path_rename":             {paths: []int{2, 5}},
	"path_symlink":            {paths: []int{1, 4}},
	"path_unlink_file":        {paths: []int{2}},
}

// host exports WASI: wazero's functions, each with its price, and our own.
func (m *machine) host(ctx context.Context) error {
	b := m.runtime.NewHostModuleBuilder(wasi_snapshot_preview1.ModuleName)
	if err := m.priced(ctx, b); err != nil {
		return err
	}
	i32 := api.ValueTypeI32
	result := []api.ValueType{i32}
	b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(refuel), nil, result).Export(hookName)
	b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(poll), []api.ValueType{i32, i32, i32, i32}, result).Export("poll_oneoff")
	b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(exit), []api.ValueType{i32}, nil).Export("proc_exit")
	_, err := b.Instantiate(ctx)
	return err
}

// priced exports wazero's functions with their prices. wazero provides them only as a module.
func (m *machine) priced(ctx context.Context, b wazero.HostModuleBuilder) error {
	originals := m.runtime.NewHostModuleBuilder("originals")
	wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(originals)
	compiled, err := originals.Compile(ctx)
	if err != nil {
		return err
	}
	defer compiled.Close(ctx)
	for name, def := range compiled.ExportedFunctions() {
		fn, ok := def.GoFunction().(api.GoModuleFunction)
		if !ok {
			return fmt.Errorf("WASI's %s is of an unexpected kind", name)
		}
		b.NewFunctionBuilder().WithGoModuleFunction(atPrice(fn, lengths[name]), def.ParamTypes(), def.ResultTypes()).Export(name)
	}
	return nil
}

// atPrice returns a function that charges the price and then calls fn. It checks the time before and after.
func atPrice(fn api.GoModuleFunction, args arguments) api.GoModuleFunc {
	return func(ctx context.Context, mod api.Module, stack []uint64) {
		defer hidePanic()
		m := meterOf(ctx)
		price, errno := args.price(stack)
		m.spend(price)
		if errno == 0 && args.opens && m.files.full() {
			errno = errnoMfile
		}
		if errno != 0 {
			stack[0] = errno
			return
		}
		fn.Call(ctx, mod, stack)
		m.check()
	}
}

func (a arguments) price(stack []uint64) (units int64, errno uint64) {
	units = priceCall
	for _, i := range a.paths {
		n := uint32(stack[i])
		if n > maxPath {
			return units, errnoTooLong
		}
		units += int64(n)
	}
	if a.vecs != 0 {
		n := uint32(stack[a.vecs])
		if n > maxVecs {
			return units, errnoInval
		}
		units += int64(n) * priceVec
	}
	if a.bytes != 0 {
		units += int64(uint32(stack[a.bytes])) / perUnit
	}
	return units, 0
}

// hidePanic passes on the panics that stop a program, and replaces all others by errHost.
func hidePanic() {
	switch r := recover().(type) {
	case nil:
	case stopError:
		panic(r)
	case *sys.ExitError:
		panic(r)
	default:
		panic(stopError{errHost})
	}
}

// inPieces reads in pieces and checks the time between them.
type inPieces struct {
	io.Reader
	meter *meter
}

const piece = 64 << 10

func (r *inPieces) Read(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		r.meter.check()
		n, err := r.Reader.Read(p[done:min(len(p), done+piece)])
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}
