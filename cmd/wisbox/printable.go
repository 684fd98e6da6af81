package main

import "github.com/wisbox/wisbox/cmd/wisbox/internal/streams"

var printable = streams.Printable
