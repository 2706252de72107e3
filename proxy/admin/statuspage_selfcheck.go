package admin

import (
	"time"

	"github.com/listproxy/listproxy/snapshot/checks"
	"github.com/listproxy/listproxy/telemetry/statusz"
)

// selfChecks returns what self-checks ever found wrong. That does not make the status unhealthy:
// the wrong data was dropped, and answers are now right as far as anybody knows. If the status
// stayed unhealthy until the process ends, people would restart it and lose what is known about the
// fault; and other problems could not be seen.
func (s *StatusSource) selfChecks(now time.Time) statusz.SelfChecks {
	status := statusz.SelfChecks{Interval: s.SelfCheck.Seconds(), Mismatches: []statusz.Mismatch{}}
	if s.Mismatched == nil {
		return status
	}
	for r, found := range s.Mismatched() {
		status.Mismatches = append(status.Mismatches, statusz.Mismatch{
			Resource: r.GroupResource().String(), Version: r.Version, Representation: string(r.Representation),
			Mismatches: int64(found.Mismatches), Last: found.Mismatched.UTC(), Age: now.Sub(found.Mismatched).Seconds(),
		})
	}
	return status
}

// selfCheck says what self-checks found of one collection.
func (s *StatusSource) selfCheck(now time.Time, found checks.Stats) statusz.SelfCheck {
	status := statusz.SelfCheck{
		Result: string(found.Result), Mismatches: int64(found.Mismatches),
		Age: since(found.At, now), MismatchAge: since(found.Mismatched, now),
	}
	switch {
	case s.SelfCheck == 0:
		status.Result = statusz.SelfCheckOff
	case found.At.IsZero():
		status.Result = statusz.SelfCheckNone
	}
	return status
}

// since is how many seconds passed since then; nil if then is zero.
func since(then, now time.Time) *float64 {
	if then.IsZero() {
		return nil
	}
	return new(now.Sub(then).Seconds())
}
