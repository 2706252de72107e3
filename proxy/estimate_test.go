package proxy

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy/internal/observetest"
	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// TestEstimate: while --consistent-lists is off it is counted what it would have done. Nothing is
// asked or begun for that.
func TestEstimate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newModelWorld(t)
		w.questionTakes = 5 * time.Millisecond
		close(w.reviews)
		o, metrics := observetest.New(t, nil)
		w.handler.Observer, w.handler.ConsistentWait = o, 1500*time.Millisecond
		read := func(target string) policy.Request {
			r := httptest.NewRequest(http.MethodGet, target, nil)
			r.Header.Set("Accept", "application/json")
			list, why := policy.Parse(r, kubehttp.Of(r).Info, policy.PlainToken)
			if why != "" {
				t.Fatal(why)
			}
			return list
		}
		const widgets = "/apis/example.com/v1/widgets"
		estimated := func(target string, want ...string) {
			t.Helper()
			list := read(target)
			if resource, q, known := w.handler.newest(list); known {
				w.handler.estimate(list, resource, q)
			}
			got := proxytest.Series(proxytest.Gather(t, metrics)["listproxy_newest_estimate_total"])
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", target, diff)
			}
		}
		if _, why := w.handler.Catalog.Lookup(t.Context(), "example.com", "v1", "widgets"); why != "" {
			t.Fatal(why)
		}
		estimated(widgets, "reason=warming 1")
		if len(w.handler.Collections.Stats()) != 0 {
			t.Error("a collection was begun for an estimate")
		}
		estimated(widgets+"?limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoibiJ9", "reason=warming 1")
		estimated("/apis/example.com/v1/gadgets", "reason=warming 1")
		if _, why := w.handler.Collections.Use(modelWidgets); why != "" {
			t.Fatal(why)
		}
		time.Sleep(20 * time.Second)
		estimated(widgets, "reason=faster-forwarded 1", "reason=warming 1")
		resource, q, known := w.handler.newest(read(widgets))
		if !known {
			t.Fatal("the resource is not known")
		}
		w.handler.Collections.Forward(resource, q)(time.Hour)
		estimated(widgets, "reason=faster-forwarded 1", "reason=none 1", "reason=warming 1")
	})
}
