package cli

import (
	"io"
	"os"
	"text/tabwriter"
	"unicode"

	"golang.org/x/term"
)

// IsTerminal says whether what is written is shown on a terminal that can redraw a line.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb" // #nosec G115 -- a descriptor
}

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
