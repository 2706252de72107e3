package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// result is a row: what was asked of a side, and what came of it.
type result struct {
	asked, of string

	answers, hits, refused int
	bytes                  int64           // of one answer as sent
	kube, proxy            time.Duration   // CPU, for all answers
	times                  []time.Duration // of each answer
	lists                  int             // whole lists that reached kube-apiserver, listproxy's too
	memory                 int64           // resident, of what the caption says
	known                  int64           // bytes that the memory is for

	limit, before *result // the same request at the limit and at the commit before; nil: not measured
}

// beforeAdds is what the name of a side has behind it that is of the commit before.
const beforeAdds = ", before"

// take adds an answer.
func (r *result) take(a answer) {
	r.answers++
	r.refused += a.refused
	if a.hit {
		r.hits++
	}
	if a.bytes > 0 {
		r.bytes = a.bytes
	}
	r.times = append(r.times, a.took)
}

// quantile of the times.
func (r *result) quantile(q float64) time.Duration {
	if len(r.times) == 0 {
		return 0
	}
	slices.Sort(r.times)
	return r.times[min(len(r.times)-1, int(q*float64(len(r.times))))]
}

// each returns the part of one answer.
func each(d time.Duration, r *result) time.Duration { return d / time.Duration(max(1, r.answers)) }

// timesOf returns how many times the other's CPU listproxy takes for an answer; 0 if that is not known.
func (r *result) timesOf(other *result) float64 {
	if other == nil || each(other.proxy, other) <= 0 {
		return 0
	}
	return float64(each(r.proxy, r)) / float64(each(other.proxy, other))
}

// column is one of a table's. A cell is empty where there is nothing to say; first is the row of the
// same request at kube-apiserver, or the row itself.
type column struct {
	head string
	cell func(r, first *result) string
}

func columns() []column {
	millisOf := func(of func(r *result) time.Duration) func(r, _ *result) string {
		return func(r, _ *result) string {
			if of(r) <= 0 {
				return ""
			}
			return millis(of(r))
		}
	}
	return []column{
		{"asked", func(r, _ *result) string { return r.asked }},
		{"of", func(r, _ *result) string { return r.of }},
		{"answers", func(r, _ *result) string { return number(r.answers) }},
		{"from memory", func(r, first *result) string {
			if r == first {
				return ""
			}
			return strconv.Itoa(100*r.hits/max(1, r.answers)) + "%"
		}},
		{"refused", func(r, _ *result) string { return number(r.refused) }},
		{"bytes", func(r, _ *result) string { return size(r.bytes) }},
		{"kube-apiserver, CPU", millisOf(func(r *result) time.Duration { return each(r.kube, r) })},
		{"listproxy", millisOf(func(r *result) time.Duration { return each(r.proxy, r) })},
		{"× limit", func(r, _ *result) string { return ratio(r.timesOf(r.limit), 1) }},
		{"× before", func(r, _ *result) string { return ratio(r.timesOf(r.before), 1) }},
		{"both, less", func(r, first *result) string {
			if r == first {
				return ""
			}
			return ratio(float64(each(first.kube+first.proxy, first)), float64(each(r.kube+r.proxy, r)))
		}},
		{"median", millisOf(func(r *result) time.Duration { return r.quantile(0.5) })},
		{"99%", millisOf(func(r *result) time.Duration { return r.quantile(0.99) })},
		{"median, less", func(r, first *result) string {
			if r == first {
				return ""
			}
			return ratio(float64(first.quantile(0.5)), float64(r.quantile(0.5)))
		}},
		{"whole lists at kube-apiserver", func(r, _ *result) string { return strconv.Itoa(r.lists) }},
		{"memory", func(r, _ *result) string { return size(r.memory) }},
		{"for", func(r, _ *result) string { return size(r.known) }},
		{"memory/for", func(r, _ *result) string { return ratio(float64(r.memory), float64(r.known)) }},
	}
}

// table is one of results. Columns in which nothing stands are left out.
type table struct {
	caption string
	rows    []*result
	firsts  []*result
}

// add adds what came of one request at several sides, of which the first is kube-apiserver.
func (t *table) add(rows ...*result) {
	for _, r := range rows {
		for _, other := range rows {
			switch {
			case other.of == r.of+beforeAdds:
				r.before = other
			case other.of == limitName && other != r && r != rows[0]:
				r.limit = other
			}
		}
		t.rows, t.firsts = append(t.rows, r), append(t.firsts, rows[0])
	}
}

// noise is by how much a row may take more CPU than before without being named.
const noise = 1.05

// slower names the rows for which listproxy takes more CPU than the commit before did.
func (t *table) slower() string {
	var named []string
	for _, r := range t.rows {
		if by := r.timesOf(r.before); by > noise {
			named = append(named, fmt.Sprintf("%s (%s)", r.asked, ratio(by, 1)))
		}
	}
	switch {
	case len(named) > 0:
		return "Slower than before by more than five per cent: " + strings.Join(named, "; ") + ".\n"
	case slices.ContainsFunc(t.rows, func(r *result) bool { return r.before != nil }):
		return "No row is slower than before by more than five per cent.\n"
	}
	return ""
}

// String is the table in Markdown, readable as plain text as well.
func (t *table) String() string {
	var shown [][]string // by column
	for _, c := range columns() {
		cells, said := []string{c.head}, false
		for i, r := range t.rows {
			cell := c.cell(r, t.firsts[i])
			said = said || cell != "" && cell != "0" && cell != "0%"
			cells = append(cells, cell)
		}
		if said {
			shown = append(shown, cells)
		}
	}
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "%s\n\n", t.caption)
	aligned := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	for line := range len(t.rows) + 1 {
		for _, cells := range shown {
			_, _ = fmt.Fprintf(aligned, "| %s\t", cells[line])
		}
		_, _ = fmt.Fprintln(aligned, "|")
		if line == 0 {
			_, _ = fmt.Fprintln(aligned, strings.Repeat("|---\t", len(shown))+"|")
		}
	}
	_ = aligned.Flush() // a strings.Builder takes everything
	return b.String()
}

func (b *bench) report(t *table) { _, _ = fmt.Fprintf(b.out, "\n%s\n%s", t, t.slower()) }

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// millis writes a duration in milliseconds, with three digits that count.
func millis(d time.Duration) string {
	ms := float64(d) / 1e6
	for digits, from := range []float64{100, 10, 1} {
		if ms >= from {
			return fmt.Sprintf("%.*f ms", digits, ms)
		}
	}
	return fmt.Sprintf("%.3f ms", ms)
}

// size writes a number of bytes.
func size(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	case n == 0:
		return ""
	}
	return fmt.Sprintf("%d B", n)
}

// ratio writes how many times b a is.
func ratio(a, b float64) string {
	switch {
	case a <= 0 || b <= 0:
		return ""
	case a/b >= 100:
		return fmt.Sprintf("%.0f×", a/b)
	}
	return fmt.Sprintf("%.2f×", a/b)
}
