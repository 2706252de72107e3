package admin

import (
	"cmp"
	"slices"
	"time"

	"github.com/listproxy/listproxy/proxy/certs"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/telemetry/statusz"
)

// upstreamCheckName names the check that says how the API server is.
const upstreamCheckName = "upstream"

// upstreamState returns what the status page says of the API server.
func upstreamState(s upstream.HealthStats, now time.Time) *statusz.UpstreamState {
	state := &statusz.UpstreamState{
		State: string(s.Condition), Meaning: s.Condition.Meaning(), Seconds: max(0, now.Sub(s.Since).Seconds()),
		User: s.User, Error: s.Problem, Advice: s.Advice,
	}
	if !s.Answered.IsZero() {
		state.Answered = new(max(0, now.Sub(s.Answered).Seconds()))
	}
	return state
}

// upstreamCheck says whether all is well with the API server. It is stricter than [upstreamReady].
func upstreamCheck(s upstream.HealthStats) statusz.Check {
	check := statusz.Check{Name: upstreamCheckName, OK: s.Condition == upstream.ConditionOK}
	if !check.OK {
		check.Message = upstreamWords(s)
	}
	return check
}

// upstreamWords says in one line what the state of the API server is, why, and what to do.
func upstreamWords(s upstream.HealthStats) string {
	words := "kube-apiserver: " + s.Condition.Meaning()
	if s.Problem != "" {
		words += " (" + s.Problem + ")"
	}
	if s.Advice != "" {
		words += ": " + s.Advice
	}
	return words
}

// certificateSoon is how long before its end a certificate should have been renewed, as in the
// alerts.
const certificateSoon = 14 * 24 * time.Hour

// endsOf says when certificates and logins end; the first to end comes first.
func endsOf(certificates []certs.Expiry, logins []upstream.Login, now time.Time) []statusz.End {
	ends := []statusz.End{}
	for _, c := range certificates {
		if !c.NotAfter.IsZero() {
			left := c.NotAfter.Sub(now)
			ends = append(ends, statusz.End{
				Name: "certificate " + c.Name, At: c.NotAfter.UTC(), Left: left.Seconds(), Soon: left < certificateSoon,
			})
		}
	}
	for _, l := range logins {
		ends = append(ends, statusz.End{
			Name: l.Kind + " for kube-apiserver", At: l.Until.UTC(), Left: l.Until.Sub(now).Seconds(), Soon: l.EndsSoon(now),
		})
	}
	slices.SortStableFunc(ends, func(a, b statusz.End) int { return cmp.Compare(a.Left, b.Left) })
	return ends
}
