package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// table writes rows of cells in aligned columns. Flush ends it.
type table struct{ *tabwriter.Writer }

// newTable returns a table that begins with the names of its columns, if any.
func newTable(w io.Writer, columns ...any) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	if len(columns) > 0 {
		t.row(columns...)
	}
	return t
}

func (t table) row(cells ...any) {
	for i, cell := range cells {
		if i > 0 {
			fmt.Fprint(t, "\t")
		}
		fmt.Fprint(t, cell)
	}
	fmt.Fprintln(t)
}
