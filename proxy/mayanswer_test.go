package proxy

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/cluster"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestMayAnswer: an answer that was found may be given only if all that it rests on is still true.
func TestMayAnswer(t *testing.T) {
	pods, widgets := cluster.Entry{Namespaced: true}, cluster.Entry{Namespaced: true, Custom: true}
	now := time.Now()
	state := snapshot.Snapshot{Revision: 7, CurrentAt: now.Add(-time.Minute)}
	memory := snapshot.Validity{Interval: snapshot.Interval{From: 7, To: 9}, Staleness: time.Hour}
	firm := conditions{at: now, entry: pods, memory: memory, allowed: true}
	changed := func(change func(*conditions)) conditions {
		changes := firm
		change(&changes)
		return changes
	}
	for _, tt := range []struct {
		name string
		on   conditions
		want reason.Reason
	}{
		{"nothing has changed", firm, ""},
		{"nothing is known", conditions{}, reason.Warming},
		{"a definition is not vouched for", changed(func(g *conditions) { g.unknown = reason.Upstream }), reason.Upstream},
		{"the catalog does not know it any more", changed(func(g *conditions) { g.entry, g.unknown = cluster.Entry{}, reason.UnknownResource }), reason.UnknownResource},
		{"it is another kind of resource", changed(func(g *conditions) { g.entry = widgets }), reason.Warming},
		{"it is of another scope now", changed(func(g *conditions) { g.entry.Namespaced = !g.entry.Namespaced }), reason.Warming},
		{"the state is too old", changed(func(g *conditions) { g.at = now.Add(time.Hour) }), reason.Stale},
		{"the collection was given up", changed(func(g *conditions) { g.memory = snapshot.Validity{Unavailable: reason.Upstream} }), reason.Upstream},
		{"the revision is let go of", changed(func(g *conditions) { g.memory.Interval = snapshot.Interval{From: 8, To: 9} }), reason.History},
		{"an epoch has ended", changed(func(g *conditions) { g.memory.Epoch++ }), reason.Warming},
		{"the review counts no more", changed(func(g *conditions) { g.allowed = false }), reason.ReviewFailed},
		{"all at once", conditions{unknown: reason.Upstream, memory: snapshot.Validity{Unavailable: reason.Stale}}, reason.Upstream},
	} {
		if got := mayAnswer(&answer{entry: pods, snapshot: state}, &tt.on); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestLastWord: what ends while an answer waits for room has it forwarded: nothing was written, nothing is
// held, the audit log does not say that it was answered, and no watch counts as ended.
func TestLastWord(t *testing.T) {
	for name, tt := range map[string]struct {
		happens func(*modelWorld)
		want    reason.Reason
	}{
		"nothing":                             {func(*modelWorld) {}, ""},
		"another server answers for a moment": {func(w *modelWorld) { w.reroute(`{"namespace":"n","name":"s","port":443}`); w.reroute("") }, reason.Upstream},
		"the definition is changed":           {(*modelWorld).redefine, reason.Upstream},
		"definitions are not known any more":  {func(w *modelWorld) { w.doubt(); time.Sleep(snapshot.Skew + time.Second) }, reason.Upstream},
		"the state is dropped":                {(*modelWorld).drop, reason.Warming},
		"nothing was heard of the state for long": {func(w *modelWorld) {
			w.cut(func() { w.away = true })
			time.Sleep(modelStaleness + time.Second)
		}, reason.Stale},
	} {
		for i, query := range []string{"resourceVersion=0", streaming + "&resourceVersion=0", "resourceVersion=0", streaming + "&resourceVersion=0"} {
			audited := i < 2 // then it is the last word before the event, else the one after it
			proxytest.Bubble(t, fmt.Sprintf("%s, %s, audited %t", name, query, audited), func(t *testing.T) {
				w, log := newModelWorld(t), &auditSink{}
				if audited {
					log = w.audited(t)
				}
				w.load(t)
				release := w.takeRoom(t, 10_000)
				c := w.open(t, query)
				tt.happens(w)
				synctest.Wait()
				if told := c.told(t); told != "" {
					t.Errorf("it did not wait: %s", told)
				}
				release()
				synctest.Wait()
				if told := c.told(t); (told == "") != (tt.want != "") || tt.want != "" && len(c.Header()) > 0 {
					t.Errorf("told %q, %v", told, c.Header())
				}
				c.leave() // for watches go on
				<-c.done
				expect.Same(t, tt.want, c.why)
				expect.Same(t, int64(0), w.handler.Limits.Stats()["bytes"].InUse)
				if (log.Len() > 0) != (audited && tt.want == "") {
					t.Errorf("audited: %q", log)
				}
				for _, c := range w.handler.Collections.Stats() {
					if ended := len(c.Watches.Ended) > 0; c.Watches.Open != 0 || ended && tt.want != "" {
						t.Errorf("a watch that never began is counted: %+v", c.Watches)
					}
				}
			})
		}
	}
}
