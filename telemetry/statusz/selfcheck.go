package statusz

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// SelfChecks has the results of self-checks, which compare collections with the API server.
type SelfChecks struct {
	// Interval is how often each collection that is live is compared; 0 is never.
	Interval float64 `json:"intervalSeconds"`
	// Mismatches are the collections in which a check found a difference since the process began,
	// including those that are gone; the one with the latest difference comes first. Wrong answers may
	// have been given from them.
	Mismatches []Mismatch `json:"mismatches"`
}

// Mismatch is a collection in which a self-check found a difference.
type Mismatch struct {
	Resource       string `json:"resource"`
	Version        string `json:"version"`
	Representation string `json:"representation"`
	// Mismatches is how many checks found one, Last the time of the last, as in the log, and Age how
	// long ago that is.
	Mismatches int64     `json:"mismatches"`
	Last       time.Time `json:"last"`
	Age        float64   `json:"ageSeconds"`
}

// SelfCheck has the results of self-checks of one collection.
type SelfCheck struct {
	// Result of the last one: "agrees", "inconclusive" (the API server did not give the state to
	// compare with), "mismatch" (something differs; the collection was dropped), [SelfCheckNone] or
	// [SelfCheckOff].
	Result string `json:"result"`
	// Age is how long ago the last one ended; absent if there was none.
	Age *float64 `json:"ageSeconds,omitempty"`
	// Mismatches is how many found something wrong since the process began, and MismatchAge how
	// long ago the last of these is; absent if none did.
	Mismatches  int64    `json:"mismatches"`
	MismatchAge *float64 `json:"mismatchAgeSeconds,omitempty"`
}

const (
	// SelfCheckNone stands for a result before the first check.
	SelfCheckNone = "none"
	// SelfCheckOff stands for one if there are to be no checks.
	SelfCheckOff = "off"
)

func (s *SelfChecks) sort() {
	slices.SortFunc(s.Mismatches, func(a, b Mismatch) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Version, b.Version),
			cmp.Compare(a.Representation, b.Representation))
	})
}

// formatSelfCheck says in words what the last self-check of a collection found.
func formatSelfCheck(c SelfCheck) string {
	switch {
	case c.Age != nil:
		return c.Result + ", " + formatSeconds(*c.Age) + " ago"
	case c.Result == SelfCheckNone:
		return "not checked yet"
	case c.Result == SelfCheckOff:
		return "self-check off"
	}
	return "–" // of a listproxy that does not say
}

// formatMismatches says in words what was ever wrong with a collection; nothing if nothing was.
func formatMismatches(c SelfCheck) string {
	if c.Mismatches <= 0 {
		return ""
	}
	words := "1 mismatch"
	if c.Mismatches > 1 {
		words = formatCount(c.Mismatches) + " mismatches"
	}
	if c.MismatchAge != nil {
		words += ", last " + formatSeconds(*c.MismatchAge) + " ago"
	}
	return words
}

// formatMismatch says in words when something was wrong.
func formatMismatch(m Mismatch) string {
	return fmt.Sprintf("%s (%s)", formatMismatches(SelfCheck{Mismatches: m.Mismatches, MismatchAge: &m.Age}),
		m.Last.UTC().Format("2006-01-02 15:04:05 UTC"))
}

// maxShownMismatches are named in the warning; the JSON has all.
const maxShownMismatches = 5
