package evaltool

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

// Params are the parameters of evaluate_python.
type Params struct {
	Code    string            `json:"code" jsonschema:"Python source; the repr of a final expression is the value"`
	Globals map[string]string `json:"globals,omitempty" jsonschema:"names that the code finds, each with its value as JSON text"`
	Reads   []Read            `json:"reads,omitempty" jsonschema:"workspace files to give to the code: reads[path] is the whole text"`
	Writes  []Write           `json:"writes,omitempty" jsonschema:"workspace files to write after success, all or none"`
	Timeout *float64          `json:"timeout,omitempty" jsonschema:"seconds, by default 5; the limit is above"`
	State   string            `json:"state,omitempty" default:"fresh" enum:"fresh|kept" jsonschema:"fresh starts from nothing, kept keeps names between calls"`
	Sandbox string            `json:"sandbox,omitempty" default:"container" enum:"container|restricted|wasm" jsonschema:"container is all of Python in the session's container, restricted a safe part of it, wasm Python in WebAssembly"`
	Fuel    *int64            `json:"fuel,omitempty" min:"1" jsonschema:"wasm only: units of work before the code is stopped"`
	Memory  *int64            `json:"memory,omitempty" min:"1" jsonschema:"wasm only: bytes of memory"`

	Context string `json:"context,omitempty" jsonschema:"name of a kept interpreter with its own names, created if missing; implies state kept"`
}

// Run is the input of a caller in Go: the parameters of the tool, and further ones.
type Run struct {
	Params
	// Env has variables for this run alone, at most 64 KiB.
	Env map[string]string `json:"env,omitempty"`
	// Language is one of [Languages]; "" means the context's. Each has a default context. All but python are always
	// kept, and have no globals, reads and writes.
	Language string `json:"language,omitempty"`
}

// Read is a file that the code reads completely.
type Read struct {
	Path string `json:"path" jsonschema:"path in the workspace"`
}

// Write is a file written after success.
type Write struct {
	Path    string `json:"path" jsonschema:"path in the workspace"`
	Content string `json:"content" jsonschema:"text in which {name} is the final global of that name, with an index, conversion or format as for str.format_map; {{ and }} are braces"`
	Mode    string `json:"mode,omitempty" default:"create" enum:"create|overwrite|append" jsonschema:"create makes a new file, overwrite and append change one that is there"`
}

// Result is the result of evaluate_python.
type Result struct {
	ValueRepr      *string           `json:"value_repr"`
	Stdout         string            `json:"stdout"`
	Stderr         string            `json:"stderr"`
	Globals        map[string]string `json:"globals"`
	GlobalsDropped int               `json:"globals_dropped"`
	Reads          []ReadDone        `json:"reads"`
	Writes         []WriteDone       `json:"writes"`
	Discarded      []Discarded       `json:"discarded,omitempty" jsonschema:"requested writes that were not made, because the code failed"`
	Changed        []string          `json:"changed,omitempty" jsonschema:"after a failure in the container: paths of the workspace that changed while the code ran, at most 64; one that ends in / is a directory that is new or whose entries came or went"`
	Status         string            `json:"status"`
	DurationMS     int64             `json:"duration_ms"`
	Display        []Display         `json:"display,omitempty"`
	Results        []Shown           `json:"results,omitempty" jsonschema:"what was shown, in order: objects given to display(), the final value (main), figures; left out where there is nothing but the text of the value"`
	ExecutionCount int64             `json:"execution_count,omitempty" jsonschema:"which evaluation of its interpreter this was: 1 in a fresh one"`
	// Message has further notes for the caller, e.g. that nothing was written, that kept names are lost, or that the
	// timeout was changed.
	Message string `json:"message,omitempty"`

	NetworkDenied []string `json:"network_denied,omitempty" jsonschema:"connections that the session's rules refused meanwhile, and how your user allows them"`

	failed bool
}

// ReadDone is a file that was given to the code.
type ReadDone struct {
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"`
	Version   int64  `json:"version"`
}

