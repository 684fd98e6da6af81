package evaltool

import (
	"fmt"
	"strings"
)

// About explains to a model in one paragraph what evaluation is for.
const About = `evaluate_python evaluates a snippet and gives the value of its last expression; state "kept" keeps names between calls. Keep the code short, so that it ends within its time.`

// Guidance returns the tool's description for a model: limits, helpers and examples.
func (e *Evaluator) Guidance() string {
	var b strings.Builder
	fmt.Fprintf(&b, guidanceText, e.opts.MaxCode, e.opts.MaxTimeout.Seconds(), e.texts(), MaxReadBytes>>20, MaxWriteChars)
	for _, engine := range []Engine{e.opts.Container, e.opts.Wasm} {
		if engine != nil {
			b.WriteString("\n" + strings.TrimSpace(engine.Guidance()) + "\n")
		}
	}
	b.WriteString(examples)
	return b.String()
}

// texts returns the limits of the texts in a result, in words.
func (e *Evaluator) texts() string {
	if e.opts.MaxOutput == StreamChars {
		return fmt.Sprintf("%d characters of stdout, stderr, value and each global", StreamChars)
	}
	return fmt.Sprintf("%d characters of stdout and stderr, %d of value and each global", e.opts.MaxOutput, StreamChars)
}

const guidanceText = `Evaluate Python code and get the repr of its final expression, its output and its globals.

Limits: code %d characters, %g seconds, %s (longer ends in ...), read files %d MiB together, a written file %d characters. Only tab and newline as control characters.
- Python's standard library is there: re, json, math, collections, itertools and the rest; a call is slower than the file tools, so use those for plain reads and edits.
- globals gives the code names: each value is JSON text, so a string needs its quotes. The result's globals are JSON text too, or "!repr:" and a repr where JSON can't hold the value or is too long; together they have 32 KiB; functions, classes, modules and _names are left out.
- reads gives whole text files: reads["data/in.txt"].
- writes are made together after success, or not at all when the code raises or times out. content is a template as for str.format_map, with the final globals: {name}, {name[0]}, {name!r}, {name:03d}; {{ and }} are braces, attributes are refused.
- In the code: read_text(path), write_text(path, content, mode="overwrite") and list_files(path="/") work on the workspace; write_text takes effect with the other writes, after success.
- sandbox "restricted" is for code whose only effects are its writes; without a container it runs in WebAssembly.
- state "fresh" starts from nothing; "kept" keeps names between calls, also over a timeout. Top-level await works.
- What IPython adds to Python works in the container: %%cd, %%pwd, %%env, %%pip, %%time, %%timeit, %%%%bash and a few more, !command and lines = !command with {names}, obj?, display(...), _ for the last value of kept names, and code that is indented as a whole; if the image has IPython, state "kept" has all of it. input() gets no answer.
- results lists what was shown besides the value: display(...), plt.show() and open figures, with data of a DataFrame and chart of a matplotlib figure.
- An exception is a result with status "exception" and its traceback in stderr; globals are what was set before it, and discarded lists the writes that were not made. What open() and os had done by then stays: changed lists it, in the container. sys.exit() and sys.exit(0) end the code successfully; any other exit fails.
`

const examples = `
Examples:
{"code": "total = 0\nfor value in range(5):\n    total += value\nprint(total)\ntotal"}
{"code": "len(reads['log.txt'].splitlines())", "reads": [{"path": "log.txt"}]}
{"code": "n = sum(numbers)", "globals": {"numbers": "[1, 2, 3]"}, "writes": [{"path": "sum.txt", "content": "sum: {n}\n"}]}
{"code": "write_text('out/upper.txt', read_text('in.txt').upper())"}
`
