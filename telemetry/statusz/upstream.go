package statusz

import (
	"fmt"
	"time"
)

// UpstreamState is how the API server is, as listproxy's own account finds it.
type UpstreamState struct {
	// State is "ok", "unknown", "unreachable", "unauthorized", "forbidden", "not-ready", "slow" or
	// "two-versions", Meaning the same in plain words, and Seconds for how long it has been so.
	State   string  `json:"state"`
	Meaning string  `json:"meaning"`
	Seconds float64 `json:"stateSeconds"`
	// Answered is how long ago it last answered, in whatever way; absent if it never did.
	Answered *float64 `json:"answeredSeconds,omitempty"`
	// User is whom it takes listproxy for; absent if it has not said.
	User string `json:"user,omitempty"`
	// Error is why it is not ok, and Advice what to do; absent if it is.
	Error  string `json:"error,omitempty"`
	Advice string `json:"advice,omitempty"`
}

// End is when something ends that listproxy needs: a certificate, or its token.
type End struct {
	// Name is "certificate serving", "token", and the like.
	Name string `json:"name"`
	// At is when it ends, and Left how long that is from now: less than nothing if it has ended.
	At   time.Time `json:"at"`
	Left float64   `json:"leftSeconds"`
	// Soon: it should have been renewed by now.
	Soon bool `json:"soon,omitempty"`
}

// formatUpstream says in words for how long the API server is as it is, when it last answered, and
// to whom.
func formatUpstream(u UpstreamState) string {
	text := "for " + formatSeconds(u.Seconds)
	if u.Answered == nil {
		text += ", has not answered yet"
	} else {
		text += ", last answer " + formatSeconds(*u.Answered) + " ago"
	}
	if u.User != "" {
		text += ", knows listproxy as " + u.User
	}
	return text
}

// formatEnd says in words when something ends.
func formatEnd(e End) string {
	at := e.At.UTC().Format("2006-01-02 15:04 UTC")
	if e.Left <= 0 {
		return fmt.Sprintf("ended %s ago (%s)", formatSeconds(-e.Left), at)
	}
	return fmt.Sprintf("ends in %s (%s)", formatSeconds(e.Left), at)
}