// WriteDone is a file that was written.
type WriteDone struct {
	Path      string `json:"path"`
	Mode      string `json:"mode"`
	SizeBytes int64  `json:"size_bytes"`
	Version   int64  `json:"version"`
	// Content is the text that this call wrote or appended.
	Content string `json:"content" jsonschema:"the text that was written; at most 4,096 characters, and 32 KiB of all files together, longer ends in ..."`

	sum string
}

// Discarded is a write that was not made.
type Discarded struct {
	Path string `json:"path"`
	Mode string `json:"mode"`
	// SizeBytes of the text. It is omitted if the code had not yet set a global in the text.
	SizeBytes *int64 `json:"size_bytes,omitempty"`
}

// Failed reports whether the evaluation raised, timed out or was ended.
func (r Result) Failed() bool { return r.failed }

// Verdict returns the code's outcome for the audit log.
func (r Result) Verdict() string { return r.Status }

// Changes returns the files written for the code, for the audit log.
func (r Result) Changes() []tool.Change {
	var out []tool.Change
	for _, w := range r.Writes {
		out = append(out, tool.Change{Path: w.Path, SHA256: w.sum})
	}
	return out
}

// Blobs returns the pictures and documents of the display, for surfaces that show them.
func (r Result) Blobs() []tool.Blob {
	var blobs []tool.Blob
	for _, d := range r.Display {
		if !IsBinary(d.MIME) {
			continue
		}
		if data, err := base64.StdEncoding.DecodeString(d.Data); err == nil {
			blobs = append(blobs, tool.Blob{MIME: d.MIME, Data: data})
		}
	}
	return blobs
}

// IsBinary reports whether displays of that type are encoded in base64.
func IsBinary(mime string) bool {
	return mime == "application/pdf" || strings.HasPrefix(mime, "image/") && mime != "image/svg+xml"
}

// WithDenied implements [tool.Networked].
func (r Result) WithDenied(denied []string) (value any, text string) {
	r.NetworkDenied = denied
	return r, r.Text()
}

// Text formats the result for a model, without empty fields.
func (r Result) Text() string {
	var b strings.Builder
	if r.failed {
		fmt.Fprintf(&b, "status: %s\n", r.Status)
	}
	if r.ValueRepr != nil {
		fmt.Fprintf(&b, "value: %s\n", *r.ValueRepr)
	}
	section(&b, "stdout", r.Stdout)
	section(&b, "stderr", r.Stderr)
	r.listGlobals(&b)
	for _, w := range r.Writes {
		fmt.Fprintf(&b, "wrote %s (%s, %d bytes)\n", w.Path, w.Mode, w.SizeBytes)
	}
	for _, s := range r.Results {
		if !s.Main {
			section(&b, "shown", s.Text)
		}
	}
	for _, d := range r.Display {
		fmt.Fprintf(&b, "display: %s, %d characters\n", d.MIME, len(d.Data))
	}
	if r.Message != "" {
		fmt.Fprintf(&b, "note: %s\n", r.Message)
	}
	for _, line := range r.NetworkDenied {
		fmt.Fprintf(&b, "network denied: %s\n", line)
	}
	if b.Len() == 0 {
		return "the code ran; it has no value and printed nothing\n"
	}
	return b.String()
}

func (r Result) listGlobals(b *strings.Builder) {
	if len(r.Globals) == 0 && r.GlobalsDropped == 0 {
		return
	}
	b.WriteString("globals:\n")
	for _, name := range sortedNames(r.Globals) {
		fmt.Fprintf(b, "  %s = %s\n", name, Clip(r.Globals[name], 200))
	}
	if r.GlobalsDropped > 0 {
		fmt.Fprintf(b, "  and %d more without room\n", r.GlobalsDropped)
	}
}

func section(b *strings.Builder, title, text string) {
	if text == "" {
		return
	}
	fmt.Fprintf(b, "%s:\n%s", title, text)
	if !strings.HasSuffix(text, "\n") {
		b.WriteByte('\n')
	}
}

func sortedNames(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
