package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// table is a table in Markdown, readable as plain text as well.
type table struct {
	caption string // what stands above
	head    []string
	rows    [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) String() string {
	widths := make([]int, len(t.head))
	for _, cells := range append([][]string{t.head}, t.rows...) {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	if t.caption != "" {
		b.WriteString(t.caption + "\n\n")
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
	write(t.head, " ")
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

// millis writes a duration in milliseconds, with three digits that count.
func millis(d time.Duration) string {
	ms := float64(d) / 1e6
	if d < 0 {
		return "-" + millis(-d)
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

func size(n int64) string {
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

func ratio(a, b float64) string {
	if b <= 0 {
		return "-"
	}
	if a/b >= 100 {
		return fmt.Sprintf("%.0f×", a/b)
	}
	return fmt.Sprintf("%.2f×", a/b)
}

// comparison is the table of lines, whose contenders are the limit, listproxy and kube-apiserver.
func comparison(caption string, lines []line) *table {
	t := &table{caption: caption, head: []string{
		"pods", "form", "HTTP", "bytes", "limit, CPU", "listproxy", "kube-apiserver",
		"listproxy/limit", "kube-apiserver/listproxy", "limit, time", "listproxy", "kube-apiserver",
	}}
	for _, l := range lines {
		limit, proxy, kube := l.of[0], l.of[1], l.of[2]
		cpu := func(f figures) float64 { return float64(middle(f.cpu)) }
		sent := size(proxy.size)
		if l.gzip {
			sent += fmt.Sprintf(" (%+.0f%%)", 100*(float64(proxy.size)/float64(kube.size)-1))
		}
		t.add(l.name, l.form(), l.protocol(), sent,
			millis(middle(limit.cpu)), millis(middle(proxy.cpu)), millis(middle(kube.cpu)),
			ratio(cpu(proxy), cpu(limit)), ratio(cpu(kube), cpu(proxy)),
			millis(middle(limit.wall)), millis(middle(proxy.wall)), millis(middle(kube.wall)))
	}
	return t
}
