package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// result is a row of a table: what a request at a side cost.
type result struct {
	request string
	side    string

	answers, hits, refusals int
	bytes                   int64           // of one answer as sent
	kubeCPU, proxyCPU       time.Duration   // for all answers
	times                   []time.Duration // of each answer
	wholeLists              int             // that reached kube-apiserver, those of listproxy included
	memory                  int64           // resident bytes, of what the caption says
	storedBytes             int64           // the objects that the memory is for

	limit, before *result // the same request at the limit and at the commit before; nil: not measured
}

// beforeSuffix ends the name of the side of the commit before.
const beforeSuffix = ", before"

// add adds an answer.
func (r *result) add(a answer) {
	r.answers++
	r.refusals += a.refusals
	if a.hit {
		r.hits++
	}
	if a.bytes > 0 {
		r.bytes = a.bytes
	}
	r.times = append(r.times, a.took)
}

// quantile returns the q-quantile of the times; 0 if there are none.
func (r *result) quantile(q float64) time.Duration {
	if len(r.times) == 0 {
		return 0
	}
	slices.Sort(r.times)
	return r.times[min(len(r.times)-1, int(q*float64(len(r.times))))]
}

// perAnswer divides a duration by the number of answers.
func (r *result) perAnswer(d time.Duration) time.Duration {
	return d / time.Duration(max(1, r.answers))
}

// cpuRatio returns listproxy's CPU for an answer, as a multiple of another's; 0 if that is not known.
func (r *result) cpuRatio(other *result) float64 {
	if other == nil || other.perAnswer(other.proxyCPU) <= 0 {
		return 0
	}
	return float64(r.perAnswer(r.proxyCPU)) / float64(other.perAnswer(other.proxyCPU))
}

// column is a column of a table. A cell is empty where there is no value. first is the row of the same request at
// kube-apiserver; it may be r.
type column struct {
	head string
	cell func(r, first *result) string
}

func columns() []column {
	millisCell := func(duration func(r *result) time.Duration) func(r, _ *result) string {
		return func(r, _ *result) string {
			if duration(r) <= 0 {
				return ""
			}
			return millis(duration(r))
		}
	}
	return []column{
		{"asked", func(r, _ *result) string { return r.request }},
		{"of", func(r, _ *result) string { return r.side }},
		{"answers", func(r, _ *result) string { return number(r.answers) }},
		{"from memory", func(r, first *result) string {
			if r == first {
				return ""
			}
			return strconv.Itoa(100*r.hits/max(1, r.answers)) + "%"
		}},
		{"refused", func(r, _ *result) string { return number(r.refusals) }},
		{"bytes", func(r, _ *result) string { return size(r.bytes) }},
		{"kube-apiserver, CPU", millisCell(func(r *result) time.Duration { return r.perAnswer(r.kubeCPU) })},
		{"listproxy", millisCell(func(r *result) time.Duration { return r.perAnswer(r.proxyCPU) })},
		{"× limit", func(r, _ *result) string { return ratio(r.cpuRatio(r.limit), 1) }},
		{"× before", func(r, _ *result) string { return ratio(r.cpuRatio(r.before), 1) }},
		{"both, less", func(r, first *result) string {
			if r == first {
				return ""
			}
			return ratio(float64(first.perAnswer(first.kubeCPU+first.proxyCPU)), float64(r.perAnswer(r.kubeCPU+r.proxyCPU)))
		}},
		{"median", millisCell(func(r *result) time.Duration { return r.quantile(0.5) })},
		{"99%", millisCell(func(r *result) time.Duration { return r.quantile(0.99) })},
		{"median, less", func(r, first *result) string {
			if r == first {
				return ""
			}
			return ratio(float64(first.quantile(0.5)), float64(r.quantile(0.5)))
		}},
		{"whole lists at kube-apiserver", func(r, _ *result) string { return strconv.Itoa(r.wholeLists) }},
		{"memory", func(r, _ *result) string { return size(r.memory) }},
		{"for", func(r, _ *result) string { return size(r.storedBytes) }},
		{"memory/for", func(r, _ *result) string { return ratio(float64(r.memory), float64(r.storedBytes)) }},
	}
}

// table is a table of results.
type table struct {
	caption string
	rows    []*result
	firsts  []*result // for each row, that of the same request at kube-apiserver
}

// add adds the rows of one request at several sides, kube-apiserver's first.
func (t *table) add(rows ...*result) {
	for _, r := range rows {
		for _, other := range rows {
			switch {
			case other.side == r.side+beforeSuffix:
				r.before = other
			case other.side == limitName && other != r && r != rows[0]:
				r.limit = other
			}
		}
		t.rows, t.firsts = append(t.rows, r), append(t.firsts, rows[0])
	}
}

// noise is the ratio of CPU to that of the commit before up to which a row does not count as slower.
const noise = 1.05

// slower returns a sentence with the rows for which listproxy takes more CPU than at the commit before; "": not measured.
func (t *table) slower() string {
	var rows []string
	for _, r := range t.rows {
		if increase := r.cpuRatio(r.before); increase > noise {
			rows = append(rows, fmt.Sprintf("%s (%s)", r.request, ratio(increase, 1)))
		}
	}
	switch {
	case len(rows) > 0:
		return "Slower than before by more than five per cent: " + strings.Join(rows, "; ") + ".\n"
	case slices.ContainsFunc(t.rows, func(r *result) bool { return r.before != nil }):
		return "No row is slower than before by more than five per cent.\n"
	}
	return ""
}

// String returns the table in Markdown, aligned to be readable as plain text. It omits columns without a value.
func (t *table) String() string {
	var shown [][]string // cells by column, the head first
	for _, c := range columns() {
		cells, hasValue := []string{c.head}, false
		for i, r := range t.rows {
			cell := c.cell(r, t.firsts[i])
			isEmpty := cell == "" || cell == "0" || cell == "0%"
			hasValue = hasValue || !isEmpty
			cells = append(cells, cell)
		}
		if hasValue {
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
	_ = aligned.Flush() // a strings.Builder returns no errors
	return b.String()
}

func (b *bench) report(t *table) { _, _ = fmt.Fprintf(b.out, "\n%s\n%s", t, t.slower()) }

// number formats a number; 0 as "".
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// millis formats a duration in milliseconds, with three significant digits.
func millis(d time.Duration) string {
	ms := float64(d) / 1e6
	for digits, from := range []float64{100, 10, 1} {
		if ms >= from {
			return fmt.Sprintf("%.*f ms", digits, ms)
		}
	}
	return fmt.Sprintf("%.3f ms", ms)
}

// size formats a number of bytes; 0 as "".
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

// ratio formats a / b; "" if one of them is not positive.
func ratio(a, b float64) string {
	switch {
	case a <= 0 || b <= 0:
		return ""
	case a/b >= 100:
		return fmt.Sprintf("%.0f×", a/b)
	}
	return fmt.Sprintf("%.2f×", a/b)
}
