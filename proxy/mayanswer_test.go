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
		now := firm
		change(&now)
		return now
	}
	for _, tt := range []struct {
		name       string
		conditions conditions // now
		want       reason.Reason
	}{
		{name: "nothing has changed", conditions: firm, want: reason.None},
		{name: "nothing is known", conditions: conditions{}, want: reason.Warming},
		{
			name:       "a definition is not vouched for",
			conditions: changed(func(c *conditions) { c.unknown = reason.Upstream }), want: reason.Upstream,
		},
		{
			name: "the catalog does not know it any more",
			conditions: changed(func(c *conditions) {
				c.entry = cluster.Entry{}
				c.unknown = reason.UnknownResource
			}),
			want: reason.UnknownResource,
		},
		{
			name:       "it is another kind of resource",
			conditions: changed(func(c *conditions) { c.entry = widgets }), want: reason.Warming,
		},
		{
			name:       "it is of another scope now",
			conditions: changed(func(c *conditions) { c.entry.Namespaced = false }), want: reason.Warming,
		},
		{
			name:       "the state is too old",
			conditions: changed(func(c *conditions) { c.at = now.Add(time.Hour) }), want: reason.Stale,
		},
		{
			name: "the collection was given up",
			conditions: changed(func(c *conditions) {
				c.memory = snapshot.Validity{Unavailable: reason.Upstream}
			}),
			want: reason.Upstream,
		},
		{
			name: "the revision is let go of",
			conditions: changed(func(c *conditions) {
				c.memory.Interval = snapshot.Interval{From: 8, To: 9}
			}),
			want: reason.History,
		},
		{
			name:       "an epoch has ended",
			conditions: changed(func(c *conditions) { c.memory.Epoch++ }), want: reason.Warming,
		},
		{
			name:       "the review counts no more",
			conditions: changed(func(c *conditions) { c.allowed = false }), want: reason.ReviewFailed,
		},
		{
			name:       "all at once",
			conditions: conditions{unknown: reason.Upstream, memory: snapshot.Validity{Unavailable: reason.Stale}},
			want:       reason.Upstream,
		},
	} {
		if got := mayAnswer(&answer{entry: pods, snapshot: state}, &tt.conditions); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestLastWord: where what an answer rests on ends while it waits for room, the request is forwarded: nothing was
// written, no room is held, the audit log does not say that it was answered, and no watch counts as ended.
func TestLastWord(t *testing.T) {
	for name, tt := range map[string]struct {
		happens func(*modelWorld)
		want    reason.Reason
	}{
		"nothing": {happens: func(*modelWorld) {}, want: reason.None},
		"another server answers for a moment": {
			happens: func(w *modelWorld) {
				w.reroute(`{"namespace":"n","name":"s","port":443}`)
				w.reroute("")
			},
			want: reason.Upstream,
		},
		"the definition is changed": {happens: (*modelWorld).redefine, want: reason.Upstream},
		"definitions are not known any more": {
			happens: func(w *modelWorld) {
				w.doubt()
				time.Sleep(snapshot.Skew + time.Second)
			},
			want: reason.Upstream,
		},
		"the state is dropped": {happens: (*modelWorld).drop, want: reason.Warming},
		"the state was not known to be current for long": {
			happens: func(w *modelWorld) {
				w.cut(func() { w.away = true })
				time.Sleep(modelStaleness + time.Second)
			},
			want: reason.Stale,
		},
	} {
		for _, request := range []struct {
			query   string
			audited bool // then it is the last word before the event, else the one after it
		}{
			{query: "resourceVersion=0", audited: true},
			{query: streaming + "&resourceVersion=0", audited: true},
			{query: "resourceVersion=0", audited: false},
			{query: streaming + "&resourceVersion=0", audited: false},
		} {
			query, audited := request.query, request.audited
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
				forwarded := tt.want != reason.None
				if told := c.told(t); (told == "") != forwarded || forwarded && len(c.Header()) > 0 {
					t.Errorf("told %q with the header %v, want nothing where it is forwarded: %t", told, c.Header(), forwarded)
				}
				c.leave() // for watches go on
				<-c.done
				expect.Same(t, tt.want, c.why)
				expect.Same(t, int64(0), w.handler.Limits.Stats()["bytes"].InUse)
				if wantEvent := audited && !forwarded; (log.Len() > 0) != wantEvent {
					t.Errorf("the audit log has %q, want an event: %t", log, wantEvent)
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
