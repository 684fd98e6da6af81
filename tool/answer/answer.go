// Package answer has what a call of a tool answers, a [Result] or an [Error], and what its context says of the caller.
//
// Package tool has the same under its own names, for everybody who makes tools. This package is for what has none, such as
// the clients of a session: a program that links package tool spends a tenth of its start on JSON schemas.
package answer

// Blob is binary content of a result, such as an image.
type Blob struct {
	MIME string
	Data []byte
}

// Result is the answer of a tool that could do its work.
type Result struct {
	Value  any    // marshals to the result object
	Text   string // the same, laid out for a model to read; never empty
	Failed bool   // the program failed in a way that the caller should notice
	Blobs  []Blob

	// Verdict describes how the tool's program ended; "" if the tool ran none.
	Verdict string
	// Changes are the files that the tool itself changed, for the audit log. Changes of
	// programs aren't included.
	Changes []Change
}

// Change is a tool's change to one path of the workspace.
type Change struct {
	Path    string `json:"path"`
	SHA256  string `json:"sha256,omitempty"`  // of the new content, hexadecimal
	Removed bool   `json:"removed,omitempty"` // including everything below it
}

// MaxArguments bounds the JSON of one call's arguments, in bytes: well over every limit on content.
const MaxArguments = 4 << 20
