package conformance

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

// Reply is one answer, raw and parsed.
type Reply struct {
	Answer Answer
	Raw    []byte // the line as received
}

// body returns the answer's result or error.
func (r Reply) body() value {
	if r.Answer.Error != nil {
		return r.Answer.Error
	}
	return r.Answer.Result
}

var kindAndMessage = regexp.MustCompile(`^(?s)([\p{L}\p{N}_]+): (.*)`)

// ParseReply parses one JSON-RPC reply to tools/call. A reply that breaks the rules for outcomes
// becomes an error of the kind "bad-answer", and a protocol error becomes one of the kind "rpc"
// with its code; no expectation accepts these.
func ParseReply(line []byte) Answer {
	reply := value(bytes.TrimSpace(line))
	if !json.Valid(reply) || !isObject(reply) {
		return badAnswer("no JSON object")
	}
	if e := get(reply, "error"); e != nil {
		return Answer{Error: errorOf("rpc"+show(get(e, "code")), show(get(e, "message")))}
	}
	result := get(reply, "result")
	text, ok := readable(result)
	if !isObject(result) || !ok {
		return badAnswer("no result object, or its content is not a list of content with text")
	}
	failed := string(get(result, "isError")) == "true"
	structured := get(result, "structuredContent")
	e := errorObject(result)
	switch {
	case e != nil && !failed:
		return badAnswer("an error object without isError")
	case e != nil:
		return errorAnswer(e, text)
	case failed && (structured == nil || onlyError(structured)):
		m := kindAndMessage.FindStringSubmatch(text)
		if m == nil {
			return badAnswer("isError without an error object: " + clip(text, 100))
		}
		return errorAnswer(errorOf(m[1], m[2]), text)
	case !isObject(structured):
		return badAnswer("no structuredContent: " + clip(text, 100))
	case text == "":
		return badAnswer("no readable text beside structuredContent")
	}
	return Answer{Result: structured, Failed: failed, Text: text}
}

// readable joins the texts of a result's content.
func readable(result value) (string, bool) {
	content := get(result, "content")
	if content != nil && !isList(content) {
		return "", false
	}
	var texts []string
	for _, item := range items(content) {
		if kind, _ := textOf(get(item, "type")); kind != "text" {
			continue
		}
		text, ok := textOf(get(item, "text"))
		if !ok {
			return "", false
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "\n"), true
}

// errorObject returns _meta["wisbox/error"], or nil if there is none.
func errorObject(result value) value {
	e := get(result, "_meta.wisbox/error")
	if inner := get(e, "error"); isObject(inner) {
		return inner
	}
	if string(e) == "null" {
		return nil
	}
	return e
}

func onlyError(structured value) bool {
	o := members(structured)
	return string(structured) == "null" || len(o) == 1 && o["error"] != nil
}

func errorAnswer(e value, text string) Answer {
	kind, _ := textOf(get(e, "kind"))
	message, _ := textOf(get(e, "message"))
	if !knownKind(kind) || strings.TrimSpace(message) == "" {
		return badAnswer("malformed error object: " + show(e))
	}
	if !strings.HasPrefix(text, kind+": ") {
		return badAnswer("text is not 'kind: message': " + clip(text, 100))
	}
	return Answer{Error: e, Text: text}
}

func badAnswer(message string) Answer { return Answer{Error: errorOf("bad-answer", message)} }

func errorOf(kind, message string) value {
	raw, _ := json.Marshal(&tool.Error{Kind: tool.Kind(kind), Message: message}) // two texts always encode
	return raw
}
