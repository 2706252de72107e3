package faults

import (
	"context"
	"time"
)

// pausedFor is how long the API server stands still: longer than the bound.
const pausedFor = 20 * time.Second

// upstreamCases break kube-apiserver and etcd.
func upstreamCases() []faultCase {
	return []faultCase{
		{name: "apiserver_killed", stage: broken, before: mend, fault: func(s *scene) time.Time {
			s.must(s.plane.KillAPIServer())
			s.hold()
			s.must(s.plane.StartAPIServer(s.Context()))
			return time.Now()
		}},
		{name: "apiserver_paused", stage: broken, before: mend, fault: func(s *scene) time.Time {
			s.must(s.plane.PauseAPIServer())
			pause(s.Context(), max(pausedFor, *duration))
			s.must(s.plane.ResumeAPIServer())
			return time.Now()
		}},
		{name: "etcd_emptied", stage: broken, before: mend, replaces: true, fault: func(s *scene) time.Time {
			resume := s.still(true)
			s.must(s.plane.EmptyEtcd(s.Context()))
			s.renew(resume)
			return time.Now()
		}},
	}
}

// mend makes sure that the control plane runs when the case has ended, for the next one.
func mend(s *scene) {
	s.Cleanup(func() {
		_ = s.plane.ResumeAPIServer()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.plane.StartEtcd(ctx); err != nil {
			s.Error(err)
		}
	})
}

// renew begins anew after etcd was replaced.
func (s *scene) renew(resume func()) {
	s.Helper()
	s.oracle.forget()
	s.ledger.forget()
	err := s.populate(s.Context())
	resume()
	s.must(err)
}
