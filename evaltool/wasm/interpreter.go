package wasm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/wisbox/wisbox/internal/patience"
)

// interpreter is a machine and the memory of a started Python.
type interpreter struct {
	*machine
	cache wazero.CompilationCache
	image *image
	entry entry
	real  bool // real time and random numbers
}

// entry is the entry point of a started Python.
type entry struct {
	Stack  uint64 `json:"stack"`  // stack pointer
	Object uint32 `json:"object"` // address of the driver function
	Slot   uint32 `json:"slot"`   // table slot of its vectorcall
}

// started is the state that a process needs to begin; it is cached on disk.
type started struct {
	entry  entry
	module []byte // rewritten
	memory []byte
}

// loadInterpreter loads the cached state for the source, or creates it.
func loadInterpreter(ctx context.Context, src *source, opts *Options) (*interpreter, error) {
	dir := opts.CacheDir
	if err := privateDir(dir); err != nil {
		return nil, err
	}
	return openPrepared(opts.Prepared, src.key, dir, func() (*interpreter, error) {
		cache, err := wazero.NewCompilationCacheWithDir(filepath.Join(dir, src.key+compiledExt))
		if err != nil {
			return nil, fmt.Errorf("open compilation cache: %w", err)
		}
		i := &interpreter{cache: cache}
		if err := i.begin(ctx, src, filepath.Join(dir, src.key+stateExt)); err != nil {
			i.close()
			return nil, err
		}
		return i, nil
	})
}

func (i *interpreter) begin(ctx context.Context, src *source, path string) error {
	if s, err := loadStarted(path); err == nil {
		return i.use(ctx, s)
	}
	r, err := rewrite(src.module)
	if err != nil {
		return err
	}
	if i.machine, err = newMachine(ctx, r.module, i.cache); err != nil {
		return fmt.Errorf("%w: %w", errModule, err)
	}
	s, err := i.boot(ctx, r)
	if err != nil {
		return err
	}
	if err := s.save(path); err != nil {
		return err
	}
	return i.use(ctx, s)
}

// use creates the image and checks that Python answers from it.
func (i *interpreter) use(ctx context.Context, s *started) (err error) {
	if i.machine == nil {
		if i.machine, err = newMachine(ctx, s.module, i.cache); err != nil {
			return fmt.Errorf("%w: %w", errModule, err)
		}
	}
	i.entry = s.entry
	i.image, err = newImage(s.memory)
	return err
}

func (i *interpreter) close() {
	if i.machine != nil {
		i.machine.close()
	}
	if i.cache != nil {
		_ = i.cache.Close(context.Background())
	}
	if i.image != nil {
		i.image.close()
	}
}

// Limits for starting Python, which takes half a second.
const (
	bootFuel   = 4_000_000_000
	bootMemory = 256 << 20
)

var bootTimeout = patience.For(time.Minute)

// bootAnswer is the boot program's report after Python has started.
type bootAnswer struct {
	Object  uint32 `json:"object"`
	Version []int  `json:"version"`
}

// boot starts Python from the module's data and saves its memory.
func (i *interpreter) boot(ctx context.Context, r *rewritten) (*started, error) {
	img, err := newImage(r.memory)
	if err != nil {
		return nil, err
	}
	defer img.close()
	memory, err := img.mapRegion(bootMemory)
	if err != nil {
		return nil, err
	}
	defer memory.unmap()
	files := newFiles(1<<20, dirWorkspace, dirTemp, dirPrivate)
	files.give(fileBoot, &node{text: bootSource()})
	var streams bytes.Buffer
	out, err := i.run(ctx, &job{
		memory: memory, files: files, stdout: &streams, stderr: &streams, fuel: bootFuel, timeout: bootTimeout,
		args: []string{"python", "-S", "-s", "-B", "-P", "-c", "exec(compile(open('/" + fileBoot + "').read(), '<wisbox>', 'exec'))"},
		env:  map[string]string{"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"},
	})
	if err != nil {
		return nil, err
	}
	if !out.exited || out.exitCode != 0 {
		return nil, fmt.Errorf("%w: python did not start: %w: %s", errModule, errors.Join(out.stopped, out.crashed), streams.Bytes())
	}
	return takeStarted(out, r.module, files.content(fileAnswer))
}

func takeStarted(out *ran, module, raw []byte) (*started, error) {
	var answer bootAnswer
	if err := json.Unmarshal(raw, &answer); err != nil {
		return nil, fmt.Errorf("%w: %w", errModule, err)
	}
	if !slices.Equal(answer.Version, []int{3, 12}) {
		return nil, fmt.Errorf("%w: it is Python %v", errModule, answer.Version)
	}
	slot, err := vectorcallSlot(out.memory, answer.Object)
	if err != nil {
		return nil, err
	}
	return &started{
		entry: entry{Stack: out.stack, Object: answer.Object, Slot: slot}, module: module, memory: bytes.Clone(out.memory),
	}, nil
}

// privateDir creates the directory and checks that nobody else can write to it.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make cache directory: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("the cache directory may be written to by others: mode %o", info.Mode().Perm())
	}
	return nil
}
