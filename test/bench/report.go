package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// row is a row of a table: what a request cost at a side.
type row struct {
	request string
	side    string

	answers     int
	hits        int // answers from memory
	refusals    int
	bytes       int64           // size of one answer as sent
	kubeCPU     time.Duration   // of kube-apiserver for all answers
	proxyCPU    time.Duration   // of the side's proxy for all answers
	times       []time.Duration // how long each answer took
	wholeLists  int             // lists of all objects that reached kube-apiserver, from clients or listproxy
	memory      int64           // resident bytes of the process that the caption names
	storedBytes int64           // size of the objects that the process stores

	// Rows of the same request at other sides, with which this row is compared. [table.add] sets them.
	first  *row // kube-apiserver's; in kube-apiserver's own row, that row itself
	limit  *row // of the limit; nil if it was not measured
	before *row // of the listproxy of the commit before; nil if it was not measured
}

// beforeSuffix ends the name of a side that is a listproxy of the commit before.
const beforeSuffix = ", before"

// add adds an answer.
func (r *row) add(a answer) {
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

// quantile returns a quantile of the times, or 0 if there are none. For example, quantile(0.99) is longer than 99% of them.
func (r *row) quantile(fraction float64) time.Duration {
	if len(r.times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(r.times))
	shorter := int(fraction * float64(len(sorted)))
	return sorted[min(shorter, len(sorted)-1)]
}

// perAnswer divides a duration by the number of answers.
func (r *row) perAnswer(d time.Duration) time.Duration {
	return d / time.Duration(max(1, r.answers))
}

// cpuRatio returns the proxy's CPU time for an answer, divided by the same time of another row. It returns 0 if other is nil or
// has no such time.
func (r *row) cpuRatio(other *row) float64 {
	if other == nil || other.perAnswer(other.proxyCPU) <= 0 {
		return 0
	}
	return float64(r.perAnswer(r.proxyCPU)) / float64(other.perAnswer(other.proxyCPU))
}

// column is a column of a table. A cell is empty where there is no value.
type column struct {
	head string
	cell func(r *row) string
}

func columns() []column {
	millis := func(duration func(*row) time.Duration) func(*row) string {
		return func(r *row) string {
			if duration(r) <= 0 {
				return ""
			}
			return formatMillis(duration(r))
		}
	}
	// unlessFirst leaves the cell empty in the row of kube-apiserver, with which the other rows are compared.
	unlessFirst := func(cell func(*row) string) func(*row) string {
		return func(r *row) string {
			if r == r.first {
				return ""
			}
			return cell(r)
		}
	}
	return []column{
		{"asked", func(r *row) string { return r.request }},
		{"of", func(r *row) string { return r.side }},
		{"answers", func(r *row) string { return formatCount(r.answers) }},
		{"from memory", unlessFirst(func(r *row) string { return strconv.Itoa(100*r.hits/max(1, r.answers)) + "%" })},
		{"refused", func(r *row) string { return formatCount(r.refusals) }},
		{"bytes", func(r *row) string { return formatBytes(r.bytes) }},
		// CPU times for one answer.
		{"kube-apiserver, CPU", millis(func(r *row) time.Duration { return r.perAnswer(r.kubeCPU) })},
		{"listproxy", millis(func(r *row) time.Duration { return r.perAnswer(r.proxyCPU) })},
		{"× limit", func(r *row) string { return formatRatio(r.cpuRatio(r.limit), 1) }},
		{"× before", func(r *row) string { return formatRatio(r.cpuRatio(r.before), 1) }},
		// How many times less CPU both processes take than kube-apiserver alone.
		{"both, less", unlessFirst(func(r *row) string {
			return formatRatio(float64(r.first.perAnswer(r.first.kubeCPU+r.first.proxyCPU)), float64(r.perAnswer(r.kubeCPU+r.proxyCPU)))
		})},
		{"median", millis(func(r *row) time.Duration { return r.quantile(0.5) })},
		{"99%", millis(func(r *row) time.Duration { return r.quantile(0.99) })},
		// How many times shorter the median is than kube-apiserver's.
		{"median, less", unlessFirst(func(r *row) string {
			return formatRatio(float64(r.first.quantile(0.5)), float64(r.quantile(0.5)))
		})},
		{"whole lists at kube-apiserver", func(r *row) string { return strconv.Itoa(r.wholeLists) }},
		{"memory", func(r *row) string { return formatBytes(r.memory) }},
		// The size of the objects that are stored in this memory.
		{"for", func(r *row) string { return formatBytes(r.storedBytes) }},
		{"memory/for", func(r *row) string { return formatRatio(float64(r.memory), float64(r.storedBytes)) }},
	}
}

// table is a table of results.
type table struct {
	caption string
	rows    []*row
}

// add adds the rows of one request at several sides, and links them for comparisons. The first row is kube-apiserver's.
func (t *table) add(rows ...*row) {
	for _, r := range rows {
		r.first = rows[0]
		isListproxy := r != r.first && r.side != limitName
		for _, other := range rows {
			switch {
			case other.side == r.side+beforeSuffix:
				r.before = other
			case isListproxy && other.side == limitName:
				r.limit = other
			}
		}
		t.rows = append(t.rows, r)
	}
}

// noisePercent is the largest increase of a row's CPU time, in percent, that counts as noise: the row is not slower than
// before.
const noisePercent = 5

// compareBefore returns a sentence that names the rows for which listproxy takes more CPU than at the commit before. It returns
// "" if the commit before was not measured.
func (t *table) compareBefore() string {
	var slower []string
	for _, r := range t.rows {
		if increase := r.cpuRatio(r.before); increase > 1+noisePercent/100.0 {
			slower = append(slower, fmt.Sprintf("%s (%s)", r.request, formatRatio(increase, 1)))
		}
	}
	switch {
	case len(slower) > 0:
		return fmt.Sprintf("Slower than before by more than %d %%: %s.\n", noisePercent, strings.Join(slower, "; "))
	case slices.ContainsFunc(t.rows, func(r *row) bool { return r.before != nil }): // the commit before was measured
		return fmt.Sprintf("No row is slower than before by more than %d %%.\n", noisePercent)
	}
	return ""
}

// String returns the table in Markdown, aligned to be readable as plain text. It omits columns without a value.
func (t *table) String() string {
	var lists [][]string // by column: its head and its cells
	for _, c := range columns() {
		cells, hasValue := []string{c.head}, false
		for _, r := range t.rows {
			cell := c.cell(r)
			isEmpty := cell == "" || cell == "0" || cell == "0%"
			hasValue = hasValue || !isEmpty
			cells = append(cells, cell)
		}
		if hasValue {
			lists = append(lists, cells)
		}
	}
	var text strings.Builder
	_, _ = fmt.Fprintf(&text, "%s\n\n", t.caption)
	aligned := tabwriter.NewWriter(&text, 0, 0, 1, ' ', 0)
	for line := range len(t.rows) + 1 {
		for _, cells := range lists {
			_, _ = fmt.Fprintf(aligned, "| %s\t", cells[line])
		}
		_, _ = fmt.Fprintln(aligned, "|")
		if line == 0 {
			_, _ = fmt.Fprintln(aligned, strings.Repeat("|---\t", len(lists))+"|")
		}
	}
	_ = aligned.Flush() // a strings.Builder returns no errors
	return text.String()
}

func (b *bench) report(t *table) { _, _ = fmt.Fprintf(b.out, "\n%s\n%s", t, t.compareBefore()) }

// formatCount formats a number. For 0 it returns "", an empty cell.
func formatCount(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// formatMillis formats a duration in milliseconds, with three significant digits from 1 ms to 1 s.
func formatMillis(d time.Duration) string {
	ms := float64(d) / 1e6
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

// formatBytes formats a number of bytes. For 0 it returns "", an empty cell.
func formatBytes(n int64) string {
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

// formatRatio formats a / b. If one of them is not positive, it returns "", an empty cell.
func formatRatio(a, b float64) string {
	switch {
	case a <= 0 || b <= 0:
		return ""
	case a/b >= 100:
		return fmt.Sprintf("%.0f×", a/b)
	}
	return fmt.Sprintf("%.2f×", a/b)
}
