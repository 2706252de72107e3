package faults

import (
	"context"
	"net/http"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/controlplane/binaries"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// bump is what Kubernetes' documentation recommends to add to the revisions of an etcd that is restored.
const bump = 1_000_000_000

// pausedFor is how long the API server stands still: longer than the bound.
const pausedFor = 20 * time.Second

// upstreamCases break kube-apiserver and etcd.
func upstreamCases() []faultCase {
	var snapshot controlplane.EtcdSnapshot // of etcd before listproxy started
	cases := []faultCase{
		{name: "apiserver_killed", runs: always, soaks: true, servesReaders: true, bound: time.Minute, fault: func(s *scene) time.Time {
			s.must(s.plane.First.Kill())
			s.hold()
			s.must(s.plane.First.Start(s.Context()))
			return time.Now()
		}},
		{name: "apiserver_ended", soaks: true, servesReaders: true, bound: time.Minute, fault: func(s *scene) time.Time {
			s.must(s.plane.First.Stop())
			s.hold()
			s.must(s.plane.First.Start(s.Context()))
			return time.Now()
		}},
		{name: "apiserver_paused", runs: inFull, soaks: true, fault: func(s *scene) time.Time {
			s.must(s.plane.First.Pause())
			clock.Sleep(s.Context(), max(pausedFor, *duration))
			s.must(s.plane.First.Resume())
			return time.Now()
		}},
		{name: "etcd_killed", soaks: true, fault: func(s *scene) time.Time {
			s.must(s.plane.KillEtcd())
			s.hold()
			s.must(s.plane.StartEtcd(s.Context()))
			return time.Now()
		}},
		{name: "etcd_compacted_and_apiserver_killed", runs: inFull, soaks: true, fault: func(s *scene) time.Time {
			s.compact()
			s.must(s.plane.First.Kill())
			s.hold()
			s.must(s.plane.First.Start(s.Context()))
			return time.Now()
		}},
		{name: "etcd_defragmented", soaks: true, fault: func(s *scene) time.Time {
			s.compact()
			for begun := time.Now(); ; {
				s.must(s.plane.DefragmentEtcd(s.Context()))
				if time.Since(begun) >= *duration || !clock.Sleep(s.Context(), 5*pollEvery) {
					return time.Now()
				}
			}
		}},
		{name: "etcd_emptied", replaces: true, fault: func(s *scene) time.Time {
			return s.replaced(s.plane.EmptyEtcd)
		}},
		{name: "etcd_restored_and_bumped", replaces: true, before: func(s *scene) {
			var err error
			snapshot, err = s.plane.SnapshotEtcd(s.Context())
			s.must(err)
		}, fault: func(s *scene) time.Time {
			etcdutl, err := binaries.Tool(s.Context(), harness.Log, "etcdutl")
			s.must(err)
			return s.replaced(func(ctx context.Context) error {
				return s.plane.RestoreEtcdBumped(ctx, etcdutl, snapshot, bump)
			})
		}},
		// The feed is away until revisions have passed those that it knows: nothing goes back for it.
		{name: "etcd_restored_and_written_past", runs: inFull, replaces: true, before: func(s *scene) {
			var err error
			snapshot, err = s.plane.SnapshotEtcd(s.Context())
			s.must(err)
		}, fault: func(s *scene) time.Time {
			var old int64
			s.replaced(func(ctx context.Context) (err error) {
				s.hop.OnRequest(func(w http.ResponseWriter, r *http.Request) bool {
					return hop.Own(r) && hop.Refuse(w, http.StatusServiceUnavailable)
				})
				s.hop.CutAll()
				if old, err = s.plane.EtcdRevision(ctx); err != nil {
					return err
				}
				return s.plane.RestoreEtcd(ctx, snapshot)
			})
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
			s.faultEnds()
			return time.Now()
		}},
	}
	for i := range cases {
		cases[i].stage = broken
	}
	return cases
}

// mend makes sure that the control plane runs when the case has ended, for the next one.
func (s *scene) mend() {
	_ = s.plane.First.Resume()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.plane.StartEtcd(ctx); err != nil {
		s.Error(err)
	}
}

// compact compacts etcd at its newest revision.
func (s *scene) compact() {
	s.Helper()
	resume := s.still(false)
	defer resume()
	at, err := s.plane.EtcdRevision(s.Context())
	s.must(err)
	s.must(s.plane.CompactEtcdAt(s.Context(), at))
	s.faultBegins()
	s.compacted = uint64(at) // #nosec G115 -- a revision
}

// replaced puts another etcd in place of the one that there is, and returns when the API server was there
// again. The ledger begins anew in still.
func (s *scene) replaced(replace func(context.Context) error) time.Time {
	s.Helper()
	resume := s.still(true)
	defer resume()
	s.faultBegins()
	s.must(replace(s.Context()))
	s.faultEnds()
	s.Oracle.Forget()
	s.compacted = 0
	s.must(s.populate(s.Context()))
	return s.broken.To
}
