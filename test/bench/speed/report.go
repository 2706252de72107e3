package main

import (
	"fmt"
	"io"
)

// report is what comes out.
type report struct {
	name   string
	out    io.Writer
	log    func(format string, args ...any)
	tables []*table
}

// add prints a table and keeps it.
func (r *report) add(t *table) {
	r.tables = append(r.tables, t)
	_, _ = fmt.Fprintf(r.out, "\n%s\n", t)
}

func (r *report) write() error { return nil }
