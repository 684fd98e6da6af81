package rlm

import "fmt"

// prompt returns a conversation's system message.
func prompt(ops *Ops, l Limits) string {
	return fmt.Sprintf(promptText, ops.Language(), l.Explore, l.Commits)
}

const promptText = `You answer a question about a text that is too large to be shown. The text is bound to the name context; you work on it by operations over named texts.

Operations:
%s
Only in a commit, models answer questions for you:
- rlm_call {query, context}: the answer to a question about one bound text.
- map {query, inputs}: the same question about each of several texts (inputs as for combine); a JSON array of the answers, in order.

Answer every time with exactly one JSON object, one of:
{"mode":"explore","op":"grep","args":{"input":"context","pattern":"error"},"bind":"errors"}
  runs one operation and shows you the result (long ones cut; the binding has all). At most %d.
{"mode":"commit","steps":[{"op":"chunk","args":{"input":"errors","n":4},"bind":"parts"},{"op":"map","args":{"query":"How many errors?","inputs":"parts"},"bind":"counts"},{"op":"combine","args":{"inputs":"counts","strategy":"sum"},"bind":"total"}],"output":"total"}
  runs a program; only its output is bound and shown. At most %d; the output of the last one is the answer.
{"mode":"final","answer":"…"}
  ends with your answer; {"mode":"final","binding":"name"} ends with a bound text as the answer.
`

// opening returns the first message to a model.
func opening(query string, context *Text) string {
	return fmt.Sprintf("Question: %s\n\ncontext has %d characters in %d lines.", query, context.Chars(), context.Lines())
}
