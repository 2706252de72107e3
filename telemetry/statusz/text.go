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
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	row := func(format string, args ...any) {
		for i, arg := range args {
			if text, ok := arg.(string); ok {
				args[i] = cell(text)
			}
		}
		_, _ = fmt.Fprintf(t, format+"\n", args...)
	}
	// Columns are aligned within a section.
	section := func(title string) { _ = t.Flush(); fmt.Fprintf(&text, "\n%s\n", title) }

	health := "healthy"
	if !s.Healthy {
		health = "NOT HEALTHY"
	}
	if len(s.SelfChecks.Mismatches) > 0 {
		health += ", with a warning"
	}
	row("listproxy %s\t%s", s.Version, health)
	if u := s.UpstreamState; u == nil {
		row("upstream\t%s", s.Upstream)
	} else {
		row("upstream\t%s: %s", s.Upstream, u.Meaning+" "+formatUpstream(*u))
		if u.Error != "" {
			row("  because\t%s", u.Error)
		}
		if u.Advice != "" {
			row("  what to do\t%s", u.Advice)
		}
	}
	row("up for\t%s", formatSeconds(s.Uptime))
	row("stored\t%s", formatBound(s.Memory.Stored, s.Memory.StoredBound))
	row("compressed\t%s", formatBound(s.Memory.Compressed, s.Memory.CompressedBound))
	row("memory\t%s, GOMEMLIMIT %s, GOGC %s", formatBytes(s.Runtime.Memory), formatLimit(s.Runtime.MemoryLimit),
		formatGCPercent(s.Runtime.GCPercent))
	for _, e := range s.Ends {
		mark := ""
		if e.Soon {
			mark = "SOON: "
		}
		row("ends\t%s", mark+e.Name+" "+formatEnd(e))
	}
	row("traces\t%s", orWord(s.Traces.Sampler, "not sent"))
	if s.Policy.File == "" {
		row("policy\tthe default")
	} else {
		row("policy\t%s, sha256 %s", s.Policy.File, s.Policy.SHA256)
	}
	for _, c := range s.Checks {
		if !c.OK {
			row("  %s\t%s", c.Name, orWord(c.Message, "not ready"))
		}
	}

	if len(s.SelfChecks.Mismatches) > 0 {
		row("  WARNING\tsomething wrong may have been answered: self-checks found what was kept not to be what the API server says")
	}
	mismatches, more := split(s.SelfChecks.Mismatches, maxShownMismatches)
	for _, m := range mismatches {
		row("  mismatch\t%s %s, %s: %s", m.Resource, m.Version, m.Representation, formatMismatch(m))
	}
	if len(more) > 0 {
		row("\t(%d more with -o json)", len(more))
	}

	section("REQUESTS")
	row("\tLAST %s\tSINCE THE START (%s)", strings.ToUpper(formatSpan(s.Recent.Seconds)), strings.ToUpper(formatSpan(s.Total.Seconds)))
	for _, r := range trafficRows(s.Recent, s.Total) {
		row("%s\t%s\t%s", r.Name, r.Recent, r.Total)
	}
	_ = t.Flush() // what follows is longer than a column
	row("in flight\t%s", formatInflight(s.Inflight))
	row("saved the API server\t%s", formatBytes(s.Lists.SavedBytes))
	if newest := s.Lists.Newest; newest != (Newest{}) {
		row("lists of the newest state\t%s", formatNewest(newest))
	}

	section("COLLECTIONS")
	if len(s.Collections) == 0 {
		row("none: nobody has asked for a list yet")
	} else {
		row("RESOURCE\tVERSION\tFORM\tSTATE\tOBJECTS\tBYTES\tREVISION\tNEWEST STATE\tHISTORY\tGAPS\tRESTARTS\tWATCHES\tSELF-CHECK")
	}
	for _, c := range s.Collections {
		row("%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%d\t%d\t%d\t%s", c.Resource, c.Version, c.Representation, c.State,
			formatCount(c.Objects), formatBytes(c.Bytes), c.Revision, formatVerified(c),
			formatHistory(c), gapsOf(c), c.Restarts, c.Watches, joinWords("; ", formatSelfCheck(c.SelfCheck), formatMismatches(c.SelfCheck)))
	}

	if len(s.Endpoints) > 0 {
		section("API SERVERS")
		row("ADDRESS\tSTATE\tFOR\tVERSION\tCONNECTIONS\tLAST CHECK")
	}
	for _, e := range s.Endpoints {
		row("%s\t%s\t%s\t%s\t%s\t%s", e.Address, e.Meaning, formatSeconds(e.Seconds), orWord(e.Version, "unheard"), formatCount(e.Connections),
			lastCheckOf(e))
	}

	if len(s.Resources) > 0 {
		section("LISTS BY RESOURCE")
		row("RESOURCE\tFROM MEMORY\tLISTS\tELSE MOSTLY")
	}
	first, others := split(s.Resources, maxShownResources)
	for _, r := range first {
		share, reason := "-", "-"
		if r.Share != nil {
			share = formatShare(*r.Share)
		}
		if r.Reason != "" {
			reason = r.Reason + " " + formatCount(r.ReasonLists)
		}
		row("%s\t%s\t%s\t%s", r.Resource, share, formatCount(r.All()), reason)
	}
	if len(others) > 0 {
		row("(%d more with -o json)", len(others))
	}

	if len(s.Lists.Reasons) > 0 {
		section("WHY LISTS WERE FORWARDED")
		row("REASON\tLISTS\tMEANING")
	}
	for _, r := range s.Lists.Reasons {
		row("%s\t%s\t%s", r.Reason, formatCount(r.Lists), r.Meaning)
	}
	if len(s.Callers) > 0 {
		section("WHOSE LISTS WERE FORWARDED")
		row("PROGRAM\tLISTS\tMOSTLY")
	}
	for _, c := range s.Callers {
		row("%s\t%s\t%s", c.UserAgent, formatLists(c), c.Reason)
	}
	if len(s.Policy.Rules) > 0 {
		section("POLICY")
		row("RESOURCE\tFROM\tKEPT")
	}
	for _, r := range s.Policy.Rules {
		row("%s\t%s\t%s", r.Resource, r.Source, formatKept(r))
	}
	if len(s.Eager) > 0 {
		section("LOADED BEFORE ANYBODY ASKS")
	}
	for _, e := range s.Eager {
		row("%s\t%s\t%s", e.Resource, e.Version, e.Representation)
	}
	_ = t.Flush() // into memory
	_, err := io.WriteString(w, text.String())
	return err
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
