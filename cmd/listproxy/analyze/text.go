package analyze

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

const (
	// textWidth is how wide sentences are, in columns.
	textWidth = 100
	// maxForms is how much is said of the forms of a row, in bytes, so that tables stay readable.
	maxForms = 70
)

// writeText writes the report for people, with the first rows (0: all).
func (r Report) writeText(w io.Writer, rows int) error {
	out := &strings.Builder{}
	fmt.Fprintln(out, fold(r.read(), ""))
	for _, f := range r.Files {
		if f.Problem != "" {
			fmt.Fprintf(out, "%s was not read to its end: %s\n", f.Name, f.Problem)
		}
	}
	out.WriteString("\n")
	r.writeTotals(out)
	r.writeRows(out, rows)
	r.writeAdvice(out)
	fmt.Fprintf(out, "\n%s\n", fold(limits, ""))
	_, err := io.WriteString(w, out.String())
	return err
}

// limits says what a forecast does not know.
const limits = "This is what the requests themselves and the policy allow. Each caller's first list, and the first lists of a " +
	"resource while it is being loaded, are forwarded too; docs/analyze.md says what else a log does not tell."

func (r Report) writeTotals(out *strings.Builder) {
	t := &strings.Builder{}
	l, w := r.Totals.Lists, r.Totals.Watches
	fmt.Fprintf(t, "\tlists\t\twatches\t\n")
	for _, line := range []struct {
		what           string
		lists, watches int64
	}{
		{"from memory", l.FromMemory, w.FromMemory},
		{"more with --consistent-lists", l.WithConsistentLists, w.WithConsistentLists},
		{"more with --watches", l.WithWatches, w.WithWatches},
		{"forwarded in any case", l.Forwarded, w.Forwarded},
	} {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", line.what, count(line.lists), share(line.lists, l.Count), count(line.watches),
			share(line.watches, w.Count))
	}
	align(out, t.String())
}

func (r Report) writeRows(out *strings.Builder, most int) {
	rows := r.Rows
	if most > 0 {
		rows = rows[:min(len(rows), most)]
	}
	if len(rows) == 0 {
		return
	}
	out.WriteString("\n")
	t := &strings.Builder{}
	fmt.Fprintln(t, "CLIENT\tRESOURCE\tLISTS\tMEMORY\t+CONSISTENT\tWATCHES\t+WATCHES\tTIME\tBYTES\tFORMS")
	for _, row := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name(row.UserAgent, row.User), row.Resource,
			count(row.Lists.Count), count(row.Lists.FromMemory), count(row.Lists.WithConsistentLists),
			count(row.Watches.Count), count(row.Watches.WithWatches),
			seconds(row.Seconds), row.size(), shorten(row.forms(), maxForms))
	}
	align(out, t.String())
	if left := len(r.Rows) - len(rows); left > 0 {
		fmt.Fprintf(out, "and %d more: --top 0 shows all\n", left)
	}
}

func (r Report) writeAdvice(out *strings.Builder) {
	if len(r.Advice) > 0 {
		out.WriteString("\nWhat brings more, and why the rest is forwarded:\n")
	}
	for _, a := range r.Advice {
		fmt.Fprintf(out, "\n%s: %s\n", a.What, a.about(r.Totals))
		fmt.Fprintln(out, fold(a.Why+" "+a.Do, "  "))
		fmt.Fprintln(out, fold("Most: "+a.most(), "  "))
	}
}

// align writes lines whose cells end with tabs, in columns.
func align(out *strings.Builder, lines string) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = io.WriteString(t, lines) // a Builder takes everything
	_ = t.Flush()
}

// shorten cuts a text that is longer than most bytes, at a comma.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	if end := strings.LastIndex(text[:most], ", "); end > 0 {
		return text[:end] + ", …"
	}
	return text
}

// fold breaks a text into lines.
func fold(text, indent string) string {
	var lines []string
	line := indent
	for word := range strings.FieldsSeq(text) {
		if len(line) > len(indent) && len(line)+1+len(word) > textWidth {
			lines = append(lines, line)
			line = indent
		}
		if len(line) > len(indent) {
			line += " "
		}
		line += word
	}
	return strings.Join(append(lines, line), "\n")
}
