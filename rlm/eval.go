package rlm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

// Evaluator runs Python for the operation eval. The engine of package evaltool/wasm is one.
// Its methods may be called from many goroutines at once.
type Evaluator interface {
	// Eval runs code with each input as a global string. output is the text that the code
	// printed, then the value of result if the code set it, without trailing newlines.
	// failure is "" or the code's error (a traceback, a limit); output then is the text
	// printed before it. err means that the engine itself failed.
	Eval(ctx context.Context, code string, inputs map[string]string) (output, failure string, err error)
	// Version names the engine and its module, whose results may differ from those of
	// others. "" means that the same code may give different results, so none is cached.
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
		return tool.Errorf(tool.Invalid, "code has %d characters; the maximum is %d", n, maxEvalCode).In("code")
	}
	for _, name := range deref(a.Inputs) {
		if unusable(name) {
			return tool.Errorf(tool.Invalid, "inputs: %q is a keyword of Python, which can't name a value; bind the text to another name", clip(name, 80)).In("inputs")
		}
	}
	return nil
}

// unusable reports whether Python needs a name for itself.
func unusable(name string) bool { return slices.Contains(keywords, name) || name == "__builtins__" }

// notesOn returns notes about the inputs that may surprise the code. Bindings with unusable
// names are left out.
func notesOn(names []string) []string {
	var notes []string
	note := func(format string, name string) { notes = append(notes, fmt.Sprintf(format, name)) }
	for _, name := range names {
		switch {
		case unusable(name):
			note("%s is a keyword of Python, so the code does not get the binding of that name", name)
		case !isIdentifier(name):
			note("%[1]s is not an identifier of Python: the code finds the binding as reads[%[1]q]", name)
		case name == "result":
			note("%s is a binding: its text is the answer unless the code sets %[1]s", name)
		case slices.Contains(builtins, name):
			note("%s is a binding, which hides Python's builtin of that name", name)
		}
	}
	return notes
}

var keywords = strings.Fields(`
False None True and as assert async await break class continue def del elif else except finally for from global
if import in is lambda nonlocal not or pass raise return try while with yield`)

// builtins are the names of Python and of the evaluation that an input can hide.
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
