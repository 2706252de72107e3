package cli

import (
	"io"
	"text/tabwriter"
	"unicode"
)

// WithoutControl drops what could command a terminal. It is for [strings.Map].
func WithoutControl(r rune) rune {
	if r != '\n' && unicode.IsControl(r) {
		return -1
	}
	return r
}

// WriteTable aligns the cells of lines, which have tabs between them.
func WriteTable(w io.Writer, lines string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if _, err := io.WriteString(table, lines); err != nil {
		return err
	}
	return table.Flush()
}
