package analyze

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/listproxy/listproxy/policy/reason"
)

// maxForms is the largest number of forms of requests (like any or consistent) in the column FORMS, so that lines stay
// readable.
const maxForms = 3

// caveat is the last paragraph of the text. It says what the report cannot know.
const caveat = `
This is what the requests themselves and the policy allow. The first lists of a resource while it
is being loaded are forwarded too; docs/operate.md says what else a log does not tell.
`

// writeText writes the report as text, with up to maxRows rows. If maxRows is 0, it writes all rows:
//
//	48 lines: 46 lists and 2 watches, from 2026-11-23 06:04:35 to 2026-11-23 06:04:40 UTC (5s).
//
//	                              lists         watches
//	from memory                   20     43.5%  0        0.0%
//	more with --consistent-lists  14     30.4%  0        0.0%
//	…
//
//	CLIENT            RESOURCE  LISTS  MEMORY  +CONSISTENT  WATCHES  +WATCHES  TIME  FORMS
//	app/v1 team/app   pods      30     20      10           0        0         1.2s  20 any, 10 consistent
//
//	What brings more, and why the rest is forwarded:
//
//	consistent-lists: 14 lists (30.4%)
//	  They name no resourceVersion: they ask for the newest state.
//	  Start listproxy with --consistent-lists. …
//	  Most: app/v1 team/app: 10 pods; …
func (r Report) writeText(w io.Writer, maxRows int) error {
	out := &strings.Builder{}
	r.writeSummary(out)
	r.writeTotals(out)
	r.writeRows(out, maxRows)
	r.writeAdvice(out)
	out.WriteString(caveat)
	_, err := io.WriteString(w, out.String())
	return err
}

// writeSummary writes what was read, and the problems of files.
func (r Report) writeSummary(out *strings.Builder) {
	var lines, bad int64
	for _, f := range r.Files {
		lines += f.Lines
		bad += f.Bad
	}
	fmt.Fprintf(out, "%s lines: %s lists and %s watches", humanize.Comma(lines), humanize.Comma(r.Totals.Lists.Count),
		humanize.Comma(r.Totals.Watches.Count))
	if r.From != nil {
		fmt.Fprintf(out, ", from %s to %s UTC (%v)", r.From.Format(time.DateTime), r.To.Format(time.DateTime),
			r.To.Sub(*r.From).Round(time.Second))
	}
	out.WriteString(".\n")
	if bad > 0 {
		fmt.Fprintf(out, "Lines without an audit event: %s.\n", humanize.Comma(bad))
	}
	for _, f := range r.Files {
		if f.Problem != "" {
			fmt.Fprintf(out, "%s: %s\n", f.Name, f.Problem)
		}
	}
}

// writeTotals writes who answers lists and watches, with shares.
func (r Report) writeTotals(out *strings.Builder) {
	lists, watches := r.Totals.Lists, r.Totals.Watches
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "\n\tlists\t\twatches\t\n")
	writeRow := func(title string, listCount, watchCount int64) {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", title,
			humanize.Comma(listCount), share(listCount, lists.Count),
			humanize.Comma(watchCount), share(watchCount, watches.Count))
	}
	writeRow("from memory", lists.FromMemory, watches.FromMemory)
	writeRow("more with --consistent-lists", lists.WithConsistentLists, watches.WithConsistentLists)
	writeRow("more with --watches", lists.WithWatches, watches.WithWatches)
	writeRow("forwarded in any case", lists.Forwarded, watches.Forwarded)
	_ = table.Flush() // writing to a Builder never fails
}

func (r Report) writeRows(out *strings.Builder, maxRows int) {
	rows := r.Rows
	if maxRows > 0 {
		rows = rows[:min(len(rows), maxRows)]
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nCLIENT\tRESOURCE\tLISTS\tMEMORY\t+CONSISTENT\tWATCHES\t+WATCHES\tTIME\tFORMS")
	for _, row := range rows {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%v\t%s\n", row.clientName(), row.Resource,
			row.Lists.Count, row.Lists.FromMemory, row.Lists.WithConsistentLists, row.Watches.Count, row.Watches.WithWatches,
			time.Duration(row.Seconds*float64(time.Second)).Round(10*time.Millisecond), row.formsText())
	}
	_ = table.Flush() // writing to a Builder never fails
	if omitted := len(r.Rows) - len(rows); omitted > 0 {
		fmt.Fprintf(out, "and %d more: --top 0 shows all\n", omitted)
	}
}

func (r Report) writeAdvice(out *strings.Builder) {
	if len(r.Advice) == 0 {
		return
	}
	out.WriteString("\nWhat brings more, and why the rest is forwarded:\n")
	for _, a := range r.Advice {
		fmt.Fprintf(out, "\n%s: %s\n  %s\n  %s\n  Most: %s\n", a.What, a.extentText(r.Totals), a.Why, a.Do, a.sendersText())
	}
}

// share formats a part of a whole as a percentage. The share of an empty whole is 0.
func share(part, whole int64) string {
	return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(max(whole, 1)))
}

// formsText names the most frequent forms of a row, with the reasons why they are forwarded.
func (r Row) formsText() string {
	var parts []string
	for _, f := range r.Forms[:min(len(r.Forms), maxForms)] {
		part := fmt.Sprintf("%s %s", humanize.Comma(f.Count), f.Form)
		if f.Reason != reason.None {
			part += fmt.Sprintf(" (%s)", f.Reason)
		}
		parts = append(parts, part)
	}
	if len(r.Forms) > maxForms {
		parts = append(parts, "…")
	}
	return strings.Join(parts, ", ")
}

// extentText has the numbers of lists and watches that the advice is about, and their shares of all.
func (a Advice) extentText(all Counts) string {
	var parts []string
	if a.Lists > 0 {
		parts = append(parts, fmt.Sprintf("%s lists (%s)", humanize.Comma(a.Lists), share(a.Lists, all.Lists.Count)))
	}
	if a.Watches > 0 {
		parts = append(parts, fmt.Sprintf("%s watches (%s)", humanize.Comma(a.Watches), share(a.Watches, all.Watches.Count)))
	}
	return strings.Join(parts, ", ")
}

// sendersText names the clients that sent the most requests.
func (a Advice) sendersText() string {
	parts := make([]string, len(a.TopSenders))
	for i, s := range a.TopSenders {
		parts[i] = fmt.Sprintf("%s: %s %s", s.clientName(), humanize.Comma(s.Count), s.Resource)
	}
	return strings.Join(parts, "; ")
}
