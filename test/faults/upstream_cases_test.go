package faults

import (
	"context"
	"net/http"
	"time"

	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// pausedFor is how long the API server stands still: longer than the bound.
const pausedFor = 20 * time.Second

// upstreamCases break kube-apiserver and etcd.
func upstreamCases() []faultCase {
	cases := []faultCase{
		{name: "apiserver_killed", runs: always, soaks: true, fault: func(s *scene) time.Time {
			s.must(s.plane.KillAPIServer())
			s.hold()
			s.must(s.plane.StartAPIServer(s.Context()))
			return time.Now()
		}},
		{name: "apiserver_restarted", soaks: true, unserved: "all is dropped when it says that it ends", fault: func(s *scene) time.Time {
			s.must(s.plane.StopAPIServer())
			s.must(s.plane.StartAPIServer(s.Context()))
			return time.Now()
		}},
		{name: "apiserver_paused", runs: inFull, soaks: true, fault: func(s *scene) time.Time {
			s.must(s.plane.PauseAPIServer())
			poll.Pause(s.Context(), max(pausedFor, *duration))
			s.must(s.plane.ResumeAPIServer())
			return time.Now()
		}},
		{name: "etcd_killed", soaks: true, fault: func(s *scene) time.Time {
			s.must(s.plane.KillEtcd())
			s.hold()
			s.must(s.plane.StartEtcd(s.Context()))
			return time.Now()
		}},
		{name: "etcd_compacted", runs: inFull, soaks: true, fault: func(s *scene) time.Time {
			s.compact()
			at := time.Now()
			s.hold()
			return at
		}},
		{name: "etcd_compacted_and_apiserver_killed", fault: func(s *scene) time.Time {
			s.compact()
			s.must(s.plane.KillAPIServer())
			s.hold()
			s.must(s.plane.StartAPIServer(s.Context()))
			return time.Now()
		}},
		{name: "etcd_defragmented", soaks: true, fault: func(s *scene) time.Time {
			s.compact()
			for begun := time.Now(); ; {
				s.must(s.plane.DefragmentEtcd(s.Context()))
				if time.Since(begun) >= *duration || !poll.Pause(s.Context(), 5*pollEvery) {
					return time.Now()
				}
			}
		}},
		{name: "etcd_emptied", replaces: true, fault: func(s *scene) time.Time {
			resume := s.still(true)
			defer resume()
			s.breaks()
			s.must(s.plane.EmptyEtcd(s.Context()))
			s.mends()
			s.renew(resume)
			return s.renewed
		}},
		restored("etcd_restored", withAll, func(s *scene, _ int64, restore func()) time.Time {
			restore()
			return s.renewed
		}),
		// The feed is away until revisions have passed those that it knows: nothing goes back for
		// it.
		restored("etcd_restored_and_written_past", inFull, func(s *scene, old int64, restore func()) time.Time {
			s.hop.OnRequest(func(w http.ResponseWriter, r *http.Request) bool {
				return hop.Own(r) && hop.Refuse(w, http.StatusServiceUnavailable)
			})
			s.hop.CutAll()
			restore()
			s.must(poll.Retry(s.Context(), "revisions past those that are lost", func() error {
				for {
					now, err := s.plane.EtcdRevision(s.Context())
					if err != nil || now > old {
						return err
					}
					if _, err := s.touch(s.Context(), configMaps, s.namespaces[0]); err != nil {
						return err
					}
				}
			}))
			s.hop.OnRequest(nil)
			s.mends()
			return time.Now()
		}),
	}
	for i := range cases {
		cases[i].stage = broken
		prepare := cases[i].before
		cases[i].before = func(s *scene) {
			mend(s)
			if prepare != nil {
				prepare(s)
			}
		}
	}
	return cases
}

// restored is a case in which etcd is put back to what it was before listproxy started. fault is
// told etcd's revision before that, and decides when.
func restored(name string, runs runs, fault func(s *scene, old int64, restore func()) time.Time) faultCase {
	var restore func(s *scene) error
	return faultCase{
		name: name, runs: runs, replaces: true,
		before: func(s *scene) {
			snapshot, err := s.plane.SnapshotEtcd(s.Context())
			s.must(err)
			restore = func(s *scene) error { return s.plane.RestoreEtcd(s.Context(), snapshot) }
		},
		fault: func(s *scene) time.Time {
			resume := s.still(true)
			defer resume()
			old, err := s.plane.EtcdRevision(s.Context())
			s.must(err)
			s.breaks()
			return fault(s, old, func() {
				s.must(restore(s))
				s.mends()
				s.renew(resume)
			})
		},
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

// compact compacts etcd at its newest revision.
func (s *scene) compact() {
	s.Helper()
	resume := s.still(false)
	defer resume()
	at, err := s.plane.EtcdRevision(s.Context())
	s.must(err)
	s.must(s.plane.CompactEtcdAt(s.Context(), at))
	s.breaks()
	s.compacted = uint64(at) // #nosec G115 -- a revision
}

// renew begins anew after etcd was replaced. The ledger has done so in still.
func (s *scene) renew(resume func()) {
	s.Helper()
	s.Oracle.Forget()
	s.compacted, s.renewed = 0, time.Now()
	s.must(s.populate(s.Context()))
	resume()
}
