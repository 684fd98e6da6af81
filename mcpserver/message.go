package mcpserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/wisbox/wisbox/tool"
	"sync"
)

// refusal is the answer to a line that is not a valid message.
type refusal struct {
	id      json.RawMessage // as the client wrote it; null if none was found
	code    int
	message string
	call    *tool.Error // for a tool call that is too long: its answer, not the protocol's
}

func (r *refusal) line() []byte {
	answer := map[string]any{"jsonrpc": "2.0", "id": r.id}
	if r.call != nil && r.id != nil {
		answer["result"] = errorResult(r.call)
	} else {
		answer["error"] = map[string]any{"code": r.code, "message": r.message}
	}
	raw, err := json.Marshal(answer)
	if err != nil { // the ID can't be repeated
		r.id = nil
		return r.line()
	}
	return raw
}

// decode decodes one line as one message. It returns a refusal in cases in which the SDK would end the connection or
// guess.
func decode(l line) (jsonrpc.Message, *refusal) {
	refuse := func(code int, message string) (jsonrpc.Message, *refusal) {
		return nil, &refusal{id: envelopeOf(l).ID, code: code, message: message}
	}
	switch {
	case l.tooLong:
		return nil, tooLong(envelopeOf(l))
	case !utf8.Valid(l.text):
		return refuse(jsonrpc.CodeParseError, "the message is not UTF-8")
	case !json.Valid(l.text):
		return refuse(jsonrpc.CodeParseError, "the message is not JSON")
	case l.text[bytes.IndexFunc(l.text, notBlank)] != '{':
		return refuse(jsonrpc.CodeInvalidRequest, "a message is one JSON object; batches are not taken")
	}
	if why := badID(l.text); why != "" {
		return refuse(jsonrpc.CodeInvalidRequest, why)
	}
	message, err := jsonrpc.DecodeMessage(l.text)
	if err != nil {
		return refuse(jsonrpc.CodeInvalidRequest, "the message is not a JSON-RPC 2.0 request, notification or response")
	}
	if request, ok := message.(*jsonrpc.Request); ok && paramsBeside(request) > maxParams {
		return refuse(jsonrpc.CodeInvalidParams, tooManyParams(request.Method))
	}
	if request, ok := message.(*jsonrpc.Request); ok && request.IsCall() {
		if why := badParams(request); why != "" {
			return refuse(jsonrpc.CodeInvalidParams, why)
		}
	}
	return message, nil
}

// tooLong refuses a line beyond the limit. A model can't see errors of the protocol, so the answer to a call is an
// error of its tool.
func tooLong(e envelope) *refusal {
	r := &refusal{id: e.ID, code: jsonrpc.CodeInvalidRequest, message: "the message is longer than 8 MiB"}
	if e.Method == callMethod {
		r.call = tool.Errorf(tool.TooLarge, "the call is longer than 8 MiB; its arguments may have %d bytes: write large content in parts", tool.MaxArguments)
	}
	return r
}

// presentable gives an error of the SDK the protocol's code, and a text for developers who don't know Go.
func presentable(err error) error {
	if method, ok := strings.CutPrefix(err.Error(), "handling '"); ok {
		method, _, _ = strings.Cut(method, "'")
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the params are missing or not what " + method + " takes"}
	}
	if e := (*jsonrpc.Error)(nil); !errors.As(err, &e) {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: err.Error()}
	}
	return err
}

func notBlank(r rune) bool { return r != ' ' && r != '\t' && r != '\r' && r != '\n' }

// badID returns the reason why the ID of a message can't be repeated exactly, "" if it can: the SDK converts IDs to
// 64-bit integers through a float.
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
		if len(v) <= maxID {
			return ""
		}
		return fmt.Sprintf("an id has at most %d bytes", maxID)
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return ""
		}
	}
	return "an id is a string or an integer below 2^53"
}

// Bounds of what a connection, a subscription or a task keeps of a message, longer than its request lasts.
const (
	maxID     = 256      // bytes of an ID that is a string
	maxParams = 64 << 10 // bytes of the params, without those of content
)

// content maps methods to the member of their params that has a limit of its own.
var content = map[string]string{callMethod: "arguments", "tasks/update": "inputResponses"}

// paramsBeside returns the size of a request's params, without the content.
func paramsBeside(r *jsonrpc.Request) int {
	if len(r.Params) <= maxParams {
		return len(r.Params)
	}
	return len(r.Params) - len(members(r.Params)[content[r.Method]])
}

func tooManyParams(method string) string {
	of := "the params"
	if name, ok := content[method]; ok {
		of += ", without " + name + ","
	}
	return fmt.Sprintf("%s have more than %d bytes; send less", of, maxParams)
}

// envelope holds the known members of a line that can't be decoded.
type envelope struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
}

var idAtTail = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`,\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*\}\s*$`) })

// envelopeOf looks for the ID of a line, so that its sender doesn't wait forever, and its method. Clients write them
// before the parameters or last.
func envelopeOf(l line) envelope {
	var e envelope
	if !l.tooLong && json.Unmarshal(l.text, &e) == nil {
		return e
	}
	e = headOf(l.text)
	end := l.text
	if l.tooLong {
		end = l.tail
	}
	if m := idAtTail().FindSubmatch(end); e.ID == nil && m != nil && json.Valid(m[1]) && utf8.Valid(m[1]) {
		e.ID = m[1]
	}
	return e
}

// headOf reads the members of an object up to the first that is cut or not a scalar.
func headOf(text []byte) envelope {
	var e envelope
	dec := json.NewDecoder(bytes.NewReader(text))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return e
	}
	for {
		token, _ := dec.Token()
		name, ok := token.(string)
		if !ok || name == "params" {
			return e
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil || !utf8.Valid(value) {
			return e
		}
		switch name {
		case "id":
			e.ID = value
		case "method":
			_ = json.Unmarshal(value, &e.Method)
		}
	}
}
