// Package rlm lets a model work on texts that are larger than its context: it
// holds them as named bindings, offers a small language of operations over them
// (slice, grep, count, chunk, split, combine, eval), caches what operations
// answered, and runs the protocol by which a model explores a text, commits to a
// program over it and gives its final answer, with models below it for parts.
//
// The operations are pure: the same arguments over the same texts give the same
// result, byte for byte, and change nothing. The package runs no code itself:
// eval goes to an [Evaluator], models to an [llm.Model].
package rlm
