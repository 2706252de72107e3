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

const (
	// revisionBump is added to the revisions of a restored etcd, as Kubernetes' documentation recommends.
	revisionBump = 1_000_000_000
	// minPause is the shortest time for which an API server is paused. It is longer than the --staleness-bound of the cases
	// that pause one, 6 s.
	minPause = 20 * time.Second
)

// whileBroken returns a fault that breaks something by breakIt, waits for -faults.duration, and mends it by mend.
func whileBroken(breakIt, mend func(*scene) error) faultFunc {
	return func(s *scene) time.Time {
		s.must(breakIt(s))
		s.waitDuringFault()
		s.must(mend(s))
		return time.Now()
	}
}

// upstreamCases break kube-apiserver and etcd.
func upstreamCases() []faultCase {
	var snapshot controlplane.EtcdSnapshot // from before listproxy started
	takeSnapshot := func(s *scene) {
		var err error
		snapshot, err = s.plane.SnapshotEtcd(s.Context())
		s.must(err)
	}
	killServer := func(s *scene) error { return s.plane.First.Kill() }
	stopServer := func(s *scene) error { return s.plane.First.Stop() }
	startServer := func(s *scene) error { return s.plane.First.Start(s.Context()) }
	killEtcd := func(s *scene) error { return s.plane.KillEtcd() }
	startEtcd := func(s *scene) error { return s.plane.StartEtcd(s.Context()) }
	compactAndKillServer := func(s *scene) error {
		s.compact()
		return killServer(s)
	}
	cases := []faultCase{
		{
			name: "apiserver_killed", suite: makeTest, inSoak: true, wantReadersServed: true, bound: time.Minute,
			fault: whileBroken(killServer, startServer),
		},
		{name: "apiserver_ended", inSoak: true, wantReadersServed: true, bound: time.Minute, fault: whileBroken(stopServer, startServer)},
		{name: "apiserver_paused", suite: makeTestAll, inSoak: true, fault: (*scene).pauseServer},
		{name: "etcd_killed", inSoak: true, fault: whileBroken(killEtcd, startEtcd)},
		{
			name: "etcd_compacted_and_apiserver_killed", suite: makeTestAll, inSoak: true,
			fault: whileBroken(compactAndKillServer, startServer),
		},
		{name: "etcd_defragmented", inSoak: true, fault: (*scene).defragment},
		{name: "etcd_emptied", replacesEtcd: true, fault: func(s *scene) time.Time {
			return s.replaceEtcd(s.plane.EmptyEtcd)
		}},
		{name: "etcd_restored_and_bumped", replacesEtcd: true, prepare: takeSnapshot, fault: func(s *scene) time.Time {
			etcdutl, err := binaries.Tool(s.Context(), harness.Log, "etcdutl")
			s.must(err)
			return s.replaceEtcd(func(ctx context.Context) error {
				return s.plane.RestoreEtcdBumped(ctx, etcdutl, snapshot, revisionBump)
			})
		}},
		{
			name: "etcd_restored_and_written_past", suite: makeTestAll, replacesEtcd: true, prepare: takeSnapshot,
			fault: func(s *scene) time.Time { return s.restoreUnseen(snapshot) },
		},
	}
	for i := range cases {
		cases[i].stage = brokenStage
	}
	return cases
}

// repairPlane makes sure that the control plane runs when the case has ended, for the next one.
func (s *scene) repairPlane() {
	_ = s.plane.First.Resume()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.plane.StartEtcd(ctx); err != nil {
		s.Error(err)
	}
}

// pauseServer pauses the API server.
func (s *scene) pauseServer() time.Time {
	s.must(s.plane.First.Pause())
	clock.Sleep(s.Context(), max(minPause, *duration))
	s.must(s.plane.First.Resume())
	return time.Now()
}

// defragment defragments etcd again and again.
func (s *scene) defragment() time.Time {
	s.compact()
	for begun := time.Now(); ; {
		s.must(s.plane.DefragmentEtcd(s.Context()))
		if time.Since(begun) >= *duration || !clock.Sleep(s.Context(), 5*pollEvery) {
			return time.Now()
		}
	}
}

// compact compacts etcd at its newest revision, while writers pause. The fault's window begins then.
func (s *scene) compact() {
	s.Helper()
	resumeWrites := s.recordBeforeCompaction()
	defer resumeWrites()
	current, err := s.plane.EtcdRevision(s.Context())
	s.must(err)
	s.must(s.plane.CompactEtcdAt(s.Context(), current))
	s.faultBegins()
	s.compactedRevision = uint64(current) // #nosec G115 -- a revision
}

// restoreUnseen restores etcd from a snapshot in such a way that no feed sees a revision fall. It cuts listproxy off before,
// and lets it connect again when the restored etcd has reached a higher revision than the etcd before it ever had.
func (s *scene) restoreUnseen(snapshot controlplane.EtcdSnapshot) time.Time {
	s.Helper()
	var lastLost int64 // the last revision of the etcd that is replaced
	s.replaceEtcd(func(ctx context.Context) (err error) {
		s.hop.OnRequest(func(w http.ResponseWriter, r *http.Request) bool {
			return hop.Own(r) && hop.Refuse(w, http.StatusServiceUnavailable)
		})
		s.hop.CutAll()
		if lastLost, err = s.plane.EtcdRevision(ctx); err != nil {
			return err
		}
		return s.plane.RestoreEtcd(ctx, snapshot)
	})

	s.must(poll.Retry(s.Context(), "revisions higher than those that are lost", func() error { return s.writeUntilAbove(lastLost) }))
	s.hop.OnRequest(nil)
	s.faultEnds() // replaceEtcd called it too early: listproxy was still cut off
	return time.Now()
}

// writeUntilAbove writes until etcd's revision is above the given one.
func (s *scene) writeUntilAbove(revision int64) error {
	for {
		current, err := s.plane.EtcdRevision(s.Context())
		if err != nil || current > revision {
			return err
		}
		if _, err := s.touch(s.Context(), configMaps, s.namespaces[0]); err != nil {
			return err
		}
	}
}

// replaceEtcd calls replace, which stops etcd and starts another one. It returns the time at which the API server is ready
// again, and ends the fault's window there.
func (s *scene) replaceEtcd(replace func(context.Context) error) time.Time {
	s.Helper()
	resumeWrites := s.recordBeforeReplacement()
	defer resumeWrites()
	s.faultBegins()
	s.must(replace(s.Context()))
	s.faultEnds()
	s.Verifier.RecordReplacement()
	s.compactedRevision = 0
	s.must(s.populate(s.Context()))
	return s.faultWindow.To
}
