package feed

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
)

// restored is the namespace of the tests that put etcd back to an older state.
const restored = "restored"

// past is what listproxy knew of a kind from memory, and what a restore undoes.
type past struct {
	kind      kind
	list      string
	revisions []string
}

// snapshotOf writes objects of some kinds and takes a snapshot of etcd.
func snapshotOf(t *testing.T, c *cluster, kinds ...kind) controlplane.EtcdSnapshot {
	t.Helper()
	ns := c.namespace(t, restored)
	for _, k := range kinds {
		for _, name := range []string{"changed", "kept", "removed"} {
			c.create(t, k, ns, name)
		}
	}
	snapshot, err := c.SnapshotEtcd(t.Context())
	expect.NoError(t, err)
	return snapshot
}

// liveOn lets things happen that a restore will undo, and makes listproxy know them.
func liveOn(t *testing.T, r *rig, k kind) past {
	t.Helper()
	p := past{kind: k, list: k.Path(restored)}
	r.await(hitAny, p.list, anyVersion())
	p.revisions = []string{r.create(t, k, restored, "undone"), r.touch(t, k, restored, "changed", "undone")}
	r.remove(t, k, restored, "removed")
	p.revisions = append(p.revisions, r.create(t, k, restored, "undone-too"))
	r.await(hitNotOlderThan, p.list, notOlderThan(p.revisions[2]))
	for _, revision := range p.revisions {
		r.expect(hitExact, p.list, exactly(revision))
	}
	return p
}

// Rule 7: revisions that go back drop everything.
func TestRestore(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	k := configMaps
	c := ownCluster(t)
	snapshot := snapshotOf(t, c, k)
	r := newRig(t, c, rigOptions{})
	p := liveOn(t, r, k)
	expect.NoError(t, r.RestoreEtcd(t.Context(), snapshot))
	// Until the feed has been in touch with the restored API server, listproxy can only believe
	// what it knows.
	r.until("the restored state", func() error {
		a, err := r.admin.Get(t.Context(), p.list+"?"+anyVersion().Encode())
		if err == nil && (a.Source() != hitAny || strings.Contains(string(a.Body), "undone")) {
			err = errors.New(a.String())
		}
		return err
	})
	// The revisions of before do not exist yet, or are others.
	for _, revision := range p.revisions {
		r.sameAnswer(p.list + "?" + exactly(revision).Encode())
	}
	var fresh []string
	for i := range 10 {
		fresh = append(fresh, r.create(t, k, restored, fmt.Sprintf("fresh-%d", i)))
	}
	r.await(hitNotOlderThan, p.list, notOlderThan(fresh[9]))
	for _, revision := range slices.Concat(p.revisions, fresh) {
		r.ask(p.list, exactly(revision))
		r.ask(p.list, firstPage(revision))
	}
	r.exactAgain(k, restored, "kept")
}

// exactAgain waits until a new revision is known as one of the past. After an API server was
// restarted all is dropped once more, when listproxy hears of the new one.
func (r *rig) exactAgain(k kind, namespace, name string) {
	r.t.Helper()
	r.until("an exact list from memory", func() error {
		revision := r.touch(r.t, k, namespace, name, fmt.Sprint(time.Now()))
		r.await(hitNotOlderThan, k.Path(namespace), notOlderThan(revision))
		if a := r.ask(k.Path(namespace), exactly(revision)); a.Source() != hitExact {
			return errors.New(a.Source())
		}
		return nil
	})
}

// sameAnswer waits until an answer, which may be a refusal, is the API server's. (The revision
// goes on between two questions, and a refusal becomes an answer.)
func (r *rig) sameAnswer(path string) {
	r.t.Helper()
	r.until("the same answer", func() error {
		got, err := r.admin.Get(r.t.Context(), path)
		if err != nil {
			return err
		}
		want, err := r.direct.Get(r.t.Context(), path)
		if err != nil {
			return err
		}
		if got.Code != want.Code || got.Code == http.StatusOK && plain(got.Body) != plain(want.Body) {
			return fmt.Errorf("%s: got %s, and directly %s", path, got, want)
		}
		return nil
	})
}

// The nasty case of rule 7: while the feed was away, the restored storage was written to until
// its revision had passed the old one. Revisions mean other states then than they did.
func TestRestoreThatHasPassed(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	c := ownCluster(t)
	snapshot := snapshotOf(t, c, configMaps, widgets)
	r := newRig(t, c, rigOptions{bound: shortestBound})
	pasts := []past{liveOn(t, r, configMaps), liveOn(t, r, widgets)}
	back := r.cutOff()
	expect.NoError(t, r.RestoreEtcd(t.Context(), snapshot))
	last := ""
	for i := range 20 {
		for _, p := range pasts {
			// Only what can be true in either past: no event may give the new one away.
			last = r.create(t, p.kind, restored, fmt.Sprintf("fresh-%d", i))
		}
	}
	for _, p := range pasts {
		r.showsAway(p.list)
	}

	back()
	for _, p := range pasts {
		r.await(hitNotOlderThan, p.list, notOlderThan(last))
		for _, revision := range p.revisions {
			r.ask(p.list, exactly(revision))
			r.ask(p.list, firstPage(revision))
		}
		r.exactAgain(p.kind, restored, "removed")
	}
}
