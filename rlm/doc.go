// Package rlm lets a model work on texts that are larger than its context.
//
// It holds the texts as named bindings and offers a small language of operations over them
// (slice, grep, count, chunk, split, combine, eval), whose results it caches. It also runs the
// protocol by which a model explores a text, commits to a program over it and gives its final
// answer, and by which it asks other models about parts.
//
// The operations are pure: the same arguments over the same texts give the same
// result, byte for byte, and change nothing. The package itself runs no code: it passes eval
// to an [Evaluator], and questions to an [llm.Model].
package rlm
