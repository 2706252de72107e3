package clients

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/informers"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// followed is an informer, and what it is of.
type followed struct {
	name, client string
	resource     schema.GroupVersionResource
	filter       filter
	informer     cache.SharedIndexInformer
}

// filters of a resource; the first takes all.
func filters(r schema.GroupVersionResource) map[string]filter {
	all := map[string]filter{"all": {}, "labels": {labels: "tier in (web,db),tier!=db"}}
	switch r {
	case pods:
		all["fields"] = filter{field: []string{"spec", "nodeName"}, value: "node-1"}
		all["both"] = filter{labels: "tier", field: []string{"status", "phase"}, value: "Running"}
	case gadgets:
		all["fields"] = filter{field: []string{"spec", "color"}, value: "red"}
	}
	return all
}

// follow returns informers of every kind; streaming ones and such as read pages.
func (s *side) follow() map[string]followed {
	all := map[string]followed{}
	for _, r := range changing {
		for filtered, f := range filters(r) {
			for client, l := range s.Listers(r, "") {
				for _, pages := range []bool{false, true} {
					name := r.Resource + " " + client + " " + filtered
					if pages {
						name += " with pages"
					}
					all[name] = followed{name, client, r, f, l.Informer(pages, f.labels, f.fieldSelector())}
				}
			}
		}
	}
	return all
}

// breakable returns a side whose connections a test can break, and what does so.
func breakable(t *testing.T, s *side) (*side, *breaker) {
	t.Helper()
	h := hop.Run(t, s.config.Host, s.config.CAData)
	b := &breaker{hop: h}
	h.OnRequest(b.intercept)
	through, err := newSide(s.name, h.RESTConfig(s.config))
	expect.NoError(t, err)
	return through, b
}

// breaker breaks connections, and says of some watches that their revision is gone: then informers
// list again.
type breaker struct {
	hop    *hop.Hop
	expire atomic.Int64 // so many watches
	cuts   int
	gone   atomic.Int64
	lists  atomic.Int64 // lists that have passed
	stream atomic.Int64 // streaming ones
}

func (b *breaker) intercept(w http.ResponseWriter, r *http.Request) bool {
	query := r.URL.Query()
	switch {
	case query.Get("watch") == "":
		b.lists.Add(1)
		return false
	case query.Get("sendInitialEvents") == "true":
		b.stream.Add(1)
		return false
	case b.expire.Add(-1) < 0:
		return false
	}
	b.gone.Add(1)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusGone)
	_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"gone","reason":"Expired","code":410}`))
	return true
}

// run breaks until ctx ends.
func (b *breaker) run(ctx context.Context, every time.Duration) {
	for poll.Pause(ctx, every) {
		b.expire.Store(int64(10 + 10*(b.cuts%3)))
		b.hop.CutAll()
		b.cuts++
	}
}

// start starts informers and waits until they know something.
func start(ctx context.Context, t *testing.T, all map[string]followed) {
	t.Helper()
	var synced []cache.InformerSynced
	for _, f := range all {
		expect.NoError(t, informers.Start(ctx, f.informer))
		synced = append(synced, f.informer.HasSynced)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		t.Fatal("the informers did not start")
	}
}

// check demands that an informer comes to know what the API server has, and knows it the same way
// as a fresh list tells it.
func (f followed) check(t *testing.T, side string, fresh *side) map[string]runtime.Object {
	t.Helper()
	list, err := fresh.Listers(f.resource, "")[f.client].List(t.Context(), metav1.ListOptions{LabelSelector: f.filter.labels, FieldSelector: f.filter.fieldSelector()})
	expect.NoError(t, err)
	want := map[string]runtime.Object{}
	if err := meta.EachListItem(list, func(o runtime.Object) error {
		accessor, err := meta.Accessor(o)
		if err == nil {
			want[keyOf(accessor)] = o
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var got map[string]runtime.Object
	if !poll.Came(t, patience, func() bool {
		got = informers.Stored(f.informer)
		return cmp.Equal(revisions(got), revisions(want))
	}) {
		t.Errorf("%s, %s: (-API server +informer)\n%s", f.name, side, cmp.Diff(revisions(want), revisions(got)))
		return got
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s, %s: (-API server +informer)\n%s", f.name, side, d)
	}
	return got
}

func revisions(objects map[string]runtime.Object) state {
	s := state{}
	for key, o := range objects {
		accessor, err := meta.Accessor(o)
		if err != nil {
			s[key] = err.Error()
			continue
		}
		s[key] = accessor.GetResourceVersion()
	}
	return s
}
