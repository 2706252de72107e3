package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// waitDuringFault waits for -faults.duration, 2 s by default. On a slow machine it then waits until enough answers have come
// during the fault, one of them from memory. It gives up after load.Bound, since memory answers no longer than that without its
// upstream.
func (s *scene) waitDuringFault() {
	const enoughAnswers = 20
	if !clock.Sleep(s.Context(), *duration) {
		return
	}
	for deadline := time.Now().Add(load.Bound); time.Now().Before(deadline); {
		seen := s.Tally.Counts(load.Window{From: s.faultWindow.From, To: time.Now()})
		isEnough := seen.InWindow >= enoughAnswers && seen.HitsInWindow > 0
		if isEnough || !clock.Sleep(s.Context(), pollEvery) {
			return
		}
	}
}

// awaitCompared waits until enough more answers from memory have been compared.
func (s *scene) awaitCompared(when string) {
	s.Helper()
	const enough = 40
	before := s.Tally.Counts(load.Window{}).Compared
	s.must(poll.Retry(s.Context(), "enough answers from memory "+when, func() error {
		if n := s.Tally.Counts(load.Window{}).Compared - before; n < enough {
			return fmt.Errorf("%d have been compared", n)
		}
		return nil
	}))
}

// awaitRecovery writes an object of each collection's kind, and waits until an answer from memory has the write.
func (s *scene) awaitRecovery() {
	s.Helper()
	for _, c := range collections() {
		var revision uint64
		s.must(poll.Retry(s.Context(), "a write", func() (err error) {
			revision, err = s.touch(s.Context(), c.Kind, s.namespaces[0])
			return err
		}))
		s.must(poll.Retry(s.Context(), "an answer from memory with what was written after the fault", func() error {
			return s.requireHit(s.Context(), question{Collection: c, Query: ask.NotOlderThan(revision)})
		}))
	}
}

// requireHit returns an error unless the answer to a question is a list from memory.
func (s *scene) requireHit(ctx context.Context, q question) error {
	a, err := s.proxied.GetAs(ctx, q.Representation.Accept, q.Target())
	if err == nil && (a.Code != http.StatusOK || !a.FromMemory()) {
		err = errors.New(a.String())
	}
	return err
}

// awaitConverged waits until all followers have the true state. A follower that does not reach it in time is a mistake.
func (s *scene) awaitConverged() {
	s.Helper()
	for _, f := range s.followers {
		if err := poll.Retry(s.Context(), f.name, func() error { return s.requireConverged(f) }); err != nil {
			s.Tally.AddMistake("a follower does not reach the true state: %v", err)
			continue
		}
		s.Tally.Add(func(c *load.Counts) { c.Converged++ })
	}
}

// requireConverged returns an error unless a follower has the state that kube-apiserver has now.
func (s *scene) requireConverged(f follower) error {
	truth, err := load.Read(s.Context(), s.direct, f.target)
	if err != nil {
		return err
	}
	if revision := f.missingWrite(); revision > 0 {
		return fmt.Errorf("it did not get the write at revision %d", revision)
	}
	if got, want := f.state(), ask.Versions(truth.Objects); !maps.Equal(got, want) {
		return fmt.Errorf("it knows %d objects, there are %d (-want +got): %.2000s", len(got), len(want), cmp.Diff(want, got))
	}
	return nil
}

// awaitSelfCheck waits for a self-check of listproxy that agrees. None may find a mismatch.
func (s *scene) awaitSelfCheck() {
	s.Helper()
	s.must(poll.Retry(s.Context(), "a self-check that agrees", func() error {
		if n := s.countSelfChecks("mismatch"); n > 0 {
			return poll.Wrong(fmt.Sprintf("%.0f self-checks found a mismatch", n))
		}
		if s.countSelfChecks("agrees") == 0 {
			return errors.New("there was none")
		}
		return nil
	}))
}

// countSelfChecks returns the number of self-checks with a result, or of all for "".
func (s *scene) countSelfChecks(result string) float64 {
	s.Helper()
	labels := map[string]string{}
	if result != "" {
		labels["result"] = result
	}
	n, _, err := s.firstProxy().Metric(s.Context(), "listproxy_selfchecks_total", labels)
	s.must(err)
	return n
}
