package report

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Table is a table in Markdown, readable as plain text as well.
type Table struct {
	Caption string // what stands above
	Head    []string
	rows    [][]string
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *Table) String() string {
	widths := make([]int, len(t.Head))
	for _, cells := range append([][]string{t.Head}, t.rows...) {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	if t.Caption != "" {
		b.WriteString(t.Caption + "\n\n")
	}
	write := func(cells []string, fill string) {
		for i, width := range widths {
			cell := ""
			if i < len(cells) {
				cell = cells[i]
			}
			left, right := cell, strings.Repeat(fill, width-utf8.RuneCountInString(cell))
			if i > 0 && fill == " " { // numbers
				left, right = right, left
			}
			b.WriteString("| " + left + right + " ")
		}
		b.WriteString("|\n")
	}
	write(t.Head, " ")
	for i, width := range widths {
		rule := strings.Repeat("-", max(2, width))
		if i > 0 {
			rule = rule[1:] + ":"
		}
		b.WriteString("| " + rule + " ")
	}
	b.WriteString("|\n")
	for _, cells := range t.rows {
		write(cells, " ")
	}
	return b.String()
}

// Millis writes a duration in milliseconds, with three digits that count.
func Millis(d time.Duration) string {
	ms := float64(d) / 1e6
	if d < 0 {
		return "-" + Millis(-d)
	}
	switch {
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms >= 1:
		return fmt.Sprintf("%.2f ms", ms)
	}
	return fmt.Sprintf("%.3f ms", ms)
}

// Size writes a number of bytes.
func Size(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d B", n)
}

// Ratio writes how many times b a is.
func Ratio(a, b float64) string {
	if b <= 0 {
		return "-"
	}
	if a/b >= 100 {
		return fmt.Sprintf("%.0f×", a/b)
	}
	return fmt.Sprintf("%.2f×", a/b)
}
