package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// row is one line of the table.
type row struct {
	what            string
	items           int
	pages           int
	bytes           int
	direct, proxied time.Duration
	same            bool
	wantHit         bool
	statuses        []string // Cache-Status of every answer of listproxy
}

// hits says whether every answer came from memory.
func (r row) hits() bool {
	return !slices.ContainsFunc(r.statuses, func(s string) bool { return !isHit(s) })
}

func (r row) ok() bool { return r.same && (r.hits() || !r.wantHit) }

// report is the table that the demo ends with.
type report struct {
	out  io.Writer
	rows []row
}

func (r *report) add(line row) { r.rows = append(r.rows, line) }

// compare asks questions, one after the other.
func (r *report) compare(ctx context.Context, questions ...question) error {
	for _, q := range questions {
		line, err := q.compare(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", q.what, err)
		}
		r.add(line)
	}
	return nil
}

// ok says whether everything was as promised.
func (r *report) ok() bool {
	return !slices.ContainsFunc(r.rows, func(line row) bool { return !line.ok() })
}

func (r *report) print() {
	format := "%-36s %7s %10s %16s %12s  %-6s  %s\n"
	say(r.out, "\n")
	say(r.out, format, "asked of both", "objects", "size", "kube-apiserver", "listproxy", "bytes", "Cache-Status: listproxy; …")
	for _, line := range r.rows {
		bytes := "same"
		if !line.same {
			bytes = "DIFFER"
		}
		say(r.out, format, line.what, count(line), size(line.bytes), millis(line.direct), millis(line.proxied), bytes, line.origin())
	}
	say(r.out, "\nTimes are medians of %d, in turn, on this machine, which runs all of it; a write and a watch are\n"+
		"timed once, the watch from the write on. Bytes are compared with what kube-apiserver says about\n"+
		"the very revision that listproxy answered with.\n", rounds)
	for _, line := range r.rows {
		if !line.ok() {
			say(r.out, "FAILED: %s\n", line.what)
		}
	}
	if r.ok() {
		say(r.out, "All is as promised.\n")
	}
}

func count(line row) string {
	if line.items == 0 {
		return "-"
	}
	return fmt.Sprint(line.items)
}

// origin says where answers came from, those of the same origin once.
func (r row) origin() string {
	var kinds []string
	times := map[string]int{}
	for _, s := range r.statuses {
		s = strings.TrimPrefix(s, "listproxy; ")
		if s == "" {
			s = "(none)"
		}
		if times[s] == 0 {
			kinds = append(kinds, s)
		}
		times[s]++
	}
	if len(kinds) == 1 {
		return kinds[0]
	}
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%d× %s", times[kind], kind)
	}
	return strings.Join(kinds, ", ")
}

func millis(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

func size(n int) string {
	switch {
	case n >= 1_000_000:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	case n >= 1_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d B", n)
}
