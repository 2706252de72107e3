package faults

import (
	"context"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/ask"
)

// clockCases make listproxy's wall clock jump by an hour; the machine's own stays as it is.
func clockCases() []faultCase {
	jump := func(forward bool) func(*scene) time.Time {
		return func(s *scene) time.Time {
			s.must(s.proxies.All()[0].JumpClock(s.Context(), forward))
			return time.Now()
		}
	}
	return []faultCase{
		{name: "clock_forward", stage: quiet, jumps: true, fault: jump(true)},
		{name: "clock_back", stage: quiet, jumps: true, fault: jump(false)},
		{name: "machine_suspended", stage: quiet, jumps: true, fault: (*scene).suspended},
	}
}

// suspended is what a process sees on a machine that slept for an hour: its monotonic clock has stood
// still, the wall clock has not, and nothing has come from the API server yet. Whatever was the newest
// state before is an hour old now, and must not be given as the newest one; an old state is as true as
// it was.
func (s *scene) suspended() time.Time {
	known := map[collection]uint64{}
	for _, c := range collections() {
		s.must(retry(s.Context(), "the newest state from memory", func() error {
			_, l, err := s.fromMemory(s.Context(), question{collection: c, query: ask.AnyVersion})
			known[c] = l.Revision
			return err
		}))
	}
	s.hop.Freeze()
	s.must(s.proxies.All()[0].JumpClock(s.Context(), true))
	var all sync.WaitGroup
	for c, revision := range known {
		all.Go(func() {
			// What is forwarded waits for the API server.
			ctx, cancel := context.WithTimeout(s.Context(), forwarded)
			defer cancel()
			if a, _, err := s.fromMemory(ctx, question{collection: c, query: ask.AnyVersion}); err == nil {
				s.tally.wrong("%s of %s after an hour's sleep, and before the API server was heard of: %s", c.form.name, c.kind.plural, a.Source())
			}
		})
		all.Go(func() {
			if _, _, err := s.fromMemory(s.Context(), question{collection: c, query: ask.Exactly(revision)}); err != nil {
				s.tally.wrong("%s of %s at a revision that was known before an hour's sleep: %v", c.form.name, c.kind.plural, err)
			}
		})
	}
	all.Wait()
	s.hop.Thaw()
	return time.Now()
}

// forwarded is how long an answer is waited for that is not to come: an answer from memory takes
// milliseconds.
const forwarded = 2 * time.Second
