package mcpserver

import (
	"bytes"
	"encoding/json"
	"math"
	"regexp"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// refusal is a line that is no message: what to answer, and to which id.
type refusal struct {
	id      json.RawMessage // as the client wrote it; null where none was found
	code    int
	message string
}

func (r *refusal) line() []byte {
	raw, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": r.id, "error": map[string]any{"code": r.code, "message": r.message},
	})
	if err != nil { // the id can't be repeated
		r.id = nil
		return r.line()
	}
	return raw
}

// decode reads one line as one message. Where the SDK would end the connection
// or guess, it is a refusal instead.
func decode(l line) (jsonrpc.Message, *refusal) {
	refuse := func(code int, message string) (jsonrpc.Message, *refusal) {
		return nil, &refusal{id: findID(l), code: code, message: message}
	}
	switch {
	case l.tooLong:
		return refuse(jsonrpc.CodeInvalidRequest, "the message is longer than 8 MiB")
	case !utf8.Valid(l.text):
		return refuse(jsonrpc.CodeParseError, "the message is not UTF-8")
	case !json.Valid(l.text):
		return refuse(jsonrpc.CodeParseError, "the line is not JSON")
	case l.text[bytes.IndexFunc(l.text, notBlank)] != '{':
		return refuse(jsonrpc.CodeInvalidRequest, "a message is one JSON object; batches are not taken")
	}
	if why := badID(l.text); why != "" {
		return refuse(jsonrpc.CodeInvalidRequest, why)
	}
	message, err := jsonrpc.DecodeMessage(l.text)
	if err != nil {
		return refuse(jsonrpc.CodeInvalidRequest, "the message is no JSON-RPC 2.0 request, notification or response")
	}
	return message, nil
}

func notBlank(r rune) bool { return r != ' ' && r != '\t' && r != '\r' && r != '\n' }

// badID says why the id of a message can't be repeated exactly, "" when it can:
// the SDK keeps ids as 64-bit integers that it reads through a float.
func badID(text []byte) string {
	var envelope struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(text, &envelope) != nil || envelope.ID == nil {
		return ""
	}
	var id any
	if json.Unmarshal(envelope.ID, &id) != nil {
		return "the id can't be read"
	}
	switch v := id.(type) {
	case string:
		return ""
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return ""
		}
	}
	return "an id is a string or an integer below 2^53"
}

var (
	idAtHead = regexp.MustCompile(`^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*,`)
	idAtTail = regexp.MustCompile(`,\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*\}\s*$`)
)

// findID looks for the id of a line that can't be read as a whole, so that its
// sender need not wait for ever: where clients write it, first or last.
func findID(l line) json.RawMessage {
	var envelope struct {
		ID json.RawMessage `json:"id"`
	}
	if !l.tooLong && json.Unmarshal(l.text, &envelope) == nil {
		return envelope.ID
	}
	end := l.text
	if l.tooLong {
		end = l.tail
	}
	for _, m := range [][][]byte{idAtHead.FindSubmatch(l.text), idAtTail.FindSubmatch(end)} {
		if m != nil && json.Valid(m[1]) && utf8.Valid(m[1]) {
			return m[1]
		}
	}
	return nil
}
