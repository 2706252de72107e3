package faults

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/oracle"
)

// clockCases make listproxy's wall clock jump by an hour; the machine's own stays as it is.
func clockCases() []faultCase {
	return []faultCase{
		// That lists come from memory again is what every case waits for at its end.
		{name: "clock_forward", stage: quiet, jumps: true, fault: func(s *scene) time.Time {
			s.jump(true)
			at := time.Now()
			s.hold()
			return at
		}},
		{name: "clock_back", stage: quiet, jumps: true, fault: (*scene).setBack},
		// By the wall clock nobody has asked for anything in an hour of sleep: what is not --eager
		// would go, if it happened to be looked at before the next list is asked for.
		{name: "machine_suspended", stage: quiet, jumps: true, args: []string{"--idle-timeout", "0"}, fault: (*scene).suspended},
	}
}

// jump makes the wall clock of listproxy jump.
func (s *scene) jump(forward bool) {
	s.Helper()
	s.must(s.proxies.All()[0].JumpClock(s.Context(), forward))
}

// setBack sets the wall clock back while feeds hear nothing. They hear nothing from before the jump
// on, since one answer after it would give the state a time of the new clock; and for so long
// afterwards that askers would get what is too old, if its age were taken from that clock: it is
// less than nothing.
func (s *scene) setBack() time.Time {
	s.silently(func() {
		s.jump(false)
		poll.Pause(s.Context(), max(2*load.Bound, load.Bound+oracle.Tolerance+*duration))
	})
	return time.Now()
}

// suspended is what a process sees on a machine that slept for an hour: its monotonic clock has
// stood still, the wall clock has not, and its feeds have heard nothing yet. Whatever was the
// newest state before is an hour old now, and must not be given as the newest one; an old state is
// as true as it was. Discovery and reviews of callers' rights are answered, which are an hour old,
// too: without them every list would be forwarded, whatever is thought of the state.
func (s *scene) suspended() time.Time {
	known := map[collection]uint64{}
	for _, c := range collections() {
		s.must(poll.Retry(s.Context(), "the newest state from memory", func() error {
			l, err := s.fromMemory(s.Context(), question{Collection: c, Query: ask.AnyVersion})
			known[c] = l.Revision
			return err
		}))
	}
	s.silently(func() {
		s.jump(true)
		var all sync.WaitGroup
		for c, revision := range known {
			all.Go(func() {
				if err := s.awake(c, revision); err != nil {
					s.Tally.Wrong("%s of %s after an hour's sleep: %v", c.Form.Name, c.Kind.Plural, err)
				}
			})
		}
		all.Wait()
	})
	return time.Now()
}

// awake waits until a collection answers from memory with the state at a revision that it knows,
// while its feed hears nothing. Until then, and when all is known that such an answer needs, the
// newest state must be the API server's.
func (s *scene) awake(c collection, revision uint64) error {
	newest := func() error {
		q := question{Collection: c, Query: ask.AnyVersion}
		switch a, err := s.via.GetAs(s.Context(), q.Form.Accept, q.Target()); {
		case err != nil:
			return err
		case a.FromMemory():
			return poll.Wrong(fmt.Sprintf("the newest state, before the API server said how far it is: %s", a.Source()))
		case a.Code != http.StatusOK:
			return fmt.Errorf("the newest state: %s", a)
		}
		return nil
	}
	err := poll.Retry(s.Context(), "the state that was known, from memory", func() error {
		if err := newest(); err != nil {
			return err
		}
		_, err := s.fromMemory(s.Context(), question{Collection: c, Query: ask.Exactly(revision)})
		return err
	})
	if err != nil {
		return err
	}
	return poll.Retry(s.Context(), "the newest state, forwarded", newest)
}
