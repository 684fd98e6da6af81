package rlm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

// Evaluator runs Python for the operation eval; engine wasm of package
// evaltool/wasm is one. It may be used from many goroutines at once.
type Evaluator interface {
	// Eval runs code with each input as a global string. output is what the code
	// printed and then result, if it set it, without trailing newlines; failure is
	// "" or what the code did wrong (a traceback, a limit), and output then what
	// was printed before. err means that the engine itself failed.
	Eval(ctx context.Context, code string, inputs map[string]string) (output, failure string, err error)
	// Version names engine and module: results of one are not those of another.
	// "" means that the same code may give another result, so none is kept.
	Version() string
}

const maxEvalCode = 48_000 // characters

// evalArgs are the arguments of eval. Without inputs all bindings are inputs.
type evalArgs struct {
	Code   string    `json:"code"`
	Inputs *[]string `json:"inputs,omitempty"`
}

func (a evalArgs) names(b Bindings) []string {
	if a.Inputs == nil {
		return b.names()
	}
	names := slices.Clone(*a.Inputs)
	slices.Sort(names)
	return slices.Compact(names)
}

// check refuses code that can't run.
func (a evalArgs) check() error {
	if n := NewText(a.Code).Chars(); n > maxEvalCode {
		return tool.Errorf(tool.Invalid, "code has %d characters; at most %d are taken", n, maxEvalCode).In("code")
	}
	for _, name := range deref(a.Inputs) {
		if unusable(name) {
			return tool.Errorf(tool.Invalid, "inputs: %q is Python's own word, which no value can have as its name; bind the text under another name", clip(name, 80)).In("inputs")
		}
	}
	return nil
}

// unusable reports the names that Python needs.
func unusable(name string) bool { return slices.Contains(keywords, name) || name == "__builtins__" }

// notesOn says of inputs what the code may not expect of them. Of all bindings,
// those that are unusable are left out.
func notesOn(names []string) []string {
	var notes []string
	note := func(format string, name string) { notes = append(notes, fmt.Sprintf(format, name)) }
	for _, name := range names {
		switch {
		case unusable(name):
			note("%s is Python's own word, so the code does not get the binding of that name", name)
		case !isIdentifier(name):
			note("%[1]s is no identifier of Python: the code finds the binding as reads[%[1]q]", name)
		case name == "result":
			note("%s is a binding: it is the answer unless the code sets it", name)
		case slices.Contains(builtins, name):
			note("%s is a binding, which hides what Python has under that name", name)
		}
	}
	return notes
}

var keywords = strings.Fields(`
False None True and as assert async await break class continue def del elif else except finally for from global
if import in is lambda nonlocal not or pass raise return try while with yield`)

// builtins are the names of Python's own and of the evaluation's that an input
// hides.
var builtins = strings.Fields(`
ArithmeticError AssertionError AttributeError BaseException BaseExceptionGroup BlockingIOError BrokenPipeError
BufferError BytesWarning ChildProcessError ConnectionAbortedError ConnectionError ConnectionRefusedError
ConnectionResetError DeprecationWarning EOFError Ellipsis EncodingWarning EnvironmentError Exception
ExceptionGroup FileExistsError FileNotFoundError FloatingPointError FutureWarning GeneratorExit IOError
ImportError ImportWarning IndentationError IndexError InterruptedError IsADirectoryError KeyError
KeyboardInterrupt LookupError MemoryError ModuleNotFoundError NameError NotADirectoryError NotImplemented
NotImplementedError OSError OverflowError PendingDeprecationWarning PermissionError ProcessLookupError
RecursionError ReferenceError ResourceWarning RuntimeError RuntimeWarning StopAsyncIteration StopIteration
SyntaxError SyntaxWarning SystemError SystemExit TabError TimeoutError TypeError UnboundLocalError
UnicodeDecodeError UnicodeEncodeError UnicodeError UnicodeTranslateError UnicodeWarning UserWarning ValueError
Warning ZeroDivisionError abs aiter all anext any ascii bin bool breakpoint bytearray bytes callable chr
classmethod compile complex copyright credits delattr dict dir divmod enumerate eval exec exit filter float
format frozenset getattr globals hasattr hash help hex id input int isinstance issubclass iter len license list
locals map max memoryview min next object oct open ord pow print property quit range repr reversed round set
setattr slice sorted staticmethod str sum super tuple type vars zip
reads read_text write_text list_files`)

func isIdentifier(name string) bool {
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r|0x20 < 'a' || r|0x20 > 'z')
	})
}
