package snapshot

import (
	"testing"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
)

// TestApplyProgress: a progress watch is a short watch that shows all changes up to the revision of its bookmark. If the stream
// has sent all these changes, too, applyProgress extends the interval of known revisions to that revision. If the stream may
// still send some, the progress is kept for later. If the stream has skipped one, applyProgress fails.
//
// The collection was loaded at liveAt, 10, which is the end of its interval at first.
func TestApplyProgress(t *testing.T) {
	for name, tt := range map[string]struct {
		streamed  []uint64 // the revisions of the changes that the stream has sent
		progress  progress // what the progress watch has shown: the changes at revisions, and no others, from after to upTo
		wantTo    uint64   // the end of the interval
		wantKept  bool     // the progress is kept until the stream has caught up
		wantError bool
	}{
		"the progress watch has shown no change": {progress: progress{after: 10, upTo: 20}, wantTo: 20},
		"the stream has sent the change": {
			streamed: []uint64{15}, progress: progress{after: 10, upTo: 20, revisions: []uint64{15}}, wantTo: 20,
		},
		"the stream has not sent one of the changes yet": {
			streamed: []uint64{15}, progress: progress{after: 10, upTo: 20, revisions: []uint64{15, 16}},
			wantTo: 15, wantKept: true,
		},
		"the stream is ahead": {streamed: []uint64{25}, progress: progress{after: 10, upTo: 20}, wantTo: 25},
		"the stream skipped a change (15)": {
			streamed: []uint64{18}, progress: progress{after: 10, upTo: 20, revisions: []uint64{15, 18}},
			wantTo: 18, wantError: true,
		},
		"there is no progress":                     {progress: progress{}, wantTo: 10},
		"the bookmark is below the interval's end": {progress: progress{after: 7, upTo: 9}, wantTo: 10},
		"the change is from before the load":       {progress: progress{after: 7, upTo: 20, revisions: []uint64{9}}, wantTo: 20},
	} {
		t.Run(name, func(t *testing.T) {
			c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
			for _, revision := range tt.streamed {
				o := &index.Object{Key: "ns/a", Revision: revision}
				expect.NoError(t, c.applyChange(stateChange{kind: wire.Modified, key: o.Key, revision: revision, object: o}))
			}
			kept, err := c.applyProgress(tt.progress)
			if (err != nil) != tt.wantError {
				t.Errorf("got error %v, want one: %t", err, tt.wantError)
			}
			if isKept := kept.upTo > 0; err == nil && isKept != tt.wantKept {
				t.Errorf("the progress is kept: got %t, want %t", isKept, tt.wantKept)
			}
			if to := c.view.Load().To; to != tt.wantTo {
				t.Errorf("the interval's end: got %d, want %d", to, tt.wantTo)
			}
		})
	}
}

// TestApplyProgressWithoutAState: applyProgress does nothing if there is no state.
func TestApplyProgressWithoutAState(t *testing.T) {
	c := liveCollection(Limits{History: time.Hour, Staleness: time.Minute})
	c.drop(reason.Warming)
	kept, err := c.applyProgress(progress{after: 10, upTo: 20})
	expect.NoError(t, err)
	if kept.upTo > 0 {
		t.Errorf("got the kept progress %+v, want none", kept)
	}
}
