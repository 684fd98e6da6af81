package conformance

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

var kindAndMessage = regexp.MustCompile(`^(?s)([\p{L}\p{N}_]+): (.*)`)

// ParseReply turns one JSON-RPC reply to tools/call into an answer. A reply that
// breaks the rules for outcomes becomes an error of the kind "bad-answer", and a
// protocol error one of the kind "rpc" and its code: no expectation takes either.
func ParseReply(line []byte) Answer {
	value, err := parse(line)
	reply, ok := value.(*object)
	if err != nil || !ok {
		return badAnswer("no JSON object")
	}
	if e, refused := reply.member["error"]; refused {
		return refusal(get(e, "code"), get(e, "message"))
	}
	result, ok := reply.member["result"].(*object)
	if !ok {
		return badAnswer("no result object")
	}
	return answerOf(result)
}

func answerOf(result *object) Answer {
	text, ok := readable(result)
	if !ok {
		return badAnswer("content is no list of content with text")
	}
	failed := result.member["isError"] == true
	structured := result.member["structuredContent"]
	e := errorObject(result)
	switch {
	case e != nil && !failed:
		return badAnswer("an error object without isError")
	case failed && e == nil && (structured == nil || onlyError(structured)):
		return errorFromText(text)
	case failed && e != nil:
		return errorAnswer(e, text)
	}
	if _, ok := structured.(*object); !ok {
		return badAnswer("no structuredContent: " + clip(text, 100))
	}
	if text == "" {
		return badAnswer("no readable text beside structuredContent")
	}
	return Answer{Result: structured, Failed: failed, Text: text}
}

// readable joins the texts of a result's content.
func readable(result *object) (string, bool) {
	content, given := result.member["content"]
	list, ok := content.([]any)
	if given && !ok {
		return "", false
	}
	var texts []string
	for _, item := range list {
		c, isObject := item.(*object)
		if !isObject || c.member["type"] != "text" {
			continue
		}
		text, isText := c.member["text"].(string)
		if _, given := c.member["text"]; given && !isText {
			return "", false
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "\n"), true
}

// errorObject is what _meta["wisbox/error"] holds, nil where there is nothing.
func errorObject(result *object) any {
	meta, _ := result.member["_meta"].(*object)
	if meta == nil {
		return nil
	}
	e := meta.member["wisbox/error"]
	if outer, ok := e.(*object); ok {
		if inner, nested := outer.member["error"].(*object); nested {
			return inner
		}
	}
	return e
}

func onlyError(structured any) bool {
	o, ok := structured.(*object)
	return ok && len(o.names) == 1 && o.names[0] == "error"
}

func errorFromText(text string) Answer {
	m := kindAndMessage.FindStringSubmatch(text)
	if m == nil || knownKinds(m[1:2]) != nil {
		return badAnswer("isError without an error object: " + clip(text, 100))
	}
	return errorAnswer(errorOf(m[1], m[2]), text)
}

func errorAnswer(e any, text string) Answer {
	o, ok := e.(*object)
	if !ok {
		return badAnswer("malformed error object: " + show(e))
	}
	kind, _ := o.member["kind"].(string)
	message, _ := o.member["message"].(string)
	if knownKinds([]string{kind}) != nil || strings.TrimSpace(message) == "" {
		return badAnswer("malformed error object: " + show(e))
	}
	if !strings.HasPrefix(text, kind+": ") {
		return badAnswer("text is not 'kind: message': " + clip(text, 100))
	}
	return Answer{Error: o, Text: text}
}

func refusal(code, message any) Answer {
	text, ok := message.(string)
	if !ok {
		text = show(message)
	}
	return Answer{Error: errorOf("rpc"+show(code), text)}
}

func badAnswer(message string) Answer { return Answer{Error: errorOf("bad-answer", message)} }

func errorOf(kind, message string) *object {
	e := newObject()
	e.set("kind", kind)
	e.set("message", message)
	return e
}

// AnswerOf is the answer that a call in this process came to.
func AnswerOf(res *tool.Result, err error) Answer {
	if err != nil {
		return errorInProcess(tool.AsError(err))
	}
	raw, value, err := marshalled(res.Value)
	if err != nil {
		return badAnswer(fmt.Sprintf("the result is no JSON object: %v: %.100s", err, raw))
	}
	if res.Text == "" {
		return badAnswer("no readable text beside the result")
	}
	return Answer{Result: value, Failed: res.Failed, Text: res.Text}
}

func errorInProcess(e *tool.Error) Answer {
	if knownKinds([]string{string(e.Kind)}) != nil || strings.TrimSpace(e.Message) == "" {
		return badAnswer("malformed error: " + e.Error())
	}
	o := errorOf(string(e.Kind), e.Message)
	if e.Field != "" {
		o.set("field", e.Field)
	}
	return Answer{Error: o, Text: e.Error()}
}
