package faults

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	// answerDelay is the time after which an overloaded API server answers.
	answerDelay = 20 * time.Second
	// revisionsPerCollection is the number of revisions of each collection that listproxy must know before a fault, and still
	// know after it.
	revisionsPerCollection = 8
)

// overloadCases have an overloaded API server, which answers listproxy's own requests late or refuses them. Watches that have
// begun go on. So listproxy has no reason to load a collection again, and must still know every revision that it knew before.
func overloadCases() []faultCase {
	return []faultCase{
		{
			name: "answered_late", suite: makeTestAll, inSoak: true, wantHistoryKept: true,
			args: []string{"--history-window", "1h"}, fault: func(s *scene) time.Time {
				delay := func(_ http.ResponseWriter, r *http.Request) (answered bool) {
					clock.Sleep(r.Context(), answerDelay)
					return false
				}
				return s.overload(delay, func() { clock.Sleep(s.Context(), max(answerDelay+load.Bound, *duration)) })
			},
		},
		{
			name: "half_refused", suite: makeTestAll, inSoak: true, wantHistoryKept: true,
			args: []string{"--history-window", "1h"}, fault: func(s *scene) time.Time {
				refuseHalf := func(w http.ResponseWriter, _ *http.Request) (answered bool) {
					return rand.IntN(2) == 0 && hop.Refuse(w, http.StatusTooManyRequests)
				}
				return s.overload(refuseHalf, s.waitDuringFault)
			},
		},
	}
}

// overload has the hop call intercept with each request of listproxy's own account until wait returns. It returns the time of
// the end. Reviews of callers' rights pass, since they have the callers' credentials.
func (s *scene) overload(intercept func(http.ResponseWriter, *http.Request) (answered bool), wait func()) time.Time {
	s.hop.OnRequest(func(w http.ResponseWriter, r *http.Request) bool {
		return r.Header.Get("Authorization") == "Bearer "+s.plane.Token(controlplane.Feed) && intercept(w, r)
	})
	wait()
	s.hop.OnRequest(nil)
	return time.Now()
}

// recordKnownRevisions finds revisionsPerCollection revisions of each collection that listproxy answers from memory.
// requireKnown fails the test unless it still does.
func (s *scene) recordKnownRevisions() (requireKnown func()) {
	s.Helper()
	known := map[collection][]uint64{}
	for _, c := range collections() {
		s.must(poll.Retry(s.Context(), "enough known revisions of "+c.Kind.Plural, func() error {
			revision := s.Ledger.Recent() // unknown if it is from before the collection was loaded
			if err := s.requireHit(s.Context(), question{Collection: c, Query: ask.Exactly(revision)}); err != nil {
				return err
			}
			if !slices.Contains(known[c], revision) {
				known[c] = append(known[c], revision)
			}
			if len(known[c]) < revisionsPerCollection {
				return errors.New("not yet")
			}
			return nil
		}))
	}
	return func() {
		s.Helper()
		s.awaitRecovery() // a collection that was lost is loaded again by then, without these revisions
		for c, revisions := range known {
			for _, revision := range revisions {
				if err := s.askReviewed(question{Collection: c, Query: ask.Exactly(revision)}, revision); err != nil {
					s.Errorf("%s as %s: revision %d was known before: %v", c.Kind.Plural, c.Representation.Name, revision, err)
				}
			}
		}
	}
}

// askReviewed asks a question. While the answer is that the review of the caller's rights failed, it asks again. The error says
// why the answer is not a list from memory.
func (s *scene) askReviewed(q question, minRevision uint64) (err error) {
	poll.UntilReviewed(s.Context(), patience, func() string {
		var a ask.Answer
		if _, a, err = s.Ask(s.Context(), s.proxied, q, minRevision); err == nil && !a.FromMemory() {
			err = errors.New(a.Source())
		}
		return a.Source()
	})
	return err
}
