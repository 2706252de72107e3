package statusz

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"
)

// WriteText writes s as tables, for a terminal. Control characters that came with it are not
// written.
func (s Status) WriteText(w io.Writer) error {
	t := &textPage{}
	t.table = tabwriter.NewWriter(&t.text, 0, 0, 3, ' ', 0)
	t.process(s)
	t.problems(s)
	t.requests(s)
	t.collections(s.Collections)
	t.endpoints(s.Endpoints)
	t.resources(s.Resources)
	t.forwarded(s)
	t.policy(s)
	t.align()
	_, err := io.WriteString(w, t.text.String())
	return err
}

// textPage is a status page in the making.
type textPage struct {
	text  strings.Builder
	table *tabwriter.Writer // writes to text
}

// row adds a line, whose cells are separated by tabs.
func (t *textPage) row(format string, args ...any) {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = cell(text)
		}
	}
	_, _ = fmt.Fprintf(t.table, format+"\n", args...)
}

// align aligns the columns of the rows since it was last called.
func (t *textPage) align() { _ = t.table.Flush() } // into memory

// section begins a section. Columns are aligned within it.
func (t *textPage) section(title string) {
	t.align()
	fmt.Fprintf(&t.text, "\n%s\n", title)
}

// process writes what the process is, and how it and the API server are.
func (t *textPage) process(s Status) {
	health := "healthy"
	if !s.Healthy {
		health = "NOT HEALTHY"
	}
	if len(s.SelfChecks.Mismatches) > 0 {
		health += ", with a warning"
	}
	t.row("listproxy %s\t%s", s.Version, health)
	if u := s.UpstreamState; u == nil {
		t.row("upstream\t%s", s.Upstream)
	} else {
		t.row("upstream\t%s: %s", s.Upstream, u.Meaning+" "+formatUpstream(*u))
		if u.Error != "" {
			t.row("  because\t%s", u.Error)
		}
		if u.Advice != "" {
			t.row("  what to do\t%s", u.Advice)
		}
	}
	t.row("up for\t%s", formatSeconds(s.Uptime))
	t.row("stored\t%s", formatBound(s.Memory.Stored, s.Memory.StoredBound))
	t.row("compressed\t%s", formatBound(s.Memory.Compressed, s.Memory.CompressedBound))
	t.row("memory\t%s, GOMEMLIMIT %s, GOGC %s", formatBytes(s.Runtime.Memory), formatLimit(s.Runtime.MemoryLimit),
		formatGCPercent(s.Runtime.GCPercent))
	for _, e := range s.Ends {
		mark := ""
		if e.Soon {
			mark = "SOON: "
		}
		t.row("ends\t%s", mark+e.Name+" "+formatEnd(e))
	}
	t.row("traces\t%s", orWord(s.Traces.Sampler, "not sent"))
	if s.Policy.File == "" {
		t.row("policy\tthe default")
	} else {
		t.row("policy\t%s, sha256 %s", s.Policy.File, s.Policy.SHA256)
	}
}

// problems writes which checks fail, and what self-checks found.
func (t *textPage) problems(s Status) {
	for _, c := range s.Checks {
		if !c.OK {
			t.row("  %s\t%s", c.Name, orWord(c.Message, "not ready"))
		}
	}
	if len(s.SelfChecks.Mismatches) > 0 {
		t.row("  WARNING\tsomething wrong may have been answered: self-checks found what was kept not to be what the API server says")
	}
	mismatches, more := split(s.SelfChecks.Mismatches, maxShownMismatches)
	for _, m := range mismatches {
		t.row("  mismatch\t%s %s, %s: %s", m.Resource, m.Version, m.Representation, formatMismatch(m))
	}
	if len(more) > 0 {
		t.row("\t(%d more with -o json)", len(more))
	}
}

func (t *textPage) requests(s Status) {
	t.section("REQUESTS")
	t.row("\tLAST %s\tSINCE THE START (%s)", strings.ToUpper(formatSpan(s.Recent.Seconds)), strings.ToUpper(formatSpan(s.Total.Seconds)))
	for _, r := range trafficRows(s.Recent, s.Total) {
		t.row("%s\t%s\t%s", r.Name, r.Recent, r.Total)
	}
	t.align() // what follows is longer than a column
	t.row("in flight\t%s", formatInflight(s.Inflight))
	t.row("saved the API server\t%s", formatBytes(s.Lists.SavedBytes))
	if newest := s.Lists.Newest; newest != (Newest{}) {
		t.row("lists of the newest state\t%s", formatNewest(newest))
	}
}

