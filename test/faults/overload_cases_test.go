package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	// answeredLate is how late an API server with too much to do answers.
	answeredLate = 20 * time.Second
	// knownBefore is how many revisions of each collection are asked for before a fault and after it.
	knownBefore = 8
)

// overloadCases are those of an API server that has too much to do: it answers nothing that
// listproxy asks for by itself as it should. Watches that have been answered go on, and no revision
// may be lost.
func overloadCases() []faultCase {
	return []faultCase{
		{name: "answered_late", runs: inFull, soaks: true, keepsHistory: true, args: []string{"--history-window", "1h"}, fault: func(s *scene) time.Time {
			return s.overloaded(func(_ http.ResponseWriter, r *http.Request) bool {
				clock.Sleep(r.Context(), answeredLate)
				return false
			}, func() { clock.Sleep(s.Context(), max(answeredLate+load.Bound, *duration)) })
		}},
		{name: "half_refused", runs: inFull, soaks: true, keepsHistory: true, args: []string{"--history-window", "1h"}, fault: func(s *scene) time.Time {
			return s.overloaded(func(w http.ResponseWriter, _ *http.Request) bool {
				return rand.IntN(2) == 0 && hop.Refuse(w, http.StatusTooManyRequests)
			}, s.hold)
		}},
	}
}

// overloaded does something while treat meets what listproxy asks for on its own account. (It asks with the
// caller's credentials what the caller may do: that is left alone.) treat returns true if it has answered a
// request. overloaded returns when that was over.
func (s *scene) overloaded(treat func(http.ResponseWriter, *http.Request) bool, do func()) time.Time {
	s.hop.OnRequest(func(w http.ResponseWriter, r *http.Request) bool {
		return r.Header.Get("Authorization") == "Bearer "+s.plane.Token(controlplane.Feed) && treat(w, r)
	})
	do()
	s.hop.OnRequest(nil)
	return time.Now()
}

// remember notes which revisions are known. The function that it returns demands that they still are.
func (s *scene) remember() (kept func()) {
	s.Helper()
	known := map[collection][]uint64{}
	for _, c := range collections() {
		s.must(poll.Retry(s.Context(), "enough revisions that are known of "+c.Kind.Plural, func() error {
			// What came before the collection was loaded is not known.
			some := s.Ledger.Recent()
			if err := s.fromMemory(s.Context(), question{Collection: c, Query: ask.Exactly(some)}); err != nil {
				return err
			}
			if !slices.Contains(known[c], some) {
				known[c] = append(known[c], some)
			}
			if len(known[c]) < knownBefore {
				return errors.New("not yet")
			}
			return nil
		}))
	}
	return func() {
		s.Helper()
		s.recover() // what was lost, and is loaded again by then, lacks them
		for c, revisions := range known {
			for _, revision := range revisions {
				if source := s.sourceOf(c, revision); !strings.Contains(source, "; hit") {
					s.Errorf("%s as %s: revision %d was known, and is not: %s", c.Kind.Plural, c.Form.Name, revision, source)
				}
			}
		}
	}
}

// sourceOf asks for a revision. Who answers, and that this is right, is seen where the review of what
// the caller may did not fail.
func (s *scene) sourceOf(c collection, revision uint64) (source string) {
	poll.Reviewed(s.Context(), patience, func() string {
		_, a, err := s.Put(s.Context(), s.via, question{Collection: c, Query: ask.Exactly(revision)}, revision)
		source = fmt.Sprintf("%s, %v", a.Source(), err)
		return a.Source()
	})
	return source
}
