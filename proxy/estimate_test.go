package proxy

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/internal/observetest"
	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/index"
)

// TestEstimate: while --consistent-lists is off it is counted what it would have done. Nothing is
// asked or begun for that.
func TestEstimate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newModelWorld(t)
		w.probeTakes = 5 * time.Millisecond
		close(w.reviews)
		o, metrics := observetest.New(t, nil)
		w.handler.Observer, w.handler.ConsistentWait = o, 1500*time.Millisecond
		estimated := func(target string, want ...string) {
			t.Helper()
			list := parsed(t, target)
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
		resource, q, known := w.handler.newest(parsed(t, widgets))
		if !known {
			t.Fatal("the resource is not known")
		}
		w.handler.Collections.Forward(resource, q).End(time.Hour)
		estimated(widgets, "reason=faster-forwarded 1", "reason=none 1", "reason=warming 1")
	})
}

const widgets = "/apis/example.com/v1/widgets"

// parsed is a list as a client with a token asks for it.
func parsed(t *testing.T, target string) policy.Request {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.Header.Set("Accept", "application/json")
	list, why := policy.Parse(r, kubehttp.Of(r).Info, policy.PlainToken)
	if why != "" {
		t.Fatal(why)
	}
	return list
}

// hourlyReader is the connection of a client that reads nothing for an hour.
type hourlyReader struct{ http.ResponseWriter }

func (hourlyReader) Write(p []byte) (int, error) {
	time.Sleep(time.Hour)
	return len(p), nil
}

func (hourlyReader) FlushError() error {
	time.Sleep(time.Hour)
	return nil
}

// followedWorld is a world whose widgets have been followed for a while.
func followedWorld(t *testing.T) (*modelWorld, *snapshot.Collection) {
	t.Helper()
	w := newModelWorld(t)
	w.probeTakes = 5 * time.Millisecond
	close(w.reviews)
	if _, why := w.handler.Catalog.Lookup(t.Context(), "example.com", "v1", "widgets"); why != "" {
		t.Fatal(why)
	}
	collection, why := w.handler.Collections.Use(modelWidgets)
	if why != "" {
		t.Fatal(why)
	}
	time.Sleep(20 * time.Second)
	return w, collection
}

// TestIndentedListsAreMeasured: how long one takes tells how long the next indented one does, and
// nothing of others.
func TestIndentedListsAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, collection := followedWorld(t)
		f := w.handler.forwardNewest(httptest.NewRecorder(), parsed(t, widgets+"?pretty=1"), reason.FasterForwarded, true)
		time.Sleep(10 * time.Second)
		f.ended(true)
		_, plain, _ := w.handler.newest(parsed(t, widgets))
		for want, q := range map[reason.Reason]index.Query{reason.None: f.q, reason.FasterForwarded: plain} {
			if got := collection.NoFresh(q, w.handler.Collections.LastProbe(), time.Minute, false); got != want {
				t.Errorf("%+v: %q, want %q", q, got, want)
			}
		}
	})
}

// TestASlowReaderMakesNobodyWait: how long a client takes to read what is forwarded does not count
// as kube-apiserver's time for such lists, nor does the first request of a caller.
func TestASlowReaderMakesNobodyWait(t *testing.T) {
	for name, accepted := range map[string]bool{"a slow reader": true, "a caller whom kube-apiserver has not accepted yet": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, collection := followedWorld(t)
				f := w.handler.forwardNewest(hourlyReader{}, parsed(t, widgets), reason.FasterForwarded, accepted)
				if !accepted {
					time.Sleep(time.Hour)
				} else if _, err := f.Write([]byte("{")); err != nil {
					t.Error(err)
				} else if err := http.NewResponseController(f).Flush(); err != nil {
					t.Error(err)
				}
				f.ended(true)
				if got := collection.NoFresh(f.q, w.handler.Collections.LastProbe(), time.Minute, false); got != reason.FasterForwarded {
					t.Errorf("got %q", got)
				}
			})
		})
	}
}