func (t *textPage) collections(all []Collection) {
	t.section("COLLECTIONS")
	if len(all) == 0 {
		t.row("none: nobody has asked for a list yet")
		return
	}
	t.row("RESOURCE\tVERSION\tFORM\tSTATE\tOBJECTS\tBYTES\tREVISION\tNEWEST STATE\tHISTORY\tGAPS\tRESTARTS\tWATCHES\tSELF-CHECK")
	for _, c := range all {
		t.row("%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%d\t%d\t%d\t%s", c.Resource, c.Version, c.Representation, c.State,
			formatCount(c.Objects), formatBytes(c.Bytes), c.Revision, formatVerified(c),
			formatHistory(c), gapsOf(c), c.Restarts, c.Watches, joinWords("; ", formatSelfCheck(c.SelfCheck), formatMismatches(c.SelfCheck)))
	}
}

func (t *textPage) endpoints(all []Endpoint) {
	if len(all) == 0 {
		return
	}
	t.section("API SERVERS")
	t.row("ADDRESS\tSTATE\tFOR\tVERSION\tCONNECTIONS\tLAST CHECK")
	for _, e := range all {
		t.row("%s\t%s\t%s\t%s\t%s\t%s", e.Address, e.Meaning, formatSeconds(e.Seconds), orWord(e.Version, "unheard"),
			formatCount(e.Connections), lastCheckOf(e))
	}
}

// resources writes what became of lists, by resource.
func (t *textPage) resources(all []Resource) {
	if len(all) == 0 {
		return
	}
	t.section("LISTS BY RESOURCE")
	t.row("RESOURCE\tFROM MEMORY\tLISTS\tELSE MOSTLY")
	first, others := split(all, maxShownResources)
	for _, r := range first {
		share, reason := "-", "-"
		if r.Share != nil {
			share = formatShare(*r.Share)
		}
		if r.Reason != "" {
			reason = r.Reason + " " + formatCount(r.ReasonLists)
		}
		t.row("%s\t%s\t%s\t%s", r.Resource, share, formatCount(r.All()), reason)
	}
	if len(others) > 0 {
		t.row("(%d more with -o json)", len(others))
	}
}

// forwarded writes why lists were forwarded, and whose.
func (t *textPage) forwarded(s Status) {
	if len(s.Lists.Reasons) > 0 {
		t.section("WHY LISTS WERE FORWARDED")
		t.row("REASON\tLISTS\tMEANING")
	}
	for _, r := range s.Lists.Reasons {
		t.row("%s\t%s\t%s", r.Reason, formatCount(r.Lists), r.Meaning)
	}
	if len(s.Callers) > 0 {
		t.section("WHOSE LISTS WERE FORWARDED")
		t.row("PROGRAM\tLISTS\tMOSTLY")
	}
	for _, c := range s.Callers {
		t.row("%s\t%s\t%s", c.UserAgent, formatLists(c), c.Reason)
	}
}

// policy writes the rules in force, and what is loaded by them before anybody asks.
func (t *textPage) policy(s Status) {
	if len(s.Policy.Rules) > 0 {
		t.section("POLICY")
		t.row("RESOURCE\tFROM\tKEPT")
	}
	for _, r := range s.Policy.Rules {
		t.row("%s\t%s\t%s", r.Resource, r.Source, formatKept(r))
	}
	if len(s.Eager) > 0 {
		t.section("LOADED BEFORE ANYBODY ASKS")
	}
	for _, e := range s.Eager {
		t.row("%s\t%s\t%s", e.Resource, e.Version, e.Representation)
	}
}

// maxCell is how long a cell may be, in characters, so that one does not push all others off the
// screen. Meanings, which are last in their line, are shorter.
const maxCell = 120

// cell makes a text one of a table: without what commands a terminal, ends a line or a cell, or
// turns the direction of what follows.
func cell(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\t', r == '\n':
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, text)
	if runes := []rune(text); len(runes) > maxCell {
		return string(runes[:maxCell-1]) + "…"
	}
	return text
}

// joinWords joins what is not empty.
func joinWords(separator string, words ...string) string {
	return strings.Join(slices.DeleteFunc(words, func(word string) bool { return word == "" }), separator)
}

func orWord(text, word string) string {
	if text == "" {
		return word
	}
	return text
}

// formatLists writes a count that may be too high.
func formatLists(c Caller) string {
	if c.Excess > 0 {
		return "≤ " + formatCount(c.Lists)
	}
	return formatCount(c.Lists)
}
